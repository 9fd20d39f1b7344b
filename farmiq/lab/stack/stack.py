"""A stack: the engines of one folder, started together, stopped together.

start --> prepare, spawn, probe (all engines at once) --> Stack --> stop
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from farmiq import config
from farmiq.lab.stack import engines as registry
from farmiq.lab.stack import files, ports, processes, record, s3
from farmiq.lab.stack.engine import (
    HOST,
    Engine,
    NotReadyError,
    Place,
    Say,
    StackError,
    address,
    await_answer,
    hide,
    outside,
)
from farmiq.lab.stack.record import Run, Running

STOP_PATIENCE_S = 20
GIVEN_PATIENCE_S = 3


@dataclass(frozen=True, kw_only=True)
class EngineState:
    """How one engine fares now; `remedy` is empty when nothing is wrong."""

    name: str
    version: str
    host: str
    port: int
    pid: int | None
    rss_bytes: int
    healthy: bool
    detail: str
    remedy: str


class Stack:
    """A running stack; leaving the `with` block stops what it started."""

    def __init__(
        self,
        root: Path,
        downloads: Path,
        say: Say,
        *,
        detach: bool,
        shared_login: bool = True,
        mends: bool = False,
    ) -> None:
        """With `mends` it goes on with the engines that were left running in `root`."""
        self.root = root
        self._downloads = downloads
        self._detach = detach
        self._shared_login = shared_login
        self._stopped = False
        self._lock = _take_over(root, clear=not mends)
        self._mutex = threading.Lock()
        self._abandoned = threading.Event()
        self._running: dict[str, Running] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, int] = {}
        self._passwords: dict[str, str] = {}
        self._say = _one_at_a_time(say)
        if mends:
            self._go_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def environment(self) -> Mapping[str, str]:
        """The addresses of all engines under their variable names, started or given."""
        return self._run().environment

    def pid(self, engine: str) -> int:
        """Return the pid of an engine that this stack started."""
        return self._started(engine).pid

    def kill(self, engine: str) -> None:
        """End an engine as a power cut would: SIGKILL, to it and its children."""
        processes.kill_family(self._started(engine))
        self._reap()

    def freeze(self, engine: str) -> None:
        """Freeze an engine: it does not answer and loses nothing until `thaw`."""
        processes.send_family(self._started(engine), signal.SIGSTOP)

    def thaw(self, engine: str) -> None:
        processes.send_family(self._started(engine), signal.SIGCONT)

    def fallen(self) -> list[str]:
        """Return the engines that this stack started and that have ended by themselves."""
        return [
            name for name, engine in self._running.items() if engine.process and not engine.alive
        ]

    def restart(self, engine: str) -> None:
        """Start an engine again on the same port and data; one that still runs is stopped first."""
        self._started(engine)
        _end([self._running[engine]])
        self._reap()
        self._all_at_once([partial(self._bring_up, registry.choose([engine])[0])])

    def stop(self) -> None:
        """Stop everything that was started; a second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        _end(self._running.values())
        self._reap()
        record.remove_run(self.root)
        self._lock.release()

    def _start(self, chosen: list[Engine], given: Mapping[str, str]) -> None:
        remote = {engine.name: registry.addresses_given(engine, given) for engine in chosen}
        local = [engine for engine in chosen if not remote[engine.name]]
        distant = [engine for engine in chosen if remote[engine.name]]
        self._passwords = record.passwords(
            self.root, [name for engine in local for name in engine.passwords]
        )
        needed = [port for engine in local for port in engine.ports]
        before = record.port_base(self.root)
        with ports.reserved(registry.PORTS, needed, before=before) as base:
            record.write_port_base(self.root, base)
            self._ports = ports.layout(base, registry.PORTS)
            self._all_at_once(
                [partial(self._use, engine, remote[engine.name]) for engine in distant]
                + [partial(self._bring_up, engine) for engine in local]
            )

    def _go_on(self) -> None:
        run, base = record.read_run(self.root), record.port_base(self.root)
        if run is None or base is None:
            raise StackError(f"No stack runs in {self.root}: start one with `farmiq stack up`.")
        self._running = {running.name: running for running in run.engines}
        self._ports = ports.layout(base, registry.PORTS)
        names = [running.name for running in run.engines if running.process is not None]
        self._passwords = record.passwords(
            self.root, [name for engine in registry.choose(names) for name in engine.passwords]
        )

    def _all_at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run all tasks; when one fails the others give up, and its failure is the one raised."""
        self._abandoned.clear()
        with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as workers:
            try:
                for future in as_completed([workers.submit(task) for task in tasks]):
                    future.result()
            except BaseException:
                self._abandoned.set()
                raise

    def _bring_up(self, engine: Engine) -> None:
        began = time.monotonic()
        place = self._place(engine)
        engine.prepare(place)
        self._spawn(engine, place)
        urls = engine.urls(place)

        def ready() -> str:
            engine.finish(place)
            return engine.probe(urls)

        answer = await_answer(
            ready,
            within_s=engine.patience_s,
            give_up=lambda: self._reason_to_give_up(engine, place),
        )
        version = answer or engine.available(self._downloads)
        self._remember(msgspec.structs.replace(self._running[engine.name], version=version))
        took_s = time.monotonic() - began
        where = f"{HOST}:{place.ports[engine.ports[0]]}"
        self._say(f"{engine.name:<14}  {version} ready on {where} in {took_s:.1f} s")

    def _spawn(self, engine: Engine, place: Place) -> None:
        running = Running(
            name=engine.name,
            version="",
            host=HOST,
            port=place.ports[engine.ports[0]],
            urls=engine.urls(place),
        )
        for launch in engine.launches(place):
            child = processes.spawn(launch, detach=self._detach)
            self._children.append(child)
            started = processes.look(child.pid)
            earlier = (running.process,) if running.process else ()
            running = msgspec.structs.replace(
                running,
                helpers=(*running.helpers, *earlier),
                process=started,
                stop_signal=int(launch.stop_signal),
                litter=tuple(str(path) for path in launch.litter),
            )
            self._remember(running)

    def _use(self, engine: Engine, urls: Mapping[str, str]) -> None:
        parts = address(urls[engine.required[0]])
        shown = ", ".join(f"{name}={hide(url)}" for name, url in urls.items())

        def reason() -> str | None:
            return "the start was abandoned" if self._abandoned.is_set() else None

        try:
            answer = await_answer(
                lambda: engine.probe(urls), within_s=GIVEN_PATIENCE_S, give_up=reason
            )
        except StackError as problem:
            raise StackError(
                f"{engine.name} was given as {shown}, but {problem}. Start that server or correct "
                "the address; without the variable a local one is started."
            ) from problem
        version = answer or "given by address"
        host, port = parts.hostname or "", parts.port or 0
        self._remember(
            Running(name=engine.name, version=version, host=host, port=port, urls=dict(urls))
        )
        self._say(f"{engine.name:<14}  {version} answers on {host}:{port}, given by address")

    def _reason_to_give_up(self, engine: Engine, place: Place) -> str | None:
        if self._abandoned.is_set():
            return f"{engine.name} was abandoned because another engine failed."
        if not self._running[engine.name].alive:
            tail = files.last_lines(place.log)
            return f"{engine.name} ended while starting. Its log, {place.log}, ends with:\n{tail}"
        return None

    def _place(self, engine: Engine) -> Place:
        folder = self.root / engine.name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
        (self.root / "logs").mkdir(mode=0o700, exist_ok=True)
        return Place(
            stack=self.root,
            folder=folder,
            downloads=self._downloads,
            ports=self._ports,
            passwords=self._passwords,
            say=self._say,
            shared_login=self._shared_login,
        )

    def _started(self, engine: str) -> processes.Process:
        running = self._running.get(engine)
        if running is None or running.process is None:
            raise StackError(
                f"{engine} was not started by this stack in {self.root}: it has no process here."
            )
        return running.process

    def _remember(self, running: Running) -> None:
        with self._mutex:
            self._running[running.name] = running
            record.write_run(self.root, self._run())

    def _run(self) -> Run:
        order = [name for name in registry.ENGINES if name in self._running]
        return Run(owner=processes.myself(), engines=tuple(self._running[name] for name in order))

    def _let_go(self) -> None:
        record.write_run(self.root, msgspec.structs.replace(self._run(), owner=None))
        for child in self._children:
            child.returncode = 0  # not ours to wait for any more
        self._lock.release()

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def start(
    root: Path,
    *,
    engines: Collection[str] = registry.ENGINES,
    given: Mapping[str, str] | None = None,
    say: Say = lambda _: None,
    detach: bool = False,
    downloads: Path | None = None,
    shared_login: bool = True,
) -> Stack:
    """Start the engines in `root`, all at once, and return when each one answers.

    An engine whose address is in `given` is probed instead. The engines die with this program
    unless `detach` leaves them running until `stop(root)`. Data, passwords and ports are those
    of the last start in `root`. `downloads` is where RabbitMQ is unpacked if it must be. With
    `shared_login` one user of the edge's broker may publish for every device: for tests.
    """
    if not sys.platform.startswith("linux"):
        raise StackError(
            "Local engines need Linux: use deploy/compose.yaml, or FARMIQ_*_URL variables."
        )
    chosen = registry.choose(engines)
    root = root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o711)
    stack = Stack(
        root, downloads or downloads_of(root), say, detach=detach, shared_login=shared_login
    )
    if not record.has_passwords(root):
        # The folder was deleted by hand: data left outside it has passwords nobody knows.
        shutil.rmtree(outside(root), ignore_errors=True)
    try:
        stack._start(chosen, given or {})  # noqa: SLF001
    except BaseException:
        stack.stop()
        raise
    if detach:
        stack._let_go()  # noqa: SLF001
    return stack


def mend(root: Path, *, say: Say = lambda _: None, shared_login: bool = True) -> list[str]:
    """Restart the engines that do not answer, of a stack left running in `root`.

    The others go on untouched. Returns the names of those restarted.
    """
    root = root.resolve()
    unwell = [state for state in states(root) if not state.healthy]
    stack = Stack(root, downloads_of(root), say, detach=True, shared_login=shared_login, mends=True)
    try:
        for state in unwell:
            stack.restart(state.name)
    finally:
        stack._let_go()  # noqa: SLF001
    return [state.name for state in unwell]


def attach(root: Path) -> Mapping[str, str]:
    """Return the addresses of the stack that runs in `root`."""
    run = record.read_run(root.resolve())
    if run is None or not run.alive:
        raise StackError(f"No stack runs in {root}: start one with `{command(root, 'up')}`.")
    return run.environment


def find(name: str | None = None) -> Path | None:
    """Return the folder of the running stack of this name; without one the demo's, or the only one.

    The state directory is looked into first. Unless FARMIQ_STATE_DIR names that, every stack
    counts that commands of this user have started; but who names servers and no stack gets nothing
    of one in another folder. Raises StackError if several are meant.
    """
    here = config.state_dir() / "stacks" / (name or "demo")
    run = record.read_run(here)
    if run is not None and run.alive:
        return here
    apart = config.state_dir_given() or (name is None and config.given_urls())
    running = [] if apart else record.announced()
    named = [root for root in running if root.name == (name or "demo")]
    matching = named or ([] if name else running)
    if len(matching) > 1:
        choices = "".join(f"\n  {root.name:<12}  {root.parent.parent}" for root in matching)
        raise StackError(
            "Several stacks are running, and none of them belongs to this folder. Choose by name "
            "(--stack, or --name of `farmiq stack`), or set FARMIQ_STATE_DIR to the folder of one:"
            + choices
        )
    return matching[0] if matching else None


def command(root: Path, verb: str) -> str:
    """Return what a person types in this folder to start, look at or stop the stack in `root`."""
    folder = root.parent.parent
    elsewhere = "" if folder == config.state_dir() else f"FARMIQ_STATE_DIR={folder} "
    return f"{elsewhere}farmiq stack {verb} --name {root.name}"


def states(root: Path) -> list[EngineState]:
    """Probe every engine of the stack in `root` now; an empty list if none was started."""
    run = record.read_run(root.resolve())
    if run is None or not run.engines:
        return []
    with ThreadPoolExecutor(max_workers=len(run.engines)) as workers:
        return list(workers.map(lambda running: _state(root.resolve(), running), run.engines))


def stop(root: Path) -> list[str]:
    """Stop what runs in `root` by its recorded pids; return the names of what was stopped."""
    run = record.read_run(root.resolve())
    if run is None:
        return []
    stopped = _end(run.engines)
    record.remove_run(root.resolve())
    return stopped


def remove(root: Path) -> None:
    """Delete a stopped stack with all its data and passwords."""
    root = root.resolve()
    run = record.read_run(root)
    if run is not None and run.alive:
        raise StackError(
            f"The stack in {root} is running: stop it with `{command(root, 'down')}` first."
        )
    if root.exists() and not (root / "lock").exists():
        raise StackError(f"{root} is not the folder of a stack: nothing was deleted.")
    shutil.rmtree(outside(root), ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


def downloads_of(root: Path) -> Path:
    """Return the folder that all stacks of a state directory share for downloaded engines."""
    siblings = root.resolve().parent
    return (siblings.parent if siblings.name == "stacks" else siblings) / "engines"


def _take_over(root: Path, *, clear: bool) -> files.Lock:
    """Lock the folder and `clear` what a dead owner left in it; a stack in use is refused."""
    lock = files.Lock(root / "lock")
    if lock.take():
        try:
            if clear:
                _clear_leftovers(root)
        except StackError:
            lock.release()
            raise
        return lock
    lock.release()
    run = record.read_run(root)
    owner = f"pid {run.owner.pid}" if run and run.owner else "another program"
    raise StackError(
        f"The stack in {root} is in use by {owner}: end that program first (Ctrl-C where it runs)."
    )


def _clear_leftovers(root: Path) -> None:
    run = record.read_run(root)
    if run is None:
        return
    if run.owner is None and run.alive:
        pids = ", ".join(
            str(engine.process.pid) for engine in run.engines if engine.process and engine.alive
        )
        raise StackError(
            f"A stack is already running in {root} (pid {pids}): use it, "
            f"or stop it with `{command(root, 'down')}`."
        )
    _end(run.engines)
    record.remove_run(root)


def _end(engines: Iterable[Running]) -> list[str]:
    """Ask all engines to end at once, then end what did not, then their helpers."""
    engines = list(engines)
    signalled = [
        engine
        for engine in engines
        if engine.process and processes.send(engine.process, signal.Signals(engine.stop_signal))
    ]
    mains = [engine.process for engine in signalled if engine.process]
    for process in processes.await_end(mains, within_s=STOP_PATIENCE_S):
        processes.kill_family(process)
    helpers = [helper for engine in engines for helper in engine.helpers]
    for helper in helpers:
        processes.send(helper, signal.SIGTERM)
    for helper in processes.await_end(helpers, within_s=3):
        processes.kill_family(helper)
    for path in (path for engine in engines for path in engine.litter):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            Path(path).unlink()
    return [engine.name for engine in signalled]


def _state(root: Path, running: Running) -> EngineState:
    engine = registry.choose([running.name])[0]
    problem = ""
    try:
        engine.probe(running.urls)
    except NotReadyError as failure:
        problem = str(failure)
    process = running.process
    detail, remedy = "given by address" if process is None else "answers", ""
    if process is not None and running.name == s3.NAME and s3.has_unflushed_names(root / s3.NAME):
        detail, remedy = "answers, and may lose pictures in a power cut", _renew_store(root)
    return EngineState(
        name=running.name,
        version=running.version,
        host=running.host,
        port=running.port,
        pid=process.pid if process and running.alive else None,
        rss_bytes=processes.memory_bytes(process) if process else 0,
        healthy=not problem,
        detail=problem or detail,
        remedy=_remedy(root, running) if problem else remedy,
    )


def _renew_store(root: Path) -> str:
    down, up = command(root, "down"), command(root, "up")
    return (
        f"{s3.UNFLUSHED}. When all pictures are in the cloud (`farmiq media status`), make a new "
        f"one: `{down} --delete-data`, then `{up}`. That deletes all other data of the stack too"
    )


def _remedy(root: Path, running: Running) -> str:
    if running.process is None:
        return f"start the server that {', '.join(running.urls)} names, or correct the address"
    if not running.alive:
        return f"it is not running: `{command(root, 'up')}` starts it again"
    log = root / "logs" / f"{running.name}.log"
    return f"it runs but does not answer: read {log}, then `{command(root, 'up')}` restarts it"


def _one_at_a_time(say: Say) -> Say:
    leader = threading.Lock()

    def speak(line: str) -> None:
        with leader, contextlib.suppress(BrokenPipeError):
            say(line)

    return speak
