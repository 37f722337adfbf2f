"""The buffer under stress: several processes, checksummed records, killed writers, nothing left behind."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from rlbench.pipeline.buffer import ShardedBuffer
from tests.pipeline.leftovers import segments_of

RECORD = np.dtype([("version", "<i8"), ("number", "<i8"), ("body", "<u4", 12), ("checksum", "<u8")], align=True)
STRESS = 400_000
BATCH = 64


def checksums(records):
    """A checksum of each record's other fields, vectorised: a torn record has another one."""
    words = records["body"].astype(np.uint64)
    mixed = (words * (np.arange(12, dtype=np.uint64) * np.uint64(2) + np.uint64(1))).sum(1)
    return mixed * np.uint64(0x9E3779B97F4A7C15) + records["number"].astype(np.uint64) + records["version"].astype("u8")


def filled(start, count, shard):
    records = np.zeros(count, RECORD)
    records["number"] = np.arange(start, start + count)
    records["version"] = shard
    records["body"] = (records["number"][:, None] * 2654435761 + np.arange(12)) & 0xFFFFFFFF
    records["checksum"] = checksums(records)
    return records


def produce(buffer, index, total):
    shard, sent = buffer.shard(index), 0
    while sent < total:
        records = filled(sent, min(BATCH, total - sent), index)
        while len(records):
            accepted = shard.put(records)
            records = records[accepted:]
            sent += accepted
            if not accepted:
                time.sleep(0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_record_arrives_once_whole_and_in_order(method):
    context = multiprocessing.get_context(method)
    total = STRESS if method == "fork" else STRESS // 10
    buffer = ShardedBuffer(shards=3, capacity=256, dtype=RECORD)
    writers = [context.Process(target=produce, args=(buffer, i, total)) for i in range(3)]
    for writer in writers:
        writer.start()
    received = [0, 0, 0]
    shards = [buffer.shard(i) for i in range(3)]
    while sum(received) < 3 * total:
        for i, shard in enumerate(shards):
            records = shard.get()
            assert np.array_equal(records["number"], np.arange(received[i], received[i] + len(records)))
            assert np.array_equal(records["checksum"], checksums(records))
            assert (records["version"] == i).all()
            received[i] += len(records)
            shard.release()
        assert all(writer.exitcode in (None, 0) for writer in writers)
    for writer in writers:
        writer.join()
    assert received == [total] * 3
    assert [shard.head for shard in shards] == [total] * 3


def test_overwriting_loses_but_never_tears():
    buffer = ShardedBuffer(shards=2, capacity=64, dtype=RECORD, overwrite=True)
    writers = [multiprocessing.get_context("fork").Process(target=produce, args=(buffer, i, STRESS)) for i in range(2)]
    for writer in writers:
        writer.start()
    shards, last, received = [buffer.shard(i) for i in range(2)], [-1, -1], [0, 0]
    alive = True
    while alive or any(len(shard) for shard in shards):
        alive = any(writer.is_alive() for writer in writers)
        for i, shard in enumerate(shards):
            records = shard.get()
            assert np.array_equal(records["checksum"], checksums(records))
            if len(records):
                assert records["number"][0] > last[i]
                assert (np.diff(records["number"]) > 0).all()
                last[i] = records["number"][-1]
            received[i] += len(records)
    for i, shard in enumerate(shards):
        assert received[i] + shard.dropped == shard.head == STRESS
        assert shard.dropped > 0
        assert last[i] == STRESS - 1


def test_overwriting_in_place_never_tears():
    """A writer that is in the middle of a slot makes the slot invalid."""
    buffer = ShardedBuffer(1, 2, RECORD, overwrite=True)
    writer, reader = buffer.shard(0), buffer.shard(0)
    writer.put(filled(0, 2, 0))
    slot = writer.reserve()
    slot["number"] = 2
    assert reader.get()["number"].tolist() == [1]
    assert reader.dropped == 1
    slot[:] = filled(2, 1, 0)
    writer.commit()
    assert reader.get()["number"].tolist() == [2]
    assert reader.head == 3


def test_full_ring_refuses_and_limit_is_kept():
    buffer = ShardedBuffer(1, 8, RECORD)
    shard = buffer.shard(0)
    assert shard.put(filled(0, 20, 0)) == 8
    assert shard.put(filled(8, 1, 0)) == 0
    assert shard.reserve() is None
    assert len(shard.get(3)) == 3
    shard.release(2)
    assert shard.free() == 2
    shard.limit = 4
    assert shard.free() == 0
    with pytest.raises(ValueError, match="cannot be released"):
        shard.release(2)


def test_counters_and_slots_share_no_line():
    buffer = ShardedBuffer(2, 4, RECORD)
    first, second = buffer.shard(0), buffer.shard(1)
    addresses = [np.frombuffer(each, np.int64).ctypes.data for each in (first._head, first._tail, second._head)]
    assert all(address % 128 == 0 for address in addresses)
    assert len({address // 128 for address in addresses}) == 3
    assert first._records.ctypes.data % 64 == 0
    assert first._records.strides[0] % 64 == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((1, 1, np.dtype([("x", "<f4")])), "version"),
        ((1, 1, np.dtype([("version", "<i8"), ("x", object)])), "objects"),
        ((0, 1, RECORD), "shards >= 1"),
    ],
)
def test_wrong_buffers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ShardedBuffer(*arguments)


def write_forever(buffer):
    shard, number = buffer.shard(0), 0
    while True:
        number += shard.put(filled(number, 16, 0))


def test_killed_writer_leaves_whole_records_and_no_segment():
    buffer = ShardedBuffer(1, 1024, RECORD)
    writer = multiprocessing.get_context("fork").Process(target=write_forever, args=(buffer,))
    writer.start()
    shard, received = buffer.shard(0), 0
    while received < 20_000:
        records = shard.get()
        received += len(records)
        shard.release()
    assert segments_of(writer.pid) == segments_of(os.getpid()) == set()
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    while len(shard):
        records = shard.get()
        assert np.array_equal(records["checksum"], checksums(records))
        assert records["number"][0] == received
        received += len(records)
        shard.release()
    assert received == shard.head


def test_the_checksum_sees_a_torn_record():
    records = filled(0, 2, 0)
    records["body"][0, :6] = records["body"][1, :6]
    assert checksums(records)[0] != records["checksum"][0]
