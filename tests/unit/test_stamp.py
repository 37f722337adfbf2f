"""Stamps: every id survives, the observation hardly changes, the environment's own array not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.probe import stamp

LAYOUTS = [
    ("float4", 4),
    ("float4", 5),
    ("float6", 6),
    ("float6", 17),
    ("float3", 3),
    ("tail4", 1),
    ("tail4", 2),
]
FLOATS = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize(("layout", "n"), LAYOUTS)
@given(data=st.data())
def test_ids_come_back_and_values_stay(layout: str, n: int, data: st.DataObject) -> None:
    env = data.draw(st.integers(0, stamp.MAX_ENVS[layout] - 1))
    number = data.draw(st.integers(0, stamp.MAX_NUMBER[layout] - 1))
    plain = np.array(data.draw(st.lists(FLOATS, min_size=n, max_size=n)), np.float32)
    before = plain.copy()
    stamped = stamp.make_encoder(layout, env)(plain, number)
    assert plain.tobytes() == before.tobytes()
    assert stamped.dtype == np.float32
    assert stamped.shape == (stamp.stamped_dim(layout, n),)
    raw = stamp.extract(layout, len(stamped), stamped[None])
    assert [int(part[0]) for part in stamp.decode(layout, raw)] == [env, number]
    relative = 2.0**-12 if layout == "float3" else 2.0**-15
    # Zero and its neighbours have no mantissa to hide in: they become numbers that are zero to any network.
    assert np.all(np.abs(stamped[:n] - plain) <= np.maximum(np.abs(plain) * relative, 1e-37))
    assert np.all(np.abs(stamped[n:]) < 1e-29)


@given(env=st.integers(0, 65535), number=st.integers(0, 2**32 - 1))
def test_images_change_by_one_bit_at_most(env: int, number: int) -> None:
    plain = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    stamped = stamp.make_encoder("pixel", env)(plain, number)
    assert np.abs(stamped.astype(int) - plain).max() <= 1
    raw = stamp.extract("pixel", plain.size, stamped[None])
    assert [int(part[0]) for part in stamp.decode("pixel", raw)] == [env, number]


@pytest.mark.parametrize(("layout", "n"), LAYOUTS)
def test_batches_of_any_shape_decode_row_by_row(layout: str, n: int) -> None:
    encode = stamp.make_encoder(layout, 7)
    rows = np.stack([encode(np.full(n, 0.3, np.float32), number) for number in range(12)])
    dim = rows.shape[1]
    for batch in (
        rows.reshape(3, 4, dim),
        np.asfortranarray(rows),
        np.concatenate([rows, np.ones((12, 2), np.float32)], axis=1),
        rows.astype(np.float64).astype(np.float32),
    ):
        env, number = stamp.decode(layout, stamp.extract(layout, dim, batch))
        assert env.tolist() == [7] * 12
        assert number.tolist() == list(range(12))


def test_what_cannot_be_stamped_is_named() -> None:
    with pytest.raises(ValueError, match="cannot be stamped"):
        stamp.layout_of((3, 3), np.float32)
    with pytest.raises(ValueError, match="cannot be stamped"):
        stamp.layout_of((4,), np.int64)
    with pytest.raises(ValueError, match="environment index 256"):
        stamp.make_encoder("float4", 256)
