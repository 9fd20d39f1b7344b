"""Work on bytes that nobody trusts, in a process that may take so much memory and time, no more.

caller's thread --one input--> [sandbox] --socket--> sandbox_worker --> result, or an error

A few hundred kilobytes can unpack to gigabytes. Whatever an input does to a codec, it happens in
the worker: there it meets limits, and if the worker dies the input is rejected and the caller goes
on. A worker ended from outside, as where memory runs out, says nothing of the input: that is tried
once more, and then later. A sandbox has one worker and one input at a time; the worker starts with
the first input and ends by itself when no more come. Nothing here loads what the worker loads.
"""

import atexit
import multiprocessing
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

# A process that got no input for so long ends; its memory is more than starting it costs.
IDLE_S = 30.0
# Far beyond the limit of computing time: a machine may be busy, or the worker may hang.
WALL_S = 120.0
# How long a worker that has closed its end takes to be gone.
GONE_S = 5.0
# More than any answer: a picture is at most 10 MiB, and none is made larger.
MAX_BYTES = 32 * 2**20
_ROOT = Path(__file__).parents[2]


class InputRejectedError(Exception):
    """The input cannot be worked on; the text says why."""


class TooCostlyError(InputRejectedError):
    """It takes more memory or time than it may, or ended the process that tried."""


class WorkerGoneError(Exception):
    """The worker was ended from outside, or does not start: the input may be tried later."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one input may take: bytes of memory and seconds of computing."""

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


class Result(NamedTuple):
    facts: dict[str, Any]
    data: bytes


@dataclass
class Worker:
    process: "subprocess.Popen[bytes]"
    connection: Connection


@dataclass
class Sandbox:
    """`module` is run as a program and serves its operations (sandbox_worker.serve).

    Its environment is `environment` alone, with none of our secrets: who works on untrusted bytes
    may be taken over.
    """

    module: str
    environment: Mapping[str, str] = field(default_factory=dict)
    wall_s: float = WALL_S
    running: Worker | None = None
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        atexit.register(self.stop)

    def call(self, operation: str, data: bytes, *, limits: Limits, **arguments: Any) -> Result:
        """Do `operation` of the module with the input. A thread's work.

        Raises InputRejectedError for the input, WorkerGoneError for what is not its fault.
        """
        request = Request(
            operation=operation,
            arguments=arguments,
            memory_bytes=limits.memory_bytes,
            cpu_s=limits.cpu_s,
        )
        with self._one_at_a_time:
            answered = self._request(self._worker(), request, data) or self._request(
                self.start(), request, data
            )
        if answered is None:
            raise WorkerGoneError(
                f"{self.module} was ended from outside, or does not start; see the log"
            )
        answer, made = answered
        if answer.problem is not None:
            raise (TooCostlyError if answer.too_costly else InputRejectedError)(answer.problem)
        return Result(answer.facts, made)

    def stop(self) -> None:
        """End the worker, if there is one; the next input starts another."""
        with self._one_at_a_time:
            if self.running is not None:
                self.running.connection.close()
                self.running.process.kill()
                self.running.process.wait()

    def start(self) -> Worker:
        if self.running is not None:
            self.running.connection.close()
        ours, its = multiprocessing.Pipe()
        with its:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", self.module, str(its.fileno())],
                cwd=_ROOT,
                env=dict(self.environment),
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self.running = Worker(process, ours)
        return self.running

    def _worker(self) -> Worker:
        if self.running is not None and self.running.process.poll() is None:
            return self.running
        return self.start()

    def _request(
        self, worker: Worker, request: Request, data: bytes
    ) -> tuple[Answer, bytes] | None:
        """The worker's answer; None if it ended for another reason than the input."""
        try:
            worker.connection.send_bytes(msgspec.json.encode(request))
            worker.connection.send_bytes(data)
            if not worker.connection.poll(self.wall_s):
                return _ended(worker, "it took too long")
            answer = msgspec.json.decode(worker.connection.recv_bytes(MAX_BYTES), type=Answer)
            return answer, worker.connection.recv_bytes(MAX_BYTES)
        except (EOFError, OSError, msgspec.MsgspecError):
            return _ended(worker, None)


def _ended(worker: Worker, why: str | None) -> tuple[Answer, bytes] | None:
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
        why = "it takes too much computing"
    return Answer(
        problem=why or f"it ended the process that worked on it (exit {code})", too_costly=True
    ), b""
