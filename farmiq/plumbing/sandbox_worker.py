"""The side of a sandbox that works: answers requests within the limits that come with each.

A module that sandbox.py starts ends with `sandbox_worker.main(OPERATIONS)`.
"""

import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from farmiq.plumbing.sandbox import IDLE_S, Answer, InputRejectedError, Request, TooCostlyError

Made = tuple[dict[str, Any], bytes]
Operations = Mapping[str, Callable[..., Made]]


def main(operations: Operations, *, nice: int = 0) -> None:
    """Answer requests one by one, until the connection closes or none comes for IDLE_S.

    What the operations need is to be loaded before: what comes later counts as the input's.
    """
    os.nice(nice)
    _be_modest()
    own_bytes = _memory_bytes()
    connection = Connection(int(sys.argv[1]))
    while connection.poll(IDLE_S):
        try:
            request = msgspec.json.decode(connection.recv_bytes(), type=Request)
            data = connection.recv_bytes()
        except EOFError:
            return
        _limit(request, own_bytes)
        answer, made = answered(operations, request, data)
        connection.send_bytes(msgspec.json.encode(answer))
        connection.send_bytes(made)


def answered(operations: Operations, request: Request, data: bytes) -> tuple[Answer, bytes]:
    try:
        facts, made = operations[request.operation](data, **request.arguments)
    except MemoryError:
        limit = f"{request.memory_bytes // 2**20} MiB"
        return Answer(problem=f"it takes more than {limit} of memory", too_costly=True), b""
    except InputRejectedError as error:
        return Answer(problem=str(error), too_costly=isinstance(error, TooCostlyError)), b""
    return Answer(facts=facts), made


def _be_modest() -> None:
    """Write no file, leave no core, and be the first to go where memory runs out."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit(request: Request, own_bytes: int) -> None:
    """On top of what the process has for itself; the kernel ends who computes beyond it."""
    memory_bytes = own_bytes + request.memory_bytes
    cpu_s = math.ceil(time.process_time()) + request.cpu_s
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
