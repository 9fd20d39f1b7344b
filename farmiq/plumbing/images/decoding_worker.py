"""The process that decodes pictures for others, within the limits that come with each of them.

It runs as `python -m farmiq.plumbing.images.decoding_worker FD`; see decoding.py, which starts it.
"""

import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image, WebPImagePlugin  # noqa: F401 - loads its codec

from farmiq.plumbing.images import pictures, quality
from farmiq.plumbing.images.decoding import IDLE_S, Answer, Request
from farmiq.plumbing.images.pictures import UnreadableError

Made = tuple[dict[str, Any], bytes]


def serve(connection: Connection) -> None:
    """Answer requests one by one, until the connection closes."""
    _be_modest()
    own_bytes = _memory_bytes()
    while connection.poll(IDLE_S):
        try:
            request = msgspec.json.decode(connection.recv_bytes(), type=Request)
            data = connection.recv_bytes()
        except EOFError:
            return
        _limit(request, own_bytes)
        answer, made = answered(request, data)
        connection.send_bytes(msgspec.json.encode(answer))
        connection.send_bytes(made)


def answered(request: Request, data: bytes) -> tuple[Answer, bytes]:
    try:
        facts, made = OPERATIONS[request.operation](data, **request.arguments)
    except MemoryError:
        limit = f"{request.memory_bytes // 2**20} MiB"
        why = f"it takes more than {limit} of memory to decode"
        return Answer(problem=why, too_costly=True), b""
    except UnreadableError as error:
        return Answer(problem=str(error), too_costly=error.too_costly), b""
    return Answer(facts=facts), made


def _thumbnail(data: bytes) -> Made:
    return {}, pictures.thumbnail(data)


def _assess(data: bytes) -> Made:
    quality_, small = quality.assess(data)
    return msgspec.to_builtins(quality_), small or b""


def _check(data: bytes) -> Made:
    return msgspec.to_builtins(pictures.check(data)), b""


def _shrink(data: bytes, *, side_px: int, quality: int) -> Made:
    return {}, pictures.shrunk(data, side_px=side_px, quality=quality)


OPERATIONS: dict[str, Callable[..., Made]] = {
    "thumbnail": _thumbnail,
    "assess": _assess,
    "check": _check,
    "shrink": _shrink,
}


def _be_modest() -> None:
    """Write no file, leave no core, and be the first to go where memory runs out."""
    # All codecs are loaded now: what comes later counts as the picture's.
    Image.preinit()
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


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
