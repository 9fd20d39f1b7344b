"""Migrations: plain SQL files, forward only, applied once under a lock, refused if history changed.

`migrations/NNNN_pre_name.sql` runs before the new code is deployed, `…_post_…` after it.
`roles.sql` and `functions/*.sql` may be applied any number of times and are, on every run: the
functions at the end, and on an empty database also first, since policies and triggers name them.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

# Any number would do, as long as every runner of ours uses the same one.
_LOCK = 4_210_551_973

_NAME = re.compile(r"^(?P<number>\d{4})_(?P<phase>pre|post)_[a-z0-9_]+$")

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


def apply(url: str, folder: Path) -> list[str]:
    """Bring the database up to date; returns the names applied now. Safe to run side by side."""
    files = read(folder)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(%s)", (_LOCK,))
        try:
            connection.execute(_BOOTSTRAP)
            applied = _applied(connection)
            waiting = pending(files, applied)
            _apply_again(connection, [folder / "roles.sql"])
            functions = sorted((folder / "functions").glob("*.sql"))
            if not applied:
                _apply_again(connection, functions)
            for file in waiting:
                _apply_one(connection, file)
            _apply_again(connection, functions)
        finally:
            connection.execute("select pg_advisory_unlock(%s)", (_LOCK,))
    return [file.name for file in waiting]


def problem(url: str, folder: Path) -> str | None:
    """Why a service must not start on this database, or None."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            waiting = pending(read(folder), _applied(connection))
    except MigrationError as error:
        return str(error)
    except psycopg.errors.UndefinedTable:
        return "the database is empty: run `farmiq migrate`"
    names = [file.name for file in waiting]
    return f"migrations are not applied, run `farmiq migrate`: {names}" if names else None


def _applied(connection: psycopg.Connection) -> dict[str, str]:
    return dict(connection.execute("select name, checksum from schema_migrations").fetchall())


def _apply_one(connection: psycopg.Connection, file: Migration) -> None:
    with connection.transaction():
        connection.execute(file.sql.encode())
        connection.execute(
            "insert into schema_migrations (name, checksum) values (%s, %s)",
            (file.name, file.checksum),
        )


def _apply_again(connection: psycopg.Connection, files: list[Path]) -> None:
    with connection.transaction():
        # A function may name a table that a later file makes.
        connection.execute("set local check_function_bodies = off")
        for file in files:
            connection.execute(file.read_bytes())
