"""Migrations: plain SQL files, forward only, applied once under a lock, refused if history changed.

An empty database is built from `schema/*.sql`, the current truth. A database in use has at least
the state that `migrations/baseline.txt` names, the last release; the files in `migrations/` lead
from there to the schema. Older files are gone: that release migrates older databases first.
`migrations/NNNN_pre_name.sql` runs before the new code is deployed and only adds, so that the old
code goes on running; `…_post_…` runs when the old code is gone.
A migration waits for a table only briefly and is tried again: what waits for a lock makes everybody
behind it wait too. A file that builds an index `concurrently` runs outside of a transaction, one
statement after the other, and may be run again.
`roles.sql` and `functions/*.sql` may be applied any number of times and are, on every run: the
functions at the end, and with each migration first, in its transaction, since policies and triggers
name them. `jobs.sql`, if there is one, comes last: it registers what the server itself calls.
"""

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg

from farmiq.plumbing import presence
from farmiq.plumbing.presence import Code

# Any number would do, as long as every runner of ours uses the same one.
_LOCK = 4_210_551_973

# How long a migration may wait for a lock, while all others queue behind it, and for how long it is
# tried again.
LOCK_WITHIN_S = 2.0
PATIENCE_S = 120.0

PHASES = ("pre", "post", "all")

_NAME = re.compile(r"^(?P<number>\d{4})_(?P<phase>pre|post)_[a-z0-9_]+$")

_CONCURRENT = re.compile(
    r"^\s*create\s+(?:unique\s+)?index\s+concurrently\s+(?:if\s+not\s+exists\s+)?(?P<name>\w+)",
    re.IGNORECASE | re.MULTILINE,
)

# The table of applied files is readable by all services: they refuse to run on a wrong schema.
_BOOTSTRAP = """
create table if not exists schema_migrations (
  name text constraint schema_migrations_pkey primary key,
  checksum text not null,
  applied_at timestamptz not null default now()
);
alter table schema_migrations enable row level security;
alter table schema_migrations force row level security;
do $$
begin
  if not exists (select from pg_policies where policyname = 'schema_migrations_read'
                 and schemaname = current_schema()) then
    create policy schema_migrations_read on schema_migrations for select using (true);
    execute format(
      'create policy schema_migrations_write on schema_migrations for all to %I '
      'using (true) with check (true)', current_user);
  end if;
end $$;
grant select on schema_migrations to public;
"""


class MigrationError(Exception):
    """The schema and the files do not fit together; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    sql: str

    @property
    def phase(self) -> str:
        return _phase(self.name)

    @property
    def is_concurrent(self) -> bool:
        return _CONCURRENT.search(self.sql) is not None

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read(folder: Path) -> list[Migration]:
    """The site's migrations in order. Raises if a name is odd or a number stands twice."""
    files = sorted((folder / "migrations").glob("*.sql"))
    odd = [file.name for file in files if not _NAME.match(file.stem)]
    if odd:
        raise MigrationError(f"name these NNNN_pre_what.sql or NNNN_post_what.sql: {odd}")
    numbers = [file.stem[:4] for file in files]
    if len(set(numbers)) != len(numbers):
        raise MigrationError(f"two migrations of one number in {folder}: renumber the newer one")
    return [Migration(file.stem, file.read_text(encoding="utf-8")) for file in files]


def baseline(folder: Path) -> str:
    """The migration that every database in use has; empty if all of them are still here."""
    file = folder / "migrations" / "baseline.txt"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def newest(folder: Path) -> str:
    """The last migration that this version knows."""
    return max((file.name for file in read(folder)), default=baseline(folder))


def since(baseline: str, applied: Mapping[str, str]) -> dict[str, str]:
    """What was applied after the baseline. Raises if a database in use is older than that."""
    if applied and baseline and baseline not in applied:
        raise MigrationError(
            f"the database is older than {baseline}: run `farmiq migrate` of the release that "
            "deploy/last-release names, then this one"
        )
    return {name: checksum for name, checksum in applied.items() if name > baseline}


def pending(files: list[Migration], applied: Mapping[str, str]) -> list[Migration]:
    """What is still to be applied. Raises if an applied file was changed, removed or overtaken."""
    known = {file.name: file for file in files}
    gone = sorted(set(applied) - set(known))
    if gone:
        raise MigrationError(f"the database has migrations this version does not know: {gone}")
    changed = [name for name, checksum in applied.items() if known[name].checksum != checksum]
    if changed:
        raise MigrationError(f"applied migrations were edited since; write new ones: {changed}")
    waiting = [file for file in files if file.name not in applied]
    newest = max(applied, default="")
    late = [file.name for file in waiting if file.name < newest]
    if late:
        raise MigrationError(f"{late} would run behind {newest}: give them a higher number")
    return waiting


def chosen(waiting: list[Migration], phase: str) -> list[Migration]:
    """Those of the phase. Raises if the order of the files would not be kept.

    `needed` are those without which this version does not run: what only cleans up behind the last
    of them is left to a person, so that the version before can come back.
    """
    if phase == "all":
        return waiting
    if phase == "needed":
        last = max((n for n, file in enumerate(waiting) if file.phase == "pre"), default=-1)
        return waiting[: last + 1]
    ends = next((n for n, file in enumerate(waiting) if file.phase != "pre"), len(waiting))
    before, after = waiting[:ends], waiting[ends:]
    behind = [file.name for file in after if file.phase == "pre"]
    if behind:
        raise MigrationError(
            f"{after[0].name} of an earlier version was never applied and {behind[0]} stands "
            "behind it: stop the services and run `farmiq migrate --phase all`"
        )
    if phase == "post" and before:
        raise MigrationError(
            f"{before[0].name} comes first: run `farmiq migrate --phase pre`, then replace the "
            "services, then `--phase post`"
        )
    return before if phase == "pre" else after


def apply(url: str, folder: Path, *, phase: str = "all") -> list[str]:
    """Bring the database up to date; returns the names applied now. Safe to run side by side."""
    files = read(folder)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", (_LOCK,))
        try:
            _patiently(connection, "schema_migrations", lambda: connection.execute(_BOOTSTRAP))
            applied, start = _applied(connection), baseline(folder)
            is_new = not applied and start != ""
            waiting = [] if is_new else chosen(pending(files, since(start, applied)), phase)
            _refuse_beside_old_code(connection, waiting)
            functions = sorted((folder / "functions").glob("*.sql"))

            def again(*files: Path) -> Callable[[], object]:
                return lambda: _apply_again(connection, files)

            _patiently(connection, "roles.sql", again(folder / "roles.sql"))
            if is_new:
                _build(connection, folder, functions, [Migration(start, ""), *files])
            for file in waiting:
                _patiently(connection, file.name, partial(_apply_one, connection, file, functions))
            _patiently(connection, "functions", again(*functions, *folder.glob("jobs.sql")))
        finally:
            connection.execute("select pg_advisory_unlock(%s)", (_LOCK,))
    return [start, *(file.name for file in files)] if is_new else [file.name for file in waiting]


def outstanding(connection: psycopg.Connection, folder: Path) -> tuple[str, list[Migration]]:
    """The newest applied migration and what this version still has to apply; nothing is changed.

    Empty, with nothing to apply, is a database that is built anew. Raises as `apply` does.
    """
    if connection.execute("select to_regclass('schema_migrations') is null").fetchone() == (True,):
        return "", []
    applied = _applied(connection)
    waiting = pending(read(folder), since(baseline(folder), applied)) if applied else []
    chosen(waiting, "pre")
    return max(applied, default=""), waiting


def problem(url: str, folder: Path) -> str | None:
    """Why a service must not start on this database, or None.

    What was only added for a newer version harms nobody, and what is cleaned up after the old
    code is gone may still wait: between pre and post both versions run.
    """
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            files, everything = read(folder), _applied(connection)
        applied = since(baseline(folder), everything)
        waiting = pending(files, _of_interest(files, applied))
    except MigrationError as error:
        return str(error)
    except psycopg.errors.UndefinedTable:
        everything, waiting = {}, []
    if not everything:
        return "the database is empty: run `farmiq migrate`"
    names = [file.name for file in waiting if file.phase == "pre"]
    return f"migrations are not applied, run `farmiq migrate`: {names}" if names else None


def blocks_writers(file: Migration) -> list[str]:
    """Tables on which it builds an index while the old code runs on and has to wait.

    A file says `-- small table NAME: why` of those on which nobody waits for long.
    """
    made = re.findall(
        r"^[ \t]*(?:create table (?:if not exists )?|-- small table (?=\w+: ))(\w+)",
        file.sql,
        re.MULTILINE,
    )
    built = re.findall(
        r"^[ \t]*create (?:unique )?index (?!concurrently)(?:if not exists )?\w+\s+"
        r"on (?:only )?(\w+)",
        file.sql,
        re.MULTILINE,
    )
    return sorted(set(built) - set(made)) if file.phase == "pre" else []


def _of_interest(files: list[Migration], applied: Mapping[str, str]) -> Mapping[str, str]:
    """What was applied, without what a newer version only added."""
    unknown = set(applied) - {file.name for file in files}
    if any(_phase(name) == "post" for name in unknown):
        return applied
    return {name: checksum for name, checksum in applied.items() if name not in unknown}


def _phase(name: str) -> str:
    return name.split("_", 2)[1]


def _applied(connection: psycopg.Connection) -> dict[str, str]:
    return dict(connection.execute("select name, checksum from schema_migrations").fetchall())


def _patiently(connection: psycopg.Connection, name: str, do: Callable[[], object]) -> None:
    """Do it; while something else holds a lock that it needs, let the others pass and try again."""
    ends_at = time.monotonic() + PATIENCE_S
    connection.execute(f"set lock_timeout = {round(LOCK_WITHIN_S * 1000)}".encode())
    while True:
        try:
            do()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if time.monotonic() >= ends_at:
                raise MigrationError(
                    f"{name} was not applied: for {PATIENCE_S:g} s others held what it needs "
                    f"({error.diag.context or error}). End long transactions (pg_stat_activity), "
                    "then run `farmiq migrate` again"
                ) from error
            time.sleep(LOCK_WITHIN_S)
        else:
            return


def _build(
    connection: psycopg.Connection,
    folder: Path,
    functions: Sequence[Path],
    files: Sequence[Migration],
) -> None:
    """Fill an empty database from the schema files, which hold what all migrations lead to."""
    with connection.transaction():
        _apply_again(connection, [*functions, *sorted((folder / "schema").glob("*.sql"))])
        for file in files:
            _note(connection, file)


def _apply_one(connection: psycopg.Connection, file: Migration, functions: Sequence[Path]) -> None:
    if file.is_concurrent:
        _apply_concurrently(connection, file)
        return
    with connection.transaction():
        _apply_again(connection, functions)
        connection.execute(file.sql.encode())
        # What was started since sees in time that it must not: nothing of this is committed yet.
        _refuse_beside_old_code(connection, [file])
        _note(connection, file)


def beside(file: Migration, codes: Sequence[Code]) -> list[Code]:
    """The code that runs and does not know what this file takes away: it has to be gone first."""
    return [code for code in codes if file.phase == "post" and not code.knows(file.name)]


def _refuse_beside_old_code(connection: psycopg.Connection, files: Sequence[Migration]) -> None:
    cleaning = [file for file in files if file.phase == "post"]
    if not cleaning:
        return
    codes = presence.running(connection)
    for file in cleaning:
        if old := beside(file, codes):
            raise MigrationError(
                f"{file.name} was not applied: code that does not know it still runs "
                f"({'; '.join(str(code) for code in old[:5])}). Replace or stop it, then run "
                f"`farmiq migrate` again; what was killed is forgotten after "
                f"{presence.GONE_AFTER_S:g} s"
            )


def _apply_concurrently(connection: psycopg.Connection, file: Migration) -> None:
    """It blocks nobody, so it may wait for locks; unfinished indexes are dropped first."""
    connection.execute("set lock_timeout = 0")
    names = [match["name"].lower() for match in _CONCURRENT.finditer(file.sql)]
    broken = connection.execute(
        "select format('%%I.%%I', n.nspname, c.relname) from pg_index i "
        "join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace "
        "where not i.indisvalid and c.relname = any(%s)",
        (names,),
    ).fetchall()
    for (name,) in broken:
        connection.execute(f"drop index concurrently {name}".encode())
    for statement in re.split(r";\s*$", file.sql, flags=re.MULTILINE):
        if statement.strip():
            connection.execute(statement.encode())
    _note(connection, file)


def _note(connection: psycopg.Connection, file: Migration) -> None:
    connection.execute(
        "insert into schema_migrations (name, checksum) values (%s, %s)", (file.name, file.checksum)
    )


def _apply_again(connection: psycopg.Connection, files: Sequence[Path]) -> None:
    with connection.transaction():
        # A function may name a table that a later file makes.
        connection.execute("set local check_function_bodies = off")
        for file in files:
            connection.execute(file.read_bytes())
