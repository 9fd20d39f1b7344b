"""Commands of Python, forked from a process that has imported our libraries already.

To import them takes a core most of a second, and a run starts services by the hundred. What is
forked is what `python -m …` would be after these imports: a session, a log and an environment of
its own, and a child of whoever asked for it.

    python -P tests/support/preloaded.py <descriptor of a socket> services | commands
"""

import ast
import atexit
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from farmiq import services
from farmiq.lab.stack.processes import Launch

# All that services and agents take from elsewhere. Their own modules are imported by one process
# for each kind: with those come metrics, which a process shows only for the services that it runs.
LIBRARIES = (
    "aio_pika", "argon2", "boto3", "fastapi", "httpx2", "jinja2", "paho.mqtt.client", "PIL.Image",
    "psycopg_pool", "uvicorn", "farmiq.cli", "farmiq.process",
)  # fmt: skip
# Of prctl(2).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_BYTES = 2**20
ORPHANED = 71
INIT = 1
STDERR = 2
NOWHERE = Path(os.devnull)

# `farmiq` in a shell whose commands are forked. What runs on is stopped with its shell, so it is a
# process of it.
TYPED = """\
#!{python} -IS
import os, socket, sys
if sys.argv[1:2] == ["run"]:
    os.execv({farmiq!r}, ["farmiq", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
    asking.connect({address!r})
    typed = repr((sys.argv[1:], os.getcwd(), dict(os.environ)))
    socket.send_fds(asking, [typed.encode()], [0, 1, 2])
    sys.exit(int(asking.recv(16) or 1))
"""

_libc = ctypes.CDLL(None, use_errno=True)


class Forked(subprocess.Popen[bytes]):
    """A process that was forked for us and has become our child."""

    def __init__(self, args: tuple[str, ...], pid: int) -> None:  # it runs already
        self.args, self.pid = args, pid
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()


class Nursery:
    """The process that forks; one for all of a worker's tests, gone when that one is."""

    def __init__(self) -> None:
        self._one_by_one = threading.Lock()
        self._asking, theirs = _pair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), "services"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def spawn(self, launch: Launch, *, errors: Path | None = None) -> Forked:
        """Start what the launch says; it ends with us. `errors` is for what is not for the log."""
        _, dash_m, module, *arguments = launch.argv
        assert dash_m == "-m", launch.argv
        wanted = {
            "module": module,
            "arguments": arguments,
            "environment": dict(launch.environment),
            "folder": str(launch.folder),
            "log": str(launch.log),
            "errors": str(errors or launch.log),
            "parent": os.getpid(),
            "signal": int(launch.stop_signal),
        }
        with self._one_by_one, _adopting():
            self._asking.send(json.dumps(wanted).encode())
            answer = self._asking.recv(64)
        assert answer, "the process that forks is gone"
        return Forked(launch.argv, int(answer))

    def close(self) -> None:
        self._asking.close()
        self._process.wait()


_nursery: list[Nursery] = []


def spawn(launch: Launch, *, errors: Path | None = None) -> Forked:
    if not _nursery:
        _nursery.append(Nursery())
        atexit.register(_nursery[0].close)
    return _nursery[0].spawn(launch, errors=errors)


def run(service: str, environment: Mapping[str, str], *, log: Path = NOWHERE) -> Forked:
    """`farmiq run` of a service or a site, with our environment and that."""
    return spawn(
        Launch(
            argv=(sys.executable, "-m", "farmiq", "run", service),
            environment={**os.environ, **environment},
            folder=Path.cwd(),
            log=log,
        )
    )


def command(
    *words: str, environment: Mapping[str, str], timeout_s: float = 120
) -> "subprocess.CompletedProcess[str]":
    """`farmiq` as people type it, with our environment and that, until it ends."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        launch = Launch(
            argv=(sys.executable, "-m", "farmiq", *words),
            environment={**os.environ, **environment},
            folder=Path.cwd(),
            log=out,
        )
        process = spawn(launch, errors=err)
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(launch.argv, code, out.read_text(), err.read_text())


@contextmanager
def commands() -> Iterator[Path]:
    """A folder with a `farmiq` for the PATH of a shell, which is forked when somebody types it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
    ):
        listening.bind(f"{folder}/socket")
        listening.listen()
        program = Path(folder) / "farmiq"
        installed = str(Path(sys.executable).with_name("farmiq"))
        program.write_text(
            TYPED.format(python=sys.executable, farmiq=installed, address=f"{folder}/socket")
        )
        program.chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-P", __file__, str(listening.fileno()), "commands"],
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        ) as server:
            try:
                yield Path(folder)
            finally:
                server.terminate()


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans of our children become ours; at other times they are nobody's, as ever."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def _until_asked(asked: socket.socket) -> dict[str, Any]:
    """Return in a child, for each request; the process itself ends when nobody can ask any more.

    What imports modules of its own is forked from one that has imported just these.
    """
    ours: tuple[str, ...] = ()
    others: dict[tuple[str, ...], socket.socket] = {}
    while True:
        request = asked.recv(MAX_BYTES)
        if not request:
            os._exit(0)
        wanted: dict[str, Any] = json.loads(request)
        theirs = _modules(wanted["module"], wanted["arguments"])
        if theirs != ours:
            if theirs not in others:
                asking, answering = _pair()
                if os.fork() == 0:
                    for end in (asked, asking, *others.values()):
                        end.close()
                    asked, ours, others = answering, theirs, {}
                    _load(ours)
                    continue
                answering.close()
                others[theirs] = asking
            others[theirs].send(request)
            asked.send(others[theirs].recv(64))
            continue
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                asked.detach()
                return wanted
            os.write(writing, str(child).encode())
            os._exit(0)
        os.close(writing)
        # When the one between is gone, whoever asked is the parent.
        os.waitpid(between, 0)
        asked.send(os.read(reading, 64))
        os.close(reading)


def _modules(module: str, arguments: list[str]) -> tuple[str, ...]:
    """What it imports before it does anything, beside what all have; nothing where few start it."""
    match [module, *arguments]:
        case ["farmiq", "run", what]:
            with suppress(KeyError):
                return tuple(each.module for each in services.named(what))
        case ["farmiq", "simulate", *_]:
            return ("farmiq.lab.simulate.farm", "farmiq.lab.simulate.runner")
        case ["tests.support.agent_process", *_] | ["farmiq", "agent", "run", *_]:
            return ("farmiq.device.service",)
    return ()


def _load(modules: tuple[str, ...]) -> None:
    for name in modules:
        importlib.import_module(name)
    # Pages that nobody writes to are shared: neither a search for garbage nor the end of a child
    # may touch what all of them have from here.
    gc.collect()
    gc.freeze()


def _pair() -> tuple[socket.socket, socket.socket]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
    return ends


def _become(wanted: dict[str, Any]) -> None:
    """What `subprocess` does between fork and exec, and the start of an interpreter."""
    os.setsid()
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(descriptor) > STDERR:
            with suppress(OSError):
                os.close(int(descriptor))
    os.umask(0o077)
    os.chdir(wanted["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream, name in ((1, "log"), (2, "errors")):
        log = os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, stream)
        os.close(log)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    random.seed()
    _tie(wanted["parent"], wanted["signal"])
    sys.path.insert(0, wanted["folder"])
    sys.argv = [wanted["module"], *wanted["arguments"]]


def _tie(parent: int, number: int) -> None:
    """End with the parent, as soon as that is who asked for us."""
    while os.getppid() not in {parent, INIT}:
        time.sleep(0.001)
    _libc.prctl(PR_SET_PDEATHSIG, number)
    # It may have died in between: then no signal will ever come.
    if os.getppid() != parent:
        os._exit(ORPHANED)


def _until_typed(listening: socket.socket) -> socket.socket:
    """Return in a child, for each command; the process itself ends with whoever started it."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return connection
        connection.close()


def _type(connection: socket.socket) -> int:
    """Run what was typed, where it was typed; the exit code."""
    raw, streams, _, _ = socket.recv_fds(connection, MAX_BYTES, 3)
    words, folder, environment = ast.literal_eval(raw.decode())
    for stream, descriptor in enumerate(streams):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.argv = ["farmiq", *words]
    return _run(importlib.import_module("farmiq.cli").main)


def _main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _load(LIBRARIES)
    if sys.argv[2] == "commands":
        connection = _until_typed(asked)
        code = _end(_type(connection))
        connection.send(str(code).encode())
        os._exit(code)
    wanted = _until_asked(asked)
    _become(wanted)
    module = wanted["module"]
    os._exit(_end(_run(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))))


def _end(code: int) -> int:
    """As the interpreter ends."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _run(program: Callable[[], object]) -> int:
    """The exit code that the interpreter would give."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _main()
