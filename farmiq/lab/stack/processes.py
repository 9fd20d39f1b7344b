"""Processes by pid: started tied to their owner, recognised again later, stopped.

A pid alone is not enough, since the kernel hands it out again; a `Process` is a pid and the
moment it started. Nothing here looks for a process by name.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

PR_SET_PDEATHSIG = 1
ORPHANED = 71
LOG_LIMIT_BYTES = 8 * 2**20

# The kernel sends the death signal when the starting *thread* ends, so every child is started
# by this one thread, which lives as long as the program.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="farmiq-spawner")
_libc = ctypes.CDLL(None, use_errno=True)


class Process(msgspec.Struct, frozen=True):
    """One process for good: a later process with the same pid is not equal to it."""

    pid: int
    started: str


class Stat(NamedTuple):
    """The fields of /proc/<pid>/stat that matter here."""

    state: str
    parent: int
    threads: int
    started_ticks: int

    @property
    def ended(self) -> bool:
        """A zombie whose other threads still run holds its ports and files yet."""
        return self.state in "ZX" and self.threads <= 1


@dataclass(frozen=True, kw_only=True)
class Account:
    """An unprivileged user that a child runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything needed to start one process.

    `stop_signal` asks it to end in good order; `litter` are files outside its folder that it
    leaves behind, removed after it.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM
    account: Account | None = None
    litter: tuple[Path, ...] = ()


def parse_stat(text: str) -> Stat:
    """Read /proc/<pid>/stat; the command in it may hold spaces and parentheses."""
    fields = text.rpartition(")")[2].split()
    return Stat(
        state=fields[0],
        parent=int(fields[1]),
        threads=int(fields[17]),
        started_ticks=int(fields[19]),
    )


def recognise(pid: int, text: str, boot: str) -> Process | None:
    """Name the process that a stat line describes; None if it has ended."""
    stat = parse_stat(text)
    if stat.ended:
        return None
    return Process(pid=pid, started=f"{boot}:{stat.started_ticks}")


def boot_id() -> str:
    """Return the name of this run of the machine: another one after each start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def look(pid: int) -> Process | None:
    """Return the process that has this pid now."""
    try:
        return recognise(pid, Path(f"/proc/{pid}/stat").read_text(), boot_id())
    except (FileNotFoundError, ProcessLookupError):
        return None


def myself() -> Process:
    process = look(os.getpid())
    assert process is not None, "a running program finds itself in /proc"  # noqa: S101
    return process


def alive(process: Process) -> bool:
    """Say whether exactly this process still runs, not merely some process with its pid."""
    return look(process.pid) == process


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process; say whether it was there to receive it."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def await_end(processes: Iterable[Process], *, within_s: float) -> list[Process]:
    """Wait until all have ended; return those that have not when the time is over."""
    deadline = time.monotonic() + within_s
    left = [process for process in processes if alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [process for process in left if alive(process)]
    return left


def descendants(process: Process) -> list[Process]:
    """Return the children of a process, and theirs; none if it is gone."""
    parents = {child: stat.parent for child, stat in _table().items()}
    family = {process.pid} if alive(process) else set()
    size = 0
    while size != len(family):
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    children = (look(pid) for pid in sorted(family - {process.pid}))
    return [child for child in children if child is not None]


def send_family(process: Process, number: signal.Signals) -> list[Process]:
    """Signal a process and all its descendants; return those that were there to receive it."""
    return [member for member in (process, *descendants(process)) if send(member, number)]


def kill_family(process: Process) -> bool:
    """SIGKILL a process and all its descendants; say whether it was running."""
    killed = send_family(process, signal.SIGKILL)
    await_end(killed, within_s=5)
    return process in killed


def memory_bytes(process: Process) -> int:
    """Return the memory of a process and its descendants, each shared page counted once."""
    if not alive(process):
        return 0
    return sum(_share_kb(member.pid) for member in (process, *descendants(process))) * 1024


def spawn(launch: Launch, *, detach: bool) -> subprocess.Popen[bytes]:
    """Start a child that dies with this program, or with `detach` one that outlives it."""
    return _spawner.submit(_spawn, launch, detach=detach).result()


def run(launch: Launch, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a short command to its end as the launch says; its output comes back, not to the log.

    It is killed if the calling thread ends before it.
    """
    account = launch.account
    return subprocess.run(
        launch.argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env=dict(launch.environment),
        cwd=launch.folder,
        umask=0o077,
        preexec_fn=_tie(signal.SIGKILL),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def unprivileged_account() -> Account | None:
    """Return the user that a child must become because this program is root; else none."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(name="65534", uid=65534, gid=65534)


def _spawn(launch: Launch, *, detach: bool) -> subprocess.Popen[bytes]:
    _rotate(launch.log)
    account = launch.account
    with launch.log.open("ab") as log:
        return subprocess.Popen(
            launch.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(launch.environment),
            cwd=launch.folder,
            umask=0o077,
            # Its own session: a Ctrl-C in the terminal reaches the owner alone.
            start_new_session=True,
            preexec_fn=None if detach else _tie(launch.stop_signal),  # noqa: PLW1509
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )


def _tie(number: signal.Signals) -> Callable[[], None]:
    owner = os.getpid()

    def tie() -> None:
        refused = _libc.prctl(PR_SET_PDEATHSIG, int(number)) != 0
        # The owner may have died between fork and prctl: then no signal will ever come.
        if refused or os.getppid() != owner:
            os._exit(ORPHANED)

    return tie


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def _table() -> dict[int, Stat]:
    table = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            try:
                table[int(entry)] = parse_stat(Path(f"/proc/{entry}/stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return table


def _share_kb(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
