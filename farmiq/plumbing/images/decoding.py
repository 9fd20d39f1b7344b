"""Decode pictures in a process of its own that may take so much memory and time, and no more.

caller's thread --one picture--> [decoding] --socket--> decoding_worker --> result, or DecodeError

A few hundred kilobytes can unpack to gigabytes. Whatever a picture does to a codec, it happens in
the worker: there it meets limits, and if the worker dies the picture is rejected and the caller
goes on. A worker ended from outside, as where memory runs out, says nothing of the picture: that is
tried once more, and then later. There is one worker per process and one picture at a time; it
starts with the first picture and ends by itself when no more come. Nothing here loads an image
library.
"""

import atexit
import multiprocessing
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

MODULE = "farmiq.plumbing.images.decoding_worker"
# A process that got no picture for so long ends; its memory is more than starting it costs.
IDLE_S = 30.0
# Far beyond the limit of computing time: a machine may be busy, or the worker may hang.
WALL_S = 120.0
# How long a worker that has closed its end takes to be gone.
GONE_S = 5.0
# More than any answer: a picture is at most 10 MiB, and none is made larger.
MAX_BYTES = 32 * 2**20
_ROOT = Path(__file__).parents[3]


class DecodeError(Exception):
    """The picture cannot be decoded; the text says why."""


class TooCostlyError(DecodeError):
    """Decoding it takes more memory or time than it may, or ended the process that tried."""


class DecoderGoneError(Exception):
    """The decoder was ended from outside, or does not start: the picture may be tried later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What decoding one picture may take: bytes of memory and seconds of computing."""

    memory_bytes: int
    cpu_s: int


class Request(msgspec.Struct, frozen=True, kw_only=True):
    operation: str
    arguments: dict[str, Any]
    memory_bytes: int
    cpu_s: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`facts` are the operation's own; a problem says why there are none."""

    facts: dict[str, Any] = {}
    problem: str | None = None
    too_costly: bool = False


class Decoded(NamedTuple):
    facts: dict[str, Any]
    data: bytes


@dataclass
class _Worker:
    process: "subprocess.Popen[bytes]"
    connection: Connection


_one_at_a_time = threading.Lock()
_running: _Worker | None = None


def decode(operation: str, data: bytes, *, limits: Limits, **arguments: Any) -> Decoded:
    """Do `operation` of decoding_worker with the picture. A thread's work.

    Raises DecodeError for the picture, DecoderGoneError for what is not its fault.
    """
    request = Request(
        operation=operation,
        arguments=arguments,
        memory_bytes=limits.memory_bytes,
        cpu_s=limits.cpu_s,
    )
    with _one_at_a_time:
        answered = _request(_worker(), request, data) or _request(_start(), request, data)
    if answered is None:
        raise DecoderGoneError("the decoder was ended from outside, or does not start; see the log")
    answer, made = answered
    if answer.problem is not None:
        raise (TooCostlyError if answer.too_costly else DecodeError)(answer.problem)
    return Decoded(answer.facts, made)


def _worker() -> _Worker:
    if _running is not None and _running.process.poll() is None:
        return _running
    return _start()


@atexit.register
def stop() -> None:
    """End the worker, if there is one; the next picture starts another."""
    with _one_at_a_time:
        if _running is not None:
            _running.connection.close()
            _running.process.kill()
            _running.process.wait()


def _start() -> _Worker:
    global _running  # noqa: PLW0603 - the process has one worker
    if _running is not None:
        _running.connection.close()
    ours, its = multiprocessing.Pipe()
    with its:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", MODULE, str(its.fileno())],
            cwd=_ROOT,
            # None of our secrets: a decoder of untrusted bytes may be taken over.
            env={},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
        )
    _running = _Worker(process, ours)
    return _running


def _request(worker: _Worker, request: Request, data: bytes) -> tuple[Answer, bytes] | None:
    """The worker's answer; None if it ended for another reason than the picture."""
    try:
        worker.connection.send_bytes(msgspec.json.encode(request))
        worker.connection.send_bytes(data)
        if not worker.connection.poll(WALL_S):
            return _ended(worker, "it took too long to decode")
        answer = msgspec.json.decode(worker.connection.recv_bytes(MAX_BYTES), type=Answer)
        return answer, worker.connection.recv_bytes(MAX_BYTES)
    except (EOFError, OSError, msgspec.MsgspecError):
        return _ended(worker, None)


def _ended(worker: _Worker, why: str | None) -> tuple[Answer, bytes] | None:
    """What to say of a worker that answers no more, or None; it is gone then."""
    excused = {0} if why else {0, -signal.SIGKILL, -signal.SIGTERM}
    try:
        code = worker.process.wait(0 if why else GONE_S)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        code, excused = worker.process.wait(), {0}
    if code in excused:
        return None
    if code == -signal.SIGXCPU:
        why = "it takes too much computing to decode"
    return Answer(
        problem=why or f"decoding it ended the decoder (exit {code})", too_costly=True
    ), b""
