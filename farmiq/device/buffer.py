"""The buffer: one SQLite file, WAL and synchronous FULL, and one thread that speaks to it.

What `do` returned is on the disk. Opening reads a handful of rows, however many are kept: SQLite
recovers its own journal, and a look at the first page and the schema tells a file that is none.
Whether all pages are whole is looked at in the background (`check`). A file that is damaged is set
aside and salvaged (salvage.py).
"""

import asyncio
import contextlib
import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from farmiq.device import salvage, store
from farmiq.device.clock import Clock
from farmiq.device.pictures import Pictures
from farmiq.device.store import Tx
from farmiq.plumbing import ids, log

T = TypeVar("T")

FILE = "buffer.sqlite"
SCHEMA = Path(__file__).with_name("schema.sql")
VERSION = 1
# Pages that SQLite keeps in memory, in KiB: constant, whatever is buffered.
CACHE_KIB = 2048
BUSY_S = 10.0
PAGE_BYTES = salvage.PAGE_BYTES

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DiskFullError(Exception):
    """The disk took nothing more; what was asked for did not happen."""


class TakenError(Exception):
    """Two agents on one buffer would send everything twice."""


class DamagedError(Exception):
    """The file is not what was written; it has to be set aside and salvaged."""


class Buffer:
    """Open it with `opened`. All work runs in its one thread, a transaction at a time."""

    def __init__(self, folder: Path, *, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.boot_id = ids.new().hex
        self.salvaged: salvage.Salvaged | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="buffer")
        self._connection: sqlite3.Connection | None = None
        self._ran_before_s = 0.0
        self._began = clock.mono()
        self.pictures = Pictures(folder / "pictures")

    def now_s(self) -> float:
        """Seconds that this buffer has been in use, over all runs; no wall clock moves it."""
        return self._ran_before_s + self.clock.mono() - self._began

    def now(self) -> datetime:
        return self.clock.now()

    async def open(self) -> None:
        """Raises DiskFullError or OSError if the disk does not let us."""
        await self._in_thread(self._open)

    async def do(self, work: Callable[[Tx], T]) -> T:
        """`work` in one transaction; when this returns it is committed and on the disk.

        Raises DiskFullError, and DamagedError.
        """
        return await self._in_thread(lambda: self._transact(work))

    async def remember_time(self) -> None:
        """How long we have been running, for the next run's clock."""
        await self.do(lambda tx: store.set_meta(tx, "ran_s", self.now_s()))

    async def close(self) -> None:
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def check(self) -> None:
        """Read every page, beside the work. Raises DamagedError."""
        problem = await asyncio.to_thread(integrity_problem, self.folder / FILE)
        if problem is not None:
            raise DamagedError(problem)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # What was begun is finished also if nobody waits any more: a commit is not left half done.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    # --- in the thread

    def _open(self) -> None:
        path = self.folder / FILE
        salvage.finish(path)
        # The folder of pictures is made with the first of them, by a buffer that was open.
        problem = salvage.missing(path, used=self.pictures.begun())
        try:
            if problem is not None:
                self.salvaged = salvage.salvage(path, connect, reason=problem)
            self._connection = self._connect_or_salvage(path)
        except sqlite3.DatabaseError as error:
            raise _told(error) from error
        self._transact(self._begin)

    def _connect_or_salvage(self, path: Path) -> sqlite3.Connection:
        try:
            return connect(path)
        except sqlite3.DatabaseError as error:
            if not _is(error, _DAMAGED):
                raise
            self.salvaged = salvage.salvage(path, connect, reason=str(error))
        return connect(path)

    def _begin(self, tx: Tx) -> None:
        self._ran_before_s = float(store.meta(tx, "ran_s") or 0.0)
        self._began = self.clock.mono()
        store.set_meta(tx, "boot_id", self.boot_id)
        # At most a window of them: the others were never sent or are settled.
        store.back_to_waiting(tx)

    def _transact(self, work: Callable[[Tx], T]) -> T:
        tx = self._connection
        if tx is None:
            raise RuntimeError("the buffer is not open")
        try:
            tx.execute("begin immediate")
            before = tx.total_changes
            done = work(tx)
            # What only looked writes nothing: a commit costs an fsync, and cards wear out.
            if tx.total_changes != before:
                store.set_meta(tx, "ran_s", self.now_s())
            tx.execute("commit")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                tx.execute("rollback")
            if isinstance(error, sqlite3.DatabaseError):
                raise _told(error) from error
            raise
        return done

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder is ours alone; the lock ends with the process, however it ends.

    Raises TakenError if another agent has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "agent.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TakenError(f"another agent runs on the buffer in {folder}; stop it") from None
        yield


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the buffer in this file, made if it is not there.

    Raises sqlite3.DatabaseError if it is no buffer of ours.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def salvaged(path: Path, *, reason: str) -> salvage.Salvaged:
    """Raises DiskFullError: then the damaged file is where it was, and it can be tried again."""
    try:
        return salvage.salvage(path, connect, reason=reason)
    except sqlite3.DatabaseError as error:
        raise _told(error) from error


def look(path: Path) -> sqlite3.Connection:
    """A connection that only reads, for commands beside a running agent."""
    if not path.exists():
        raise FileNotFoundError(f"no buffer at {path}: AGENT_BUFFER_DIR names its folder")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=BUSY_S)
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    return connection


def integrity_problem(path: Path) -> str | None:
    """What SQLite says of the file, page by page; None if all is well."""
    try:
        with contextlib.closing(look(path)) as connection:
            found = connection.execute("pragma integrity_check(3)").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error) if _is(error, _DAMAGED) else None
    said = "; ".join(str(row[0]) for row in found)
    return None if said == "ok" else said[:300]


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"pragma page_size = {PAGE_BYTES}")
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("pragma temp_store = file")
    connection.execute("pragma journal_size_limit = 4194304")
    (version,) = connection.execute("pragma user_version").fetchone()
    if version == 0:
        connection.executescript(
            f"begin immediate; {SCHEMA.read_text()}; pragma user_version = {VERSION}; commit;"
        )
    elif version != VERSION:
        raise RuntimeError(
            f"the buffer was written by another version of the agent ({version}, ours {VERSION}); "
            "install that one, or move the file away after `farmiq agent buffer export`"
        )
    for table in ("meta", "tally"):
        connection.execute(f"select * from {table}").fetchall()  # noqa: S608
    connection.execute("select seq from events order by seq desc limit 1").fetchone()


def _is(error: sqlite3.Error, codes: tuple[int, ...]) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in codes


def _told(error: sqlite3.Error) -> Exception:
    if _is(error, _FULL):
        return DiskFullError(f"the disk of the buffer takes nothing more: {error}")
    if _is(error, _DAMAGED):
        return DamagedError(str(error))
    return error


async def opened(folder: Path, *, clock: Clock) -> Buffer:
    buffer = Buffer(folder, clock=clock)
    await buffer.open()
    if buffer.salvaged is not None:
        found = buffer.salvaged
        log.get("iot-weighvision-agent").error(
            "buffer.salvaged",
            reason=found.reason,
            count=found.rows,
            name=str(found.aside),
            seq=found.last_seq or 0,
        )
    return buffer
