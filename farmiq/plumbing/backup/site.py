"""All that is backed up of one site: database, bucket and files; kept current, pruned, tried.

[stream] ──► wal, new objects (seconds) ──► repository
         ──► bucket (hours)
         ──► base, files, prune (days)
"""

import io
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psycopg

from farmiq.plumbing import log as logs
from farmiq.plumbing.backup import database, drill, marks, objects, streams
from farmiq.plumbing.backup.database import Account, BackupError, Base, Programs, Restored, Target
from farmiq.plumbing.backup.repository import Repository, RepositoryError
from farmiq.plumbing.backup.sealed import UnsealError
from farmiq.plumbing.backup.wal import WalArchive
from farmiq.plumbing.storage import objects as storage

FILES = "files/"
NO_BUCKET = (
    "bucket     none is set (FARMIQ_EDGE_S3_URL, FARMIQ_CLOUD_S3_URL): images are not copied"
)
COVERED_WITHIN_S = 120.0
_FIRST_S, _AGAIN_S = 10.0, 300.0
# Services store the time that they believe once an hour, or more often. What is further ahead than
# an hour was written while the clock was ahead.
_BELIEVED_WITHIN, _AHEAD = timedelta(hours=3), timedelta(hours=1)
_HAS_BELIEVED = "select to_regclass('believed_clock') is not null"
_CLOCK = "select fn_now(), (select believed_at from believed_clock)"

# What a stream tries again: engine or repository is away.
_PASSING = (BackupError, RepositoryError, OSError, psycopg.Error, *storage.UNAVAILABLE)
LOG = logs.get("backup")

Say = Callable[[str], None]


def _log(text: str) -> None:
    LOG.info("backup.done", reason=text)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill found. `covered_s`: how long the repository took to have everything."""

    base_id: str
    restored_to: str
    tables: int
    rows: int
    differences: list[str]
    problems: list[str]
    restore_s: float
    covered_s: float
    objects: int

    @property
    def is_clean(self) -> bool:
        return not self.differences and not self.problems


@dataclass(frozen=True, kw_only=True)
class Site:
    repository: Repository
    url: str
    bucket: objects.Source | None
    files: tuple[Path, ...]
    programs: Programs
    spool: Path
    # SQL: (object_key, stored_at) of objects that were stored after a moment.
    new_objects: str | None = None

    def run(self, say: Say) -> Base:
        """One backup of everything; the changes after it need `stream`."""
        base = self._copy_database(say)
        self.copy_bucket(say)
        marks.note(self.url, marks.COPY, at=base.ended_at)
        return base

    def _copy_database(self, say: Say) -> Base:
        """With the files of the settings, which are read first: what is missing is said at once."""
        self._prepare_repository()
        files = self._tar()
        say("database   copying")
        base = database.run(self.repository, self.url, programs=self.programs)
        say(f"database   {base.id}  {base.size_bytes / 1e6:,.1f} MB packed")
        if self.files:
            written = self.repository.write(f"{FILES}{base.id}.tar.gz", streams.packed([files]))
            say(f"files      {written.size_bytes / 1e6:,.1f} MB packed")
        return base

    def copy_bucket(self, say: Say) -> None:
        if self.bucket is None:
            say(NO_BUCKET)
            return
        done = objects.run(self.repository, self.bucket, now=datetime.now(UTC))
        say(
            f"bucket     {done.objects:,} objects, {done.new_objects:,} new "
            f"({done.new_bytes / 1e6:,.1f} MB)"
        )

    def copy_new(self, since: datetime | None, copied: set[str]) -> datetime | None:
        """Copy objects that came since a moment; return when the newest of them was stored.

        Looks a minute back: a transaction may commit after a later one. `copied` are the keys of
        the last time, whose place those of this time take: only at first the lists are read.
        """
        if self.bucket is None or self.new_objects is None:
            return since
        now = datetime.now(UTC)
        after = since - timedelta(minutes=1) if since else now - timedelta(days=1)
        with psycopg.connect(self.url, connect_timeout=5) as connection:
            rows = connection.execute(self.new_objects.encode(), (after,)).fetchall()
        # What came while the clock was ahead is in the next list of all.
        rows = [row for row in rows if row[1] <= now + _AHEAD]
        if rows:
            known = copied or {entry.key for entry in objects.around(self.repository, None)}
            new = [key for key, _ in rows if key not in known]
            objects.add(self.repository, self.bucket, new, now=now)
            copied.clear()
            copied.update(key for key, _ in rows)
        return max((stored_at for _, stored_at in rows), default=since)

    def prune(self, *, days: float, at_least: int) -> dict[str, int]:
        """Delete what no restore of the last `days` needs. Raises BackupError.

        Not after the clock has jumped: everything would look old.
        """
        now = self._believed_now()
        limit = now - timedelta(days=days)
        bases = database.bases(self.repository)
        # The newest base before the limit is where a restore to the limit begins.
        needed_from = max((base.ended_at for base in bases if base.ended_at <= limit), default=None)
        old = [base for base in bases[:-at_least] if needed_from and base.ended_at < needed_from]
        remaining = [base for base in bases if base not in old]
        damaged = database.damaged(self.repository)
        old_damaged = [base_id for base_id in damaged if needed_from and base_id < remaining[0].id]
        for base_id in (*(base.id for base in old), *old_damaged):
            database.delete(self.repository, base_id)
            self.repository.delete(f"{FILES}{base_id}.tar.gz")
        database.delete_unfinished(self.repository, now=now)
        first = min((base.first_wal[8:] for base in remaining), default="")
        if damaged != old_damaged:
            first = ""  # what a damaged base needs is not known, and its key may come back
        segments = [name for name in database.segments(self.repository) if name[8:] < first]
        for name in segments:
            self.repository.delete(f"{database.WAL}{name}")
        unneeded = objects.prune(self.repository, before=limit)
        return {
            "bases": len(old) + len(old_damaged),
            "segments": len(segments),
            "objects": unneeded,
        }

    def _believed_now(self) -> datetime:
        """The database's time, if its services believe it (runtime/clock.py)."""
        now, believed_at = self._clock()
        if believed_at is not None and abs(now - believed_at) > _BELIEVED_WITHIN:
            raise BackupError(
                f"nothing is deleted: by the database's clock it is {now:%Y-%m-%dT%H:%M:%SZ}, and "
                f"its services believed last that it is {believed_at:%Y-%m-%dT%H:%M:%SZ}. They "
                "believe it when it is back, or has gone on steadily for a day"
            )
        return now

    def _clock(self) -> tuple[datetime, datetime | None]:
        """The database's time, and that which was believed last, if it has services of ours."""
        with psycopg.connect(self.url, connect_timeout=5) as connection:
            is_ours = connection.execute(_HAS_BELIEVED).fetchone() == (True,)
            row = connection.execute(_CLOCK if is_ours else "select now(), null").fetchone()
        assert row is not None  # noqa: S101 - a select without a table has one row
        now, believed_at = row
        return now.astimezone(UTC), believed_at and believed_at.astimezone(UTC)

    def verify(self, say: Say) -> list[str]:
        """Read all that a restore of now would read; problems in words."""
        bases = database.bases(self.repository)
        if not bases:
            return ["there is no finished backup"]
        problems = [
            f"base {base_id} is damaged, or its key is not in the key file: no restore begins "
            "with it, and changes stay until it is old enough to be deleted"
            for base_id in database.damaged(self.repository)
        ]
        for base in bases:
            say(f"base       {base.id}")
            problems += database.verify(self.repository, base)
        names = self.repository.names
        changes, files = names(database.WAL), names(FILES)
        say(f"changes    {len(changes):,} segments")
        lists = [*objects.newest_first(self.repository)[:1], *names(objects.RECENT)]
        small = [*names(database.COVERED), *names(objects.NEWEST), *lists]
        problems += [p for name in (*changes, *files, *small) for p in self._damage(name)]
        entries = objects.around(self.repository, None)
        say(f"bucket     {len(entries):,} objects" if self.bucket or entries else NO_BUCKET)
        return problems + objects.verify(self.repository, entries)

    def _damage(self, name: str) -> list[str]:
        try:
            streams.sha256(self.repository.read(name))
        except (RepositoryError, UnsealError) as error:
            # What was pruned meanwhile is not damaged.
            return [str(error)] if self.repository.has(name) else []
        return []

    def stream(
        self, stop: threading.Event, *, wal_s: float, base_hours: float, bucket_hours: float,
        days: float, at_least: int,
    ) -> None:  # fmt: skip
        """Until `stop`: every change at once, the rest by the clock.

        What no later attempt can mend ends all of it: the person who started it sees that, and
        not only that copies grow old.
        """
        if not self._await_repository(stop):
            return
        archive = WalArchive(self.repository, self.url, spool=self.spool, programs=self.programs)
        is_new = archive.prepare()

        with ThreadPoolExecutor(thread_name_prefix="backup") as threads:
            loops = [
                threads.submit(
                    self._copy_by_the_clock,
                    stop,
                    base_hours,
                    bucket_hours,
                    days,
                    at_least,
                    is_broken=True if is_new else None,
                ),
                threads.submit(self._copy_as_it_comes, stop, wal_s),
            ]
            for loop in loops:
                loop.add_done_callback(lambda _: stop.set())
            try:
                archive.run(stop, every_s=wal_s)
            finally:
                stop.set()
        for loop in loops:
            loop.result()

    def _copy_by_the_clock(
        self, stop: threading.Event, base_hours: float, bucket_hours: float, days: float,
        at_least: int, *, is_broken: bool | None,
    ) -> None:  # fmt: skip
        """Until `stop`; `is_broken` says whether changes after the newest base are missing."""
        next_bucket = 0.0
        whole: Base | None = None  # until its images are there too
        while not stop.is_set():
            try:
                if is_broken is None:
                    is_broken = bool(self.lost_changes())
                if is_broken or self._base_is_due(base_hours):
                    whole = self._copy_database(_log)
                    is_broken, next_bucket = False, 0.0
                if time.monotonic() >= next_bucket:
                    self.copy_bucket(_log)
                    next_bucket = time.monotonic() + bucket_hours * 3600
                if whole is not None:
                    marks.note(self.url, marks.COPY, at=whole.ended_at)
                    whole = None
                    self.prune(days=days, at_least=at_least)
                stop.wait(min(60.0, bucket_hours * 3600))
            except _PASSING as error:
                LOG.warning("backup.failed", error=str(error), wait_s=_AGAIN_S)
                stop.wait(_AGAIN_S)

    def _await_repository(self, stop: threading.Event) -> bool:
        """Wait until it is known whose backups the repository has; False if it is to stop."""
        while not stop.is_set():
            try:
                self._prepare_repository()
            except (RepositoryError, psycopg.Error) as error:
                LOG.warning("backup.failed", error=str(error), wait_s=_FIRST_S)
                stop.wait(_FIRST_S)
            else:
                return True
        return False

    def _prepare_repository(self) -> None:
        """Changes of two clusters have the same names: each needs a repository of its own.

        One in which this site was backed up before, and which has nothing, is not mounted.
        """
        bases = database.bases(self.repository)
        if bases and not database.is_of_cluster(bases[-1], self.url):
            raise BackupError(
                "the repository has backups of another database, which those of this one would "
                "damage: name another folder in FARMIQ_BACKUP_URL"
            )
        is_first = bool(bases) or not marks.is_noted(self.url, marks.COPY)
        self.repository.prepare(is_first=is_first)

    def _copy_as_it_comes(self, stop: threading.Event, every_s: float) -> None:
        since: datetime | None = None
        copied: set[str] = set()
        while not stop.wait(every_s):
            try:
                since = self.copy_new(since, copied)
            except _PASSING as error:
                LOG.warning("backup.images_wait", error=str(error), wait_s=every_s)

    def restore(
        self, folder: Path, *, to: datetime | None, account: Account | None, port: int, say: Say
    ) -> Restored:
        """The database as it was at `to`, running on loopback, in a new folder."""
        until = database.covered(self.repository)
        if to is not None and (until is None or to > until.at):
            newest = f"{until.at:%Y-%m-%dT%H:%M:%SZ}" if until else "the newest base"
            raise BackupError(
                f"the repository does not reach that far: it has everything up to {newest}. "
                "Leave --to away for the newest state"
            )
        base = database.choose(database.bases(self.repository), to)
        say(f"database   base {base.id}, {base.size_bytes / 1e6:,.1f} MB packed")
        return self._restored(base, folder, Target(at=to), account=account, port=port)

    def restore_files(self, folder: Path, *, to: datetime | None, say: Say) -> Path | None:
        """The files that were stored with the base before `to`, in a new folder; None: none."""
        base = database.choose(database.bases(self.repository), to)
        name = f"{FILES}{base.id}.tar.gz"
        if not self.repository.has(name):
            return None
        target = folder / "files"
        target.mkdir(mode=0o700)
        database.unpack(self.repository.read(name), target, filtered="tar_filter")
        say(f"files      {target}")
        return target

    def restore_bucket(self, target: objects.Source, *, to: datetime | None, say: Say) -> int:
        """Put back what the bucket held around `to`; return how many objects it lacked."""
        entries = objects.around(self.repository, to)
        count = objects.restore(self.repository, entries, target)
        say(f"bucket     {count:,} of {len(entries):,} objects put back")
        return count

    def drill(
        self, folder: Path, *, account: Account | None, port: int, name: str, say: Say,
        images_s: float,
    ) -> Report:  # fmt: skip
        """Restore into `folder` up to a moment of now and compare every table with that moment.

        An object that the bucket has for longer than `images_s` must be in the repository.
        """
        with drill.restore_point(self.url, name) as (frozen, point):
            live = drill.content(frozen)
        say(f"live       {len(live)} tables, {sum(c.rows for c in live.values()):,} rows")
        covered_s = self._await_now(say)
        base = database.choose(database.bases(self.repository), None)
        began = time.monotonic()
        restored = self._restored(base, folder, Target(name=point), account=account, port=port)
        try:
            with psycopg.connect(restored.url) as connection:
                copy = drill.content(connection)
        finally:
            restored.stop()
        restore_s = time.monotonic() - began
        say(f"restored   in {restore_s:.1f} s")
        stored_before = datetime.now(UTC) - timedelta(seconds=images_s)
        in_bucket = dict(self.bucket.sizes(before=stored_before)) if self.bucket else {}
        entries = objects.around(self.repository, None)
        say(f"bucket     {len(in_bucket):,} objects" if self.bucket else NO_BUCKET)
        return Report(
            base_id=base.id,
            restored_to=point,
            tables=len(copy),
            rows=sum(content.rows for content in copy.values()),
            differences=[str(difference) for difference in drill.compare(live, copy)],
            problems=[
                *objects.lacking(in_bucket, entries),
                *objects.verify(self.repository, entries),
            ],
            restore_s=restore_s,
            covered_s=covered_s,
            objects=len(entries),
        )

    def _restored(
        self, base: Base, folder: Path, target: Target, *, account: Account | None, port: int
    ) -> Restored:
        return database.restore(
            self.repository,
            base,
            folder=folder,
            target=target,
            account=account,
            port=port,
            url=self.url,
            programs=self.programs,
        )

    def _await_now(self, say: Say) -> float:
        """Wait until the repository has all that was committed before now; return how long."""
        began = time.monotonic()
        with psycopg.connect(self.url) as connection:
            (now,) = connection.execute("select clock_timestamp()").fetchone() or (None,)
        while time.monotonic() - began < COVERED_WITHIN_S:
            until = database.covered(self.repository)
            if until is not None and until.at > now:
                covered_s = time.monotonic() - began
                say(f"changes    stored after {covered_s:.1f} s")
                return covered_s
            time.sleep(0.5)
        raise BackupError(
            f"changes did not reach the repository within {COVERED_WITHIN_S:.0f} s: "
            "is `farmiq backup stream` running?"
        )

    def _base_is_due(self, hours: float) -> bool:
        now, _ = self._clock()
        good = [
            base
            for base in database.bases(self.repository)
            if now - timedelta(hours=hours) <= base.started_at <= now + _AHEAD
        ]
        return not good or not database.is_continued(good[-1], self.url)

    def lost_changes(self) -> list[str]:
        """Segments of changes after the newest base that are not there: a restore ends at them."""
        bases = database.bases(self.repository)
        return database.missing(self.repository, bases[-1]) if bases else []

    def _tar(self) -> bytes:
        """Configuration is small: it is packed in memory. Raises BackupError."""
        buffer = io.BytesIO()
        try:
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for path in self.files:
                    archive.add(path)
        except OSError as error:
            raise BackupError(
                f"{error.filename} of BACKUP_FILES cannot be read ({error.strerror}): "
                "nothing was copied"
            ) from None
        return buffer.getvalue()
