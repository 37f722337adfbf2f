"""A group of ``torch.distributed`` ranks for one measurement: forked, joined by a file, counted on the wire."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import socket
import struct
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# struct tcp_info of Linux (include/uapi/linux/tcp.h): tcpi_bytes_sent and tcpi_bytes_retrans, 64-bit counters of
# payload bytes. The first counts resent bytes too, and on a busy machine some are resent even over the loopback.
_SENT_AND_RESENT = struct.Struct("<200xQQ")


def run_world(size: int, work: Callable[..., Any], arguments: tuple[Any, ...], backend: str = "gloo") -> Any:
    """Run ``work(rank, size, *arguments)`` in ``size`` processes that form a process group; return rank 0's result.

    Raises RuntimeError with the traceback of the first rank that failed.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(rank, size, folder, backend, work, arguments)) for rank in range(size)
        ]
        for each in ranks:
            each.start()
        # A rank that fails leaves the others waiting for it.
        while any(each.is_alive() for each in ranks) and not any(each.exitcode for each in ranks):
            for each in ranks:
                each.join(0.05)
        for each in ranks:
            if each.is_alive():
                each.terminate()
            each.join()
        # The first to fail is the cause: the others then fail for want of it.
        errors = sorted(Path(folder).glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
        if errors:
            raise RuntimeError(f"rank {errors[0].stem} of {size} failed:\n{errors[0].read_text()}")
        if any(each.exitcode for each in ranks):
            raise RuntimeError(f"ranks ended with exit codes {[each.exitcode for each in ranks]}")
        return pickle.loads((Path(folder) / "result").read_bytes())


def bytes_sent() -> int | None:
    """Return the payload bytes that this process has sent over all of its TCP connections, or None if not counted.

    A byte that had to be sent again counts once.
    """
    total, counted = 0, False
    for entry in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                continue
            duplicate = socket.socket(fileno=os.dup(int(entry)))
        except OSError:
            # Listing opens a descriptor of its own, which is gone by now.
            continue
        with duplicate:
            if duplicate.family in (socket.AF_INET, socket.AF_INET6) and duplicate.type == socket.SOCK_STREAM:
                info = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= _SENT_AND_RESENT.size:
                    sent, resent = _SENT_AND_RESENT.unpack_from(info)
                    total, counted = total + sent - resent, True
    return total if counted else None


def timed(act: Callable[[], Any], times: int, ranks: int) -> tuple[Any, float | None]:
    """Have every rank call ``act`` ``times`` times, side by side; all ranks call this.

    Returns ``(seconds, bytes)``: a tensor (ranks, times), and the payload bytes that one call had all ranks send, or
    None where the kernel does not count them.
    """
    import torch
    import torch.distributed as dist

    taken = []
    dist.barrier()
    before = bytes_sent()
    for _ in range(times):
        dist.barrier()
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    dist.barrier()
    after = bytes_sent()
    # NaN stands for "not counted" on its way through the tensor.
    sent = float("nan") if before is None or after is None else (after - before) / times
    mine = torch.tensor([sent, *taken], dtype=torch.float64)
    everyone = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(everyone, mine)
    gathered = torch.stack(everyone)
    total = float(gathered[:, 0].sum())
    return gathered[:, 1:], None if math.isnan(total) else total


def _rank(
    rank: int, size: int, folder: str, backend: str, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        # The ranks are on one machine: no name of the machine has to resolve.
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=rank, world_size=size)
        result = work(rank, size, *arguments)
        if rank == 0:
            (Path(folder) / "result").write_bytes(pickle.dumps(result))
        dist.destroy_process_group()
    except BaseException:
        (Path(folder) / f"{rank}.error").write_text(traceback.format_exc())
        raise
