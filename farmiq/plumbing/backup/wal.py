"""Every change of the database goes to the repository, within a minute.

PostgreSQL --streams--> pg_receivewal --files--> spool --packed, sealed--> repository wal/

The slot of the server keeps what was not received yet, and the spool what was not stored yet: a
repository that is away for hours makes them grow and loses nothing. Every few seconds the server
is asked to end its file, so that a quiet barn is as safe as a busy one.
"""

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from farmiq.plumbing import log as logging
from farmiq.plumbing.backup import database, marks, streams
from farmiq.plumbing.backup.database import BackupError, Covered, Programs
from farmiq.plumbing.backup.repository import Repository, RepositoryError

SLOT = "farmiq_backup"
LOOK_S = 0.5
_SEGMENT = re.compile(r"[0-9A-F]{24}|[0-9A-F]{8}\.history")
_FIRST_WAIT_S, _LAST_WAIT_S = 1.0, 60.0

log = logging.get(__name__)


class WalArchive:
    """Takes what the server writes into the repository."""

    def __init__(
        self, repository: Repository, url: str, *, spool: Path, programs: Programs
    ) -> None:
        self._repository = repository
        self._url = url
        self._spool = spool
        self._programs = programs
        self._ended: list[Covered] = []
        # Where the server stood after it ended its last file, and which file that was.
        self._position: str | None = None
        self._segment = ""
        self._covered: Covered | None = None
        self._noted_at = 0.0

    def prepare(self) -> None:
        """Make the slot: from now on the server keeps every change until it is received."""
        self._spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        done = subprocess.run(
            [*self._command(), "--create-slot", "--if-not-exists"],
            env=database.environment(self._url),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BackupError(f"pg_receivewal cannot make its slot: {done.stderr.strip()}")

    def run(self, stop: threading.Event, *, every_s: float) -> None:
        """Until `stop`. An error of server or repository is logged and tried again."""
        wait_s = _FIRST_WAIT_S
        with self._receiving(stop):
            waited_s = every_s
            while not stop.wait(LOOK_S):
                waited_s += LOOK_S
                try:
                    if waited_s >= every_s:
                        self.end_segment()
                        waited_s = 0.0
                    self.store_received()
                    self._note()
                    wait_s = _FIRST_WAIT_S
                except (psycopg.Error, RepositoryError) as error:
                    log.warning("backup.wal_waits", error=str(error), wait_s=wait_s)
                    stop.wait(wait_s)
                    wait_s = min(2 * wait_s, _LAST_WAIT_S)

    def end_segment(self) -> None:
        """Ask the server to end its file if anything was written, and note up to when it is."""
        with psycopg.connect(self._url, connect_timeout=5, autocommit=True) as connection:
            row = connection.execute(
                "select clock_timestamp(), pg_current_wal_insert_lsn()::text"
            ).fetchone()
            assert row is not None  # noqa: S101 - a select without a table has one row
            at, position = row
            if position == self._position:
                self._note_quiet(at.astimezone(UTC))
                return
            switched = connection.execute(
                "select pg_walfile_name(l), pg_current_wal_insert_lsn()::text "
                "from pg_switch_wal() l"
            ).fetchone()
            assert switched is not None  # noqa: S101
        self._segment, self._position = switched
        self._ended.append(Covered(at=at.astimezone(UTC), segment=self._segment))

    def store_received(self) -> int:
        """Store finished segments and then forget them here; return how many."""
        names = sorted(path.name for path in self._spool.iterdir() if _SEGMENT.fullmatch(path.name))
        for name in names:
            file = self._spool / name
            self._repository.write(f"{database.WAL}{name}", streams.packed(streams.pieces_in(file)))
            file.unlink()
            self._note_covered(name)
        return len(names)

    def _note_quiet(self, at: datetime) -> None:
        """Nothing was written since the last file ended: once that is stored, all is."""
        if not self._ended:
            self._cover(Covered(at=at, segment=self._segment))

    def _note_covered(self, segment: str) -> None:
        done = [covered for covered in self._ended if covered.segment <= segment]
        if done:
            self._cover(done[-1])
            self._ended = [covered for covered in self._ended if covered not in done]

    def _cover(self, covered: Covered) -> None:
        self._repository.write_document(database.COVERED, covered)
        self._covered = covered

    def _note(self) -> None:
        """Say it at the site too; rarely, since that is a change of the database itself."""
        due = time.monotonic() >= self._noted_at + marks.EVERY_S or not self._noted_at
        if self._covered is not None and due:
            marks.note(self._url, marks.CHANGE, at=self._covered.at)
            self._noted_at = time.monotonic()

    def _command(self) -> list[str]:
        return [
            self._programs.path("pg_receivewal"), f"--directory={self._spool}", f"--slot={SLOT}",
            "--no-password", "--synchronous",
        ]  # fmt: skip

    @contextlib.contextmanager
    def _receiving(self, stop: threading.Event) -> Iterator[None]:
        """Run pg_receivewal beside the block; one that ends is started again."""
        current: list[subprocess.Popen[bytes]] = []

        def receive() -> None:
            wait_s = _FIRST_WAIT_S
            while not stop.is_set():
                process = subprocess.Popen(
                    self._command(),
                    env=database.environment(self._url),
                    stderr=subprocess.PIPE,
                    preexec_fn=os.setpgrp,  # noqa: PLW1509 - Ctrl-C ends us, and we end it
                )
                current[:] = [process]
                _, output = process.communicate()
                if not stop.is_set():
                    text = output.decode("utf-8", "replace").strip()
                    log.warning("backup.receiver_ended", error=text, wait_s=wait_s)
                    stop.wait(wait_s)
                    wait_s = min(2 * wait_s, _LAST_WAIT_S)

        thread = threading.Thread(target=receive, name="pg_receivewal")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            for process in current:
                process.terminate()
            thread.join()


def drop_slot(url: str) -> None:
    """For a server that is no longer backed up: it would keep its changes for ever."""
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            "where slot_name = %s",
            (SLOT,),
        )
