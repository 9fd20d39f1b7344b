"""Base backups of a PostgreSQL cluster, and the way back to any moment since.

run:      pg_basebackup --tar--> gzip --> sealed --> repository base/<id>/
restore:  repository --> data folder, changes (WAL) --> PostgreSQL replays them up to the moment
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import conninfo, pq

from farmiq.plumbing.backup import streams
from farmiq.plumbing.backup.repository import Repository, RepositoryError
from farmiq.plumbing.backup.sealed import UnsealError

BASE, WAL, COVERED = "base/", "wal/", "wal-covered.json"
# As long as a day of changes may take (BK-04), and as the unit of a drill may.
RESTORED_WITHIN_S = 6 * 3600.0
# For changes and what PostgreSQL writes while it replays them.
LEAST_FREE_BYTES = 256 * 2**20
_ABOUT, _ARCHIVE = "about.json", "base.tar.gz"
_ID = "%Y%m%dT%H%M%SZ"
# No copy takes so long: one that began earlier and has no end never gets one.
_UNFINISHED = timedelta(days=1)
_HISTORY = ".history"
_BEFORE_TARGET = "recovery ended before configured recovery target was reached"
# What libpq reads from the environment: a password has no place among the arguments of a command.
_LIBPQ = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}


class BackupError(Exception):
    """A backup could not be made, or none fits; the text says why and what to do."""


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """One whole copy of the cluster, with the changes that were made while it was taken."""

    id: str
    started_at: datetime
    ended_at: datetime
    # Changes are needed from here on; a moment before the end cannot be restored.
    first_wal: str
    last_wal: str
    size_bytes: int
    sha256: str
    server_version: str
    system_id: str
    # 0: of a version that did not say it.
    unpacked_bytes: int = 0


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever was committed before `at` is in the repository, up to and with this segment."""

    at: datetime
    segment: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """The user that PostgreSQL runs as; it refuses to run as root."""

    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where to stop: at a moment, at a named point, or at the end of what is stored."""

    at: datetime | None = None
    name: str | None = None

    def settings(self) -> dict[str, str]:
        if self.name is not None:
            return {"recovery_target_name": self.name}
        if self.at is not None:
            return {"recovery_target_time": self.at.astimezone(UTC).isoformat()}
        return {}


class Programs:
    """PostgreSQL's own programs, of a folder or of PATH."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def path(self, name: str) -> str:
        program = shutil.which(name, path=str(self._folder) if self._folder else None)
        if program is None:
            where = self._folder or "PATH"
            raise BackupError(
                f"{name} is not in {where}: set FARMIQ_PG_BIN to the folder of PostgreSQL's "
                "programs, such as /usr/lib/postgresql/18/bin"
            )
        return program


def run(repository: Repository, url: str, *, programs: Programs) -> Base:
    """Take a base backup; it can be restored from as soon as this returns."""
    started_at, first_wal, facts = _look(url)
    base_id = f"{started_at:{_ID}}"
    command = [
        programs.path("pg_basebackup"), "--pgdata=-", "--format=tar", "--wal-method=fetch",
        "--checkpoint=fast", "--manifest-checksums=SHA256", f"--label=farmiq {base_id}",
        "--no-password",
    ]  # fmt: skip
    name = f"{BASE}{base_id}/{_ARCHIVE}"
    with (
        _holding_changes(url),
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(url)
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101
        given = streams.Counted(streams.pieces_of(process.stdout))
        written = repository.write(name, streams.packed(given))
        problem = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode:
        repository.delete(name)
        raise BackupError(f"pg_basebackup failed: {problem}")
    ended_at, last_wal, _ = _look(url)
    base = Base(
        id=base_id,
        started_at=started_at,
        ended_at=ended_at,
        first_wal=first_wal,
        last_wal=last_wal,
        size_bytes=written.size_bytes,
        sha256=written.sha256,
        unpacked_bytes=given.size_bytes,
        **facts,
    )
    # Written last: a base without it is unfinished and counts for nothing.
    repository.write_document(f"{BASE}{base_id}/{_ABOUT}", base)
    return base


def bases(repository: Repository) -> list[Base]:
    """Finished ones, oldest first; without the damaged ones, unless all are. Raises UnsealError."""
    readable: list[Base] = []
    damage: UnsealError | None = None
    for name in _abouts(repository):
        try:
            readable.append(repository.read_document(name, Base))
        except UnsealError as error:
            damage = error
    if damage is not None and not readable:
        raise damage
    return readable


def damaged(repository: Repository) -> list[str]:
    """The ids of finished ones that cannot be read, oldest first."""
    readable = {base.id for base in bases(repository)}
    ids = (name.split("/")[1] for name in _abouts(repository))
    return [base_id for base_id in ids if base_id not in readable]


def _abouts(repository: Repository) -> list[str]:
    return [name for name in repository.names(BASE) if name.endswith(_ABOUT)]


def covered(repository: Repository) -> Covered | None:
    """If what says it is damaged, what the newest base and the stored segments say."""
    if not repository.has(COVERED):
        return None
    try:
        covered_: Covered = repository.read_document(COVERED, Covered)
    except UnsealError:
        ends, stored = [base.ended_at for base in bases(repository)], segments(repository)
        return Covered(at=max(ends), segment=max(stored)) if ends and stored else None
    return covered_


def delete(repository: Repository, base_id: str) -> None:
    """What says that it is whole goes first."""
    for file in (_ABOUT, _ARCHIVE):
        repository.delete(f"{BASE}{base_id}/{file}")


def delete_unfinished(repository: Repository, *, now: datetime) -> None:
    """Delete what is left of copies that ended with their process."""
    limit = f"{BASE}{now - _UNFINISHED:{_ID}}"
    finished = {name.removesuffix(_ABOUT) for name in _abouts(repository)}
    for name in repository.names(BASE, with_parts=True):
        if name < limit and f"{name.rpartition('/')[0]}/" not in finished:
            repository.delete(name)


def choose(candidates: Iterable[Base], at: datetime | None) -> Base:
    """The newest base that ended before the moment. Raises BackupError."""
    fitting = [base for base in candidates if at is None or base.ended_at <= at]
    if not fitting:
        first = min((base.ended_at for base in candidates), default=None)
        hint = f"the first moment is {first:%Y-%m-%dT%H:%M:%SZ}" if first else "there is none"
        raise BackupError(f"no finished base backup lies before that moment: {hint}")
    return max(fitting, key=lambda base: base.ended_at)


def verify(repository: Repository, base: Base) -> list[str]:
    """Read the whole base, and see that no segment of changes is missing; problems in words."""
    problems = []
    try:
        sha256 = streams.sha256(repository.read(f"{BASE}{base.id}/{_ARCHIVE}"))
        if sha256 != base.sha256:
            problems.append(f"base {base.id} has other bytes than were written")
    except (RepositoryError, UnsealError) as error:
        problems.append(f"base {base.id}: {error}")
    return problems + [
        f"changes after base {base.id}: segment {name} is missing"
        for name in missing(repository, base)
    ]


def missing(repository: Repository, base: Base) -> list[str]:
    """Segments of changes that a restore of now would need after this base."""
    until = covered(repository)
    if until is None or until.segment <= base.last_wal:
        return []
    have = set(segments(repository))
    return [name for name in _between(base.last_wal, until.segment) if name not in have]


def is_of_cluster(base: Base, url: str) -> bool:
    """Whether the base is a copy of this cluster, or of what it was restored from."""
    _, _, facts = _look(url)
    return base.system_id == str(facts["system_id"])


def is_continued(base: Base, url: str) -> bool:
    """Whether the changes of this cluster go on from the base.

    A restored cluster begins a timeline, whose first changes may be older than its slot.
    """
    _, segment, facts = _look(url)
    return base.system_id == str(facts["system_id"]) and base.last_wal[:8] == segment[:8]


def segments(repository: Repository) -> list[str]:
    names = (name.removeprefix(WAL) for name in repository.names(WAL))
    return [name for name in names if not name.endswith(_HISTORY)]


def restore(
    repository: Repository,
    base: Base,
    *,
    folder: Path,
    target: Target,
    account: Account | None,
    port: int,
    url: str,
    programs: Programs,
) -> "Restored":
    """Make a cluster in `folder` as it was at the target, and start it on loopback.

    `url` is the address of the cluster that was backed up: role, password and database are in the
    backup, so only host and port differ.
    """
    data, changes = folder / "data", folder / "wal"
    if data.exists():
        raise BackupError(f"{data} is there already: restore into a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    _check_room(base, folder)
    data.mkdir(mode=0o700)
    changes.mkdir(mode=0o700)
    unpack(repository.read(f"{BASE}{base.id}/{_ARCHIVE}"), data)
    verify_command = [programs.path("pg_verifybackup"), "--no-parse-wal", str(data)]
    done = subprocess.run(verify_command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackupError(f"the files of base {base.id} are damaged: {done.stderr.strip()}")
    for name in repository.names(WAL):
        file = name.removeprefix(WAL)
        if file.endswith(_HISTORY) or file[8:] >= base.first_wal[8:]:
            streams.write(changes / file, streams.unpacked(repository.read(name)))
    for file in ("postgresql.conf", "pg_ident.conf"):
        (data / file).touch()
    # Replication is no database among all: without its line nobody could back it up again.
    (data / "pg_hba.conf").write_text(
        "".join(f"host {what} all 127.0.0.1/32 scram-sha-256\n" for what in ("all", "replication"))
    )
    (data / "recovery.signal").touch()
    if account is not None:
        _give(folder, account)
    restored = Restored(folder, port=port, url=url, account=account, programs=programs)
    restored.recover(target, lost=missing(repository, base))
    return restored


def _check_room(base: Base, folder: Path) -> None:
    """Before hours of unpacking; how much the changes take besides is not known."""
    needed = max(base.unpacked_bytes, base.size_bytes) + LEAST_FREE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupError(
            f"{folder} has {free / 1e6:,.0f} MB free, and base {base.id} needs "
            f"{needed / 1e6:,.0f} MB: restore into a folder on a larger disk"
        )


class Restored:
    """A restored cluster. It runs after `recover`, until `stop`."""

    def __init__(
        self, folder: Path, *, port: int, url: str, account: Account | None, programs: Programs
    ) -> None:
        self.data = folder / "data"
        self._changes = folder / "wal"
        self._log = folder / "postgres.log"
        self._port = port
        self._account = account
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        # How the owner reaches the live server, TLS and certificates, does not apply to the copy.
        given = conninfo.conninfo_to_dict(url)
        role = {
            key: given[key] for key in ("user", "password", "passfile", "dbname") if key in given
        }
        self.url = conninfo.make_conninfo(
            "", **role, host="127.0.0.1", port=port, sslmode="disable"
        )

    def recover(self, target: Target, *, lost: Sequence[str] = ()) -> None:
        """Replay changes up to the target and become writable. Raises BackupError.

        `lost` are segments of changes that are not there: nothing behind them can be replayed.
        """
        recovery = {
            "restore_command": f'cp "{self._changes}/%f" "%p"',
            "recovery_target_action": "promote",
            "recovery_target_timeline": "latest",
        }
        try:
            self.start({**recovery, **target.settings()})
        except BackupError as error:
            if target.at is None or _BEFORE_TARGET not in str(error):
                raise
            if lost:
                raise BackupError(
                    f"the changes up to that moment are not all there: segment {lost[0]} is "
                    "missing. Choose an earlier moment, or leave --to away for what can be had"
                ) from None
            # Nothing was committed after that moment: the end of the changes is that moment.
            self.start(recovery)

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Run the server until `stop`; it takes connections when this returns."""
        self._launch(settings or {})
        problem = self._wait()
        if problem:
            raise BackupError(f"PostgreSQL does not start on {self.data}: {problem}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _launch(self, settings: Mapping[str, str]) -> None:
        # Hot standby is off: settings of the old machine, such as max_connections, need not fit.
        chosen = {
            **settings,
            "port": str(self._port),
            "listen_addresses": "127.0.0.1",
            "ssl": "off",
            "unix_socket_directories": "",
            "hot_standby": "off",
            "logging_collector": "off",
            "archive_mode": "off",
            "timezone": "UTC",
        }
        command = [self._programs.path("postgres"), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in chosen.items()]
        account = self._account
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                cwd=self.data.parent,
            )

    def _wait(self) -> str | None:
        """What the server says if it ends or rejects us, None as soon as it takes connections."""
        assert self._process is not None  # noqa: S101 - it was started
        deadline = time.monotonic() + RESTORED_WITHIN_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return _problem_in(self._log.read_text("utf-8", "replace"))
            if pq.PGconn.ping(self.url.encode()) != pq.Ping.OK:
                time.sleep(0.1)
                continue
            try:
                with psycopg.connect(self.url, connect_timeout=3):
                    return None
            except psycopg.OperationalError as error:
                self.stop()
                return f"it runs, but rejects the role of the owner's address: {error}"
        self.stop()
        return f"it did not end within {RESTORED_WITHIN_S:.0f} s"


def environment(url: str) -> dict[str, str]:
    """The variables with which libpq's programs reach this server."""
    given = conninfo.conninfo_to_dict(url)
    named = {_LIBPQ[key]: str(value) for key, value in given.items() if key in _LIBPQ}
    return {"LC_ALL": "C", **named}


@contextlib.contextmanager
def _holding_changes(url: str) -> Iterator[None]:
    """What is written while the copy is made belongs to it: the server keeps it that long.

    The slot of changes does not help: what was received from it may be recycled. This one goes
    with its session, also if we are killed.
    """
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        connection.execute(
            "select pg_create_physical_replication_slot(%s, true, true)",
            (f"farmiq_base_{connection.info.backend_pid}",),
        )
        yield


def _look(url: str) -> tuple[datetime, str, dict[str, Any]]:
    """The server's time, the segment it writes to, and what it is."""
    with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
        row = connection.execute(
            "select clock_timestamp(), pg_walfile_name(pg_current_wal_insert_lsn()), "
            "current_setting('server_version'), "
            "(select system_identifier::text from pg_control_system())"
        ).fetchone()
    assert row is not None  # noqa: S101 - a select without a table has one row
    at, segment, version, system_id = row
    return at.astimezone(UTC), segment, {"server_version": version, "system_id": system_id}


def _between(first: str, last: str) -> Iterator[str]:
    """The segments behind `first` up to `last`, of the timeline of the last one.

    A timeline that ended is joined by its history file; there the check begins anew.
    """
    timeline = last[:8]
    number = _number(first) if first[:8] == timeline else _number(last) - 1
    for position in range(number + 1, _number(last) + 1):
        yield f"{timeline}{position // 256:08X}{position % 256:08X}"


def _number(segment: str) -> int:
    """Segments count up; one of 16 MiB has 256 in each file of 4 GiB."""
    return int(segment[8:16], 16) * 256 + int(segment[16:24], 16)


def _problem_in(log: str) -> str:
    lines = [line for line in log.splitlines() if re.search(r"FATAL|PANIC|ERROR", line)]
    return "; ".join(lines[-3:]) or log[-500:] or "it ended and said nothing"


def unpack(pieces: Iterable[bytes], folder: Path, *, filtered: str = "data_filter") -> None:
    """A packed tar that we wrote, with its names below the folder."""
    source = io.BufferedReader(streams.Stream(streams.unpacked(pieces)), streams.PIECE_BYTES)
    with tarfile.open(fileobj=source, mode="r|") as archive:
        # Debian 12's Python (3.11.2) knows no filters; what is unpacked here was sealed by us.
        archive.extraction_filter = getattr(tarfile, filtered, None)
        archive.extractall(folder)  # noqa: S202
    while source.read(streams.PIECE_BYTES):
        pass  # to the end: only there it is known that nothing was cut off


def _give(folder: Path, account: Account) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
