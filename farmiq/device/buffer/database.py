"""The buffer's file: one SQLite database, WAL and synchronous FULL, and one thread that uses it.

What `do` returned is on the disk. Opening reads a handful of rows, however many there are; whether
all pages are whole is checked in the background. A damaged file is set aside and salvaged.
"""

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from farmiq import crash
from farmiq.device.buffer import salvage, store
from farmiq.device.buffer.store import Tx
from farmiq.plumbing import ids, log

T = TypeVar("T")

FILE = "buffer.sqlite"
SCHEMA = Path(__file__).with_name("schema.sql")
VERSION = 1
# Pages that SQLite keeps in memory, in KiB: constant, however much is buffered.
CACHE_KIB = 2048
BUSY_S = 10.0

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class DiskFullError(Exception):
    """The disk accepted nothing more; the transaction did not happen."""


class TakenError(Exception):
    """Another agent uses this buffer; two would send everything twice."""


class DamagedError(Exception):
    """The file is not what was written; it has to be set aside and salvaged."""


class Clock:
    """The wall clock, which may be wrong, and one that only goes forward; tests bring their own."""

    def now(self) -> datetime:
        """For the `ts` of events and for people; no decision depends on it (C-44)."""
        return datetime.now(UTC)

    def mono(self) -> float:
        """Seconds that never go back, of this run of the agent."""
        return time.monotonic()


class Buffer:
    """Open it with `opened`. All work runs in its one thread, a transaction at a time."""

    def __init__(self, folder: Path, *, clock: Clock, damage: str | None = None) -> None:
        """`damage`: what an earlier run found wrong with the file; it is salvaged first."""
        self.folder, self.clock, self._damage = folder, clock, damage
        self.boot_id = ids.new().hex
        self.salvaged: salvage.Salvaged | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="buffer")
        self._connection: sqlite3.Connection | None = None
        self._ran_before_s = 0.0
        self._started_at = clock.mono()
        self.pictures = PictureFiles(folder / "pictures")

    def now_s(self) -> float:
        """Seconds that this buffer has been in use, over all runs; no wall clock moves it."""
        return self._ran_before_s + self.clock.mono() - self._started_at

    def now(self) -> datetime:
        return self.clock.now()

    async def open(self) -> None:
        """Raises DiskFullError or OSError if the disk does not let us."""
        await self._in_thread(self._open)

    async def do(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one transaction; on return it is committed and on the disk.

        Raises DiskFullError, and DamagedError.
        """
        return await self._in_thread(lambda: self._transact(work))

    async def save_time(self) -> None:
        """Save how long we have been running, for the next run's clock."""
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
        # Finished even if nobody waits any more: a commit is not left half done.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    # --- in the thread

    def _open(self) -> None:
        path = self.folder / FILE
        salvage.finish(path)
        # The first picture of an open buffer makes the folder of pictures.
        problem = salvage.missing(path, used=self.pictures.exist()) or self._damage
        try:
            if problem is not None:
                self.salvaged = salvage.salvage(path, connect, reason=problem)
            self._connection = self._connect_or_salvage(path)
        except sqlite3.DatabaseError as error:
            raise _translated(error) from error
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
        self._started_at = self.clock.mono()
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
            result = work(tx)
            # A transaction that only read writes nothing: a commit costs an fsync, and cards wear.
            if tx.total_changes != before:
                store.set_meta(tx, "ran_s", self.now_s())
            tx.execute("commit")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                tx.execute("rollback")
            if isinstance(error, sqlite3.DatabaseError):
                raise _translated(error) from error
            raise
        return result

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class PictureFiles:
    """The bytes of pictures: a file each, named by image_id, on the disk before its row is."""

    SUFFIX = ".picture"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, image_id: str, data: bytes) -> None:
        """Raises OSError if the disk does not accept it; then nothing is left of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self.path(image_id)
        partial = path.with_suffix(".partial")
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            crash.here("agent.picture_written")
            partial.rename(path)
            salvage.sync_folder(self._folder)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        crash.here("agent.picture_renamed")

    def read(self, image_id: str) -> bytes | None:
        """None if the file is gone."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(image_id).read_bytes()
        return None

    def delete(self, image_id: str) -> None:
        self.path(image_id).unlink(missing_ok=True)

    def ids(self) -> Iterator[str]:
        """The image_ids of all files, one after the other, however many there are."""
        if not self._folder.exists():
            return
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(self.SUFFIX):
                    yield entry.name.removesuffix(self.SUFFIX)

    def exist(self) -> bool:
        """Whether a picture was ever stored here."""
        return self._folder.exists()

    def delete_partial(self) -> None:
        """Delete what a power cut left half written; it was never acknowledged."""
        for path in self._folder.glob("*.partial"):
            path.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        disk = os.statvfs(self._folder if self._folder.exists() else self._folder.parent)
        return disk.f_bavail * disk.f_frsize

    def path(self, image_id: str) -> Path:
        return self._folder / f"{image_id}{self.SUFFIX}"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The folder is ours alone; the lock ends with the process. Raises TakenError."""
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


def connect_read_only(path: Path) -> sqlite3.Connection:
    """For commands beside a running agent."""
    if not path.exists():
        raise FileNotFoundError(f"no buffer at {path}: AGENT_BUFFER_DIR names its folder")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=BUSY_S)
    connection.execute(f"pragma cache_size = -{CACHE_KIB}")
    return connection


def integrity_problem(path: Path) -> str | None:
    """SQLite's verdict on the file, page by page; None if it is whole."""
    try:
        with contextlib.closing(connect_read_only(path)) as connection:
            rows = connection.execute("pragma integrity_check(3)").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error) if _is(error, _DAMAGED) else None
    text = "; ".join(str(row[0]) for row in rows)
    return None if text == "ok" else text[:300]


def _prepare(connection: sqlite3.Connection) -> None:
    for pragma in (
        f"page_size = {salvage.PAGE_BYTES}",
        f"cache_size = -{CACHE_KIB}",
        "journal_mode = wal",
        "synchronous = full",
        "temp_store = file",
        "journal_size_limit = 4194304",
    ):
        connection.execute(f"pragma {pragma}")
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


def _translated(error: sqlite3.Error) -> Exception:
    if _is(error, _FULL):
        return DiskFullError(f"the disk of the buffer takes nothing more: {error}")
    return DamagedError(str(error)) if _is(error, _DAMAGED) else error


async def opened(folder: Path, *, clock: Clock, damage: str | None = None) -> Buffer:
    buffer = Buffer(folder, clock=clock, damage=damage)
    await buffer.open()
    if (report := buffer.salvaged) is not None:
        log.get("iot-weighvision-agent").error(
            "buffer.salvaged",
            reason=report.reason,
            count=report.rows,
            name=str(report.damaged_file),
            seq=report.last_seq or 0,
        )
    return buffer
