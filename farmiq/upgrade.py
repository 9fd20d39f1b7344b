"""`farmiq upgrade check`: what an upgrade of a site to this version would do, before it is done.

Nothing is changed and nothing is locked. What the site's database says of itself, of the code that
runs on it and of the sizes of its tables is compared with the migrations of this version.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from farmiq import __version__
from farmiq.messages.contract import CONTRACT
from farmiq.plumbing import migration_locks, migrations, presence
from farmiq.plumbing.migration_locks import EVERYBODY, NOBODY
from farmiq.plumbing.migrations import Migration, MigrationError
from farmiq.plumbing.presence import Code

# Work on a table goes at about this pace on a small machine; whoever waits longer than MAX_WAIT_S
# because of it would notice.
BYTES_PER_S = 20_000_000
MAX_WAIT_S = 10.0
# A transaction that is open for so long keeps a migration from its locks (migrations.PATIENCE_S).
LONG_TRANSACTION_S = 60.0
# Beside what is rewritten, as much again of WAL; and some air.
ROOM = 2.2
LEAST_FREE_BYTES = 512 * 2**20
# So many of a kind are named one by one.
NAMED = 5

_SIZES = """
select n.name, (coalesce(pg_total_relation_size(to_regclass(n.name)), 0)
  + coalesce((select sum(pg_total_relation_size(relid))
    from pg_partition_tree(to_regclass(n.name)) where level > 0), 0))::bigint
from unnest(%s::text[]) as n(name)
"""
_LONG = """
select pid, application_name, extract(epoch from clock_timestamp() - xact_start)::float8,
  array(select distinct c.relname::text from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = a.pid and l.granted and c.relname = any(%s))
from pg_stat_activity a
where datname = current_database() and pid <> pg_backend_pid()
  and xact_start < clock_timestamp() - %s * interval '1 second'
order by xact_start
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; what is not `go` has to be mended first, as `remedy` says."""

    name: str
    go: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TableLock:
    """A table that a migration keeps others from; `wait_s` is about how long it does."""

    table: str
    blocks: str
    work: list[str]
    size_bytes: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """A migration that is not applied yet."""

    name: str
    phase: str
    locks: list[TableLock]

    @property
    def wait_s(self) -> float:
        return max((lock.wait_s for lock in self.locks), default=0.0)


@dataclass
class Outlook:
    """What would happen at one site."""

    site: str
    version: str = __version__
    contract: int = CONTRACT
    revision: str = ""
    target: str = ""
    running: list[Code] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def go(self) -> bool:
        return all(finding.go for finding in self.findings)

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "go": self.go}


def look(site: str, url: str, folder: Path) -> Outlook:
    """What the database says; `url` is the owner's. Raises psycopg.Error if it does not answer."""
    seen = Outlook(site, target=migrations.newest(folder))
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        try:
            seen.revision, waiting = migrations.outstanding(connection, folder)
        except MigrationError as error:
            why = str(error)
            seen.findings.append(Finding("schema", False, why, "see docs/operate/upgrade.md"))
            return seen
        seen.running = presence.running(connection)
        seen.steps = _steps(connection, waiting)
        seen.findings += [
            _schema(seen),
            *_post(waiting, seen.running),
            _waits(seen.steps),
            _transactions(connection, seen.steps),
            _disk(connection, seen.steps),
        ]
    return seen


def check_backup(find: Callable[[], datetime | None], *, hours: float) -> Finding:
    """`find` returns when the newest whole backup ended; RuntimeError if none can be looked for."""
    try:
        newest = find()
    except RuntimeError as error:
        return Finding("backup", False, str(error), "docs/operate/backup.md says how to set it up")
    remedy = "`farmiq backup run` makes one"
    if newest is None:
        return Finding("backup", False, "there is none", remedy)
    age = datetime.now(UTC) - newest
    young = age <= timedelta(hours=hours)
    detail = f"the newest ended {age.total_seconds() / 3600:.1f} h ago"
    return Finding("backup", young, detail, "" if young else remedy)


def check_skew(others: Sequence[tuple[str, str, int | None]]) -> Finding:
    """Pure: (who, version, contract) of the other sites as they said last.

    Edge and cloud of neighbouring versions work side by side, whichever is ahead (D-581).
    """
    ahead = [who for who, _, number in others if number is not None and number > CONTRACT + 1]
    words = [
        f"{who} runs {version}" + (f" (contract {number})" if number is not None else "")
        for who, version, number in others
    ]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    detail = "; ".join(words[:NAMED]) + more
    remedy = f"{ahead[0]} is more than one version ahead of this one" if ahead else ""
    return Finding("other sites", not ahead, detail or "none is known", remedy)


def _steps(connection: psycopg.Connection, waiting: Sequence[Migration]) -> list[Step]:
    locks_by_file = {file.name: migration_locks.locks(file) for file in waiting}
    names = sorted({lock.table for locks in locks_by_file.values() for lock in locks})
    sizes: dict[str, int] = dict(connection.execute(_SIZES, (names,)).fetchall())
    steps = []
    for file in waiting:
        # All locks of a file last until its end, so each table waits for the work on all of them.
        work_s = (
            sum(sizes[lock.table] for lock in locks_by_file[file.name] if lock.work) / BYTES_PER_S
        )
        locks = [
            TableLock(
                lock.table,
                lock.blocks,
                sorted(lock.work),
                sizes[lock.table],
                0.0 if lock.blocks == NOBODY else round(work_s, 1),
            )
            for lock in locks_by_file[file.name]
        ]
        steps.append(Step(file.name, file.phase, locks))
    return steps


def _schema(seen: Outlook) -> Finding:
    if not seen.revision:
        return Finding("schema", True, "the database is empty: `farmiq migrate` builds it")
    count = {phase: sum(step.phase == phase for step in seen.steps) for phase in ("pre", "post")}
    if not seen.steps:
        return Finding("schema", True, f"up to date ({seen.revision})")
    detail = (
        f"at {seen.revision}; {count['pre']} to apply before the new code, {count['post']} after"
    )
    return Finding("schema", True, detail)


def _post(waiting: Sequence[Migration], running: Sequence[Code]) -> list[Finding]:
    """The post step is refused as long as it would be; that keeps nobody from beginning."""
    cleaning = [file for file in waiting if file.phase == "post"]
    old = [code for file in cleaning[-1:] for code in migrations.beside(file, running)]
    if not old:
        return [Finding("post step", True, f"{len(cleaning)} files, nothing in their way")]
    words = "; ".join(str(code) for code in old[:3])
    remedy = "" if any(file.phase == "pre" for file in waiting) else "replace or stop it first"
    return [Finding("post step", not remedy, f"refused while old code runs: {words}", remedy)]


def _waits(steps: Sequence[Step]) -> Finding:
    """Only what runs beside the old code keeps anybody waiting."""
    worst = max((step for step in steps if step.phase == "pre"), key=_wait_s, default=None)
    if worst is None or worst.wait_s <= MAX_WAIT_S:
        return Finding("locks", True, "nobody waits for longer than a moment")
    table = max(worst.locks, key=lambda lock: (lock.wait_s, lock.size_bytes))
    who = "readers and writers" if table.blocks == EVERYBODY else "writers"
    detail = f"{worst.name} keeps {who} of {table.table} waiting for about {worst.wait_s:,.0f} s"
    return Finding("locks", False, detail, "stop the services for it, or wait for a quiet hour")


def _wait_s(step: Step) -> float:
    return step.wait_s


def _transactions(connection: psycopg.Connection, steps: Sequence[Step]) -> Finding:
    tables = sorted({lock.table for step in steps for lock in step.locks if lock.blocks != NOBODY})
    rows = connection.execute(_LONG, (tables, LONG_TRANSACTION_S)).fetchall()
    held = [(pid, name, s, locked) for pid, name, s, locked in rows if locked]
    if not held:
        return Finding("transactions", True, "no long one holds what the migrations need")
    pid, name, seconds, locked = held[0]
    detail = f"{name or 'a session'} (pid {pid}) is open for {seconds:,.0f} s and holds {locked[0]}"
    return Finding("transactions", False, detail, f"end it: select pg_terminate_backend({pid})")


def _disk(connection: psycopg.Connection, steps: Sequence[Step]) -> Finding:
    grows = sum(lock.size_bytes for step in steps for lock in step.locks if {*lock.work} - {"scan"})
    needed = round(grows * ROOM)
    words = f"about {needed / 1e6:,.0f} MB are needed"
    free = _free_bytes(connection)
    if free is None:
        return Finding("disk", True, f"{words}; the server is elsewhere, see that it has them")
    enough = free >= max(needed, LEAST_FREE_BYTES)
    remedy = "" if enough else "make room where PostgreSQL has its data"
    return Finding("disk", enough, f"{words}, {free / 1e6:,.0f} MB are free", remedy)


def _free_bytes(connection: psycopg.Connection) -> int | None:
    """None if the server's folder is not on this machine, or we may not know where it is."""
    if connection.info.host not in {"127.0.0.1", "localhost", "::1"} and not (
        connection.info.host.startswith("/")
    ):
        return None
    row = connection.execute("select current_setting('data_directory', true)").fetchone()
    folder = Path(row[0]) if row and row[0] else None
    try:
        return shutil.disk_usage(folder).free if folder else None
    except OSError:
        return None
