"""Stamps: a sample's id (environment index, observation number) written into the observation itself.

The id replaces the lowest mantissa bits of a few float32 elements (a relative change of at most 2**-15; 2**-12 with
three elements) or the lowest bit of fixed pixels, so it survives every copy, queue, shuffle and process border that a
library has. Too short vectors get four extra elements of about 1e-30, zero to any network.

    layout     observation            id bits (environment + number)
    "float6"   float vector, n >= 6   16 + 32, lowest byte of elements 0..5
    "float4"   float vector, n 4..5   8 + 24, lowest byte of elements 0..3
    "float3"   float vector, n = 3    8 + 24, lowest 11 bits of each element
    "tail4"    float vector, n < 3    8 + 24, lowest byte of four appended elements
    "pixel"    uint8, >= 48 elements  16 + 32, lowest bit of 48 fixed elements

Floating-point elements must be finite: an infinity whose mantissa is written to becomes a NaN.
"""

import numpy as np

TAIL = np.full(4, 1e-30, np.float32)
PIXELS = 48
FLOAT_LAYOUTS = {"float6": 6, "float4": 4, "float3": 3, "tail4": 4}
ID_BYTES = {"float6": 6, "float4": 4, "float3": 6, "tail4": 4, "pixel": PIXELS}
MAX_ENVS = {"float6": 1 << 16, "float4": 1 << 8, "float3": 1 << 8, "tail4": 1 << 8, "pixel": 1 << 16}
MAX_NUMBER = {"float6": 1 << 32, "float4": 1 << 24, "float3": 1 << 24, "tail4": 1 << 24, "pixel": 1 << 32}


def layout_of(shape, dtype):
    """Return the layout for observations of ``shape`` and ``dtype``; raises ValueError when none fits."""
    kind = np.dtype(dtype)
    if kind == np.uint8 and int(np.prod(shape)) >= PIXELS:
        return "pixel"
    if kind.kind == "f" and len(shape) == 1 and shape[0] > 0:
        return "float6" if shape[0] >= 6 else {5: "float4", 4: "float4", 3: "float3"}.get(shape[0], "tail4")
    raise ValueError(
        "observations of shape %s and type %s cannot be stamped: float vectors and uint8 images of 48 or more "
        "elements can" % (tuple(shape), kind)
    )


def stamped_dim(layout, n):
    """Return the number of elements of a stamped vector whose environment gives ``n``."""
    return n + 4 if layout == "tail4" else n


def make_encoder(layout, env):
    """Return ``encode(observation, number)`` for environment ``env``: a stamped copy, float32 or uint8.

    The observation is copied, so the environment's own state is never touched. Written for speed: it runs at every
    environment step.
    """
    if not 0 <= env < MAX_ENVS[layout]:
        raise ValueError(
            "environment index %d does not fit the %d that layout %s has" % (env, MAX_ENVS[layout], layout)
        )
    low, high = env & 0xFF, env >> 8
    array, float32 = np.array, np.float32

    def float4(observation, number):
        out = array(observation, float32)
        view = memoryview(out).cast("B")
        view[0] = low
        view[4] = number & 0xFF
        view[8] = (number >> 8) & 0xFF
        view[12] = number >> 16
        return out

    def float6(observation, number):
        out = array(observation, float32)
        view = memoryview(out).cast("B")
        view[0] = low
        view[4] = high
        view[8] = number & 0xFF
        view[12] = (number >> 8) & 0xFF
        view[16] = (number >> 16) & 0xFF
        view[20] = number >> 24
        return out

    def float3(observation, number):
        out = array(observation, float32)
        view = memoryview(out).cast("B").cast("I")
        word = number << 8 | low
        view[0] = view[0] & 0xFFFFF800 | word & 0x7FF
        view[1] = view[1] & 0xFFFFF800 | word >> 11 & 0x7FF
        view[2] = view[2] & 0xFFFFF800 | word >> 22
        return out

    def tail4(observation, number):
        out = np.concatenate([np.asarray(observation, float32), TAIL])
        view = memoryview(out).cast("B")[-16:]
        view[0] = low
        view[4] = number & 0xFF
        view[8] = (number >> 8) & 0xFF
        view[12] = number >> 16
        return out

    def pixel(observation, number):
        out = array(observation, order="C")
        flat = out.reshape(-1)[:PIXELS]
        word = np.frombuffer((number << 16 | env).to_bytes(6, "little"), np.uint8)
        flat &= 0xFE
        flat |= np.unpackbits(word, bitorder="little")
        return out

    return {"float4": float4, "float6": float6, "float3": float3, "tail4": tail4, "pixel": pixel}[layout]


def extract(layout, dim, batch):
    """Return the raw id bytes of a batch, shape ``(rows, ID_BYTES[layout])``, uint8, not yet decoded.

    ``batch`` is float32 with the stamped vector first in its last dimension (``dim`` elements, more may follow, as in
    a Q network's observation + action), or uint8 images of ``dim`` elements a row.
    """
    if layout == "pixel":
        return batch.reshape(-1, dim)[:, :PIXELS] & 1
    rows = batch.reshape(-1, batch.shape[-1])
    if layout == "tail4":
        rows = rows[:, dim - 4 : dim]
    if rows.strides[1] != 4:
        rows = np.ascontiguousarray(rows)
    if layout == "float3":
        return (rows[:, :3].view(np.uint32) & 0x7FF).astype("<u2").view(np.uint8)
    return rows.view(np.uint8)[:, 0 : 4 * FLOAT_LAYOUTS[layout] : 4]


def decode(layout, raw):
    """Return ``(env, number)``, two int64 arrays, for raw id bytes of shape ``(rows, ID_BYTES[layout])``."""
    raw = np.ascontiguousarray(raw)
    if layout == "pixel":
        raw = np.packbits(raw, axis=1, bitorder="little")
    if layout in ("pixel", "float6"):
        wide = raw.astype(np.int64)
        return wide[:, 0] | wide[:, 1] << 8, wide[:, 2] | wide[:, 3] << 8 | wide[:, 4] << 16 | wide[:, 5] << 24
    if layout == "float3":
        parts = raw.view("<u2").astype(np.int64)
        word = parts[:, 0] | parts[:, 1] << 11 | parts[:, 2] << 22
    else:
        word = raw.view("<u4").reshape(-1).astype(np.int64)
    return word & 0xFF, word >> 8
