"""Databases of a site: copied from a template, cleaned after a test and lent to the next one.

To copy one costs the server far more than to empty the few tables that a test wrote
to. Only data is cleaned away: one whose catalogue a test changed is dropped.
"""

import atexit
import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from farmiq.plumbing import ids

# Beyond this the dead rows of many tests would make the next ones slow.
WORN_BYTES = 512 * 1024
PATIENCE_S = 60.0

_CATALOGUES = (
    "attrdef", "attribute", "class", "constraint", "default_acl", "depend", "description", "enum",
    "event_trigger", "extension", "index", "inherits", "init_privs", "namespace", "policy", "proc",
    "publication", "rewrite", "sequence", "statistic", "statistic_ext", "trigger", "type",
)  # fmt: skip
# The newest change of each, and what was deleted by the count.
_CATALOGUE = " union all ".join(
    f"select 'pg_{name}', count(*), max(xmin::text::bigint) from pg_{name}"  # noqa: S608
    for name in _CATALOGUES
)
_SETTINGS = """
    select datdba, datallowconn, datconnlimit, datacl, setdatabase, setrole, setconfig
    from pg_database d left join pg_db_role_setting s on setdatabase = d.oid
    where datname = current_database() order by setrole
"""
_TOUCHED = """
    select oid::regclass::text, pg_total_relation_size(oid) from pg_class
    where relkind = 'r' and relpersistence <> 't' and pg_relation_size(oid) > 0
    and relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema')
    and relnamespace::regnamespace::text !~ '^pg_t'
"""
_SEQUENCES = """
    select format('%I.%I', schemaname, sequencename), start_value, last_value from pg_sequences
"""
# As `discard all`, but for statements that were prepared: psycopg would still use them.
_AS_NEW = (
    "close all; set session authorization default; reset all; unlisten *; "
    "select pg_advisory_unlock_all(); discard temp; discard sequences"
)
_OTHERS = "from pg_stat_activity where datname = %s and pid <> all(%s)"

Connection = psycopg.Connection[tuple[Any, ...]]

# Of databases that are lent now: connections to be used again, by address.
_open: dict[str, dict[str, list[Connection]]] = {}


@dataclass(frozen=True, slots=True)
class _Clean:
    """A database as it came from its template."""

    name: str
    catalogue: list[tuple[Any, ...]]
    sequences: list[tuple[Any, ...]]
    seeds: dict[str, tuple[Any, ...]]
    rows: dict[str, bytes]


_idle: defaultdict[tuple[str, str], list[_Clean]] = defaultdict(list)


@contextlib.contextmanager
def lend(server: str, template: str) -> Iterator[str]:
    """The name of a database that is as its template, never the name an earlier test knew."""
    idle, owner = _idle[server, template], _owner(server)
    lent = _renamed(owner, idle.pop()) if idle else _made(owner, server, template)
    _open[lent.name] = {}
    try:
        yield lent.name
    finally:
        clean = _cleaned(owner, server, lent)
        if clean is None:
            drop(owner, lent.name)
        else:
            idle.append(clean)


@contextlib.contextmanager
def connected(url: str, *, autocommit: bool = False) -> Iterator[Connection]:
    """As psycopg.connect, but on a connection to a lent database that the same test had before.

    To connect costs client and server ten times what most questions of tests do.
    """
    idle = _open.get(urlsplit(url).path[1:])
    if idle is None:
        with psycopg.connect(url, autocommit=autocommit) as connection:
            yield connection
        return
    connection = _taken(idle.setdefault(url, [])) or psycopg.connect(url)
    try:
        connection.autocommit = autocommit
        yield connection
        connection.commit()
    except BaseException:
        connection.close()
        raise
    idle[url].append(connection)


def _taken(idle: list[Connection]) -> Connection | None:
    """One that still answers, with nothing left of what was set on it."""
    while idle:
        connection = idle.pop()
        try:
            connection.autocommit = True
            connection.execute(_AS_NEW.encode())
        except psycopg.OperationalError:
            connection.close()
        else:
            return connection
    return None


@functools.cache
def _owner(server: str) -> Connection:
    """One for all tests of this process: to connect costs more than to rename a database."""
    connection = psycopg.connect(server, autocommit=True)
    atexit.register(connection.close)
    return connection


def copy(owner: Connection, template: str) -> str:
    name = f"test_{ids.new().hex}"
    statement = sql.SQL("create database {} template {}")
    owner.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    return name


def drop(owner: Connection, name: str) -> None:
    owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def named(url: str, name: str) -> str:
    """The address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _made(owner: Connection, server: str, template: str) -> _Clean:
    name = copy(owner, template)
    with psycopg.connect(named(server, name), autocommit=True) as connection:
        touched = [table for table, _ in connection.execute(_TOUCHED.encode()).fetchall()]
        rows = {table: _rows(connection, table) for table in touched}
        return _seen(connection, name, {table: found for table, found in rows.items() if found})


def _renamed(owner: Connection, clean: _Clean) -> _Clean:
    """Whoever still has the old address must not reach the next test's rows."""
    name = f"test_{ids.new().hex}"
    _hang_up(owner, clean.name)
    statement = sql.SQL("alter database {} rename to {}")
    owner.execute(statement.format(sql.Identifier(clean.name), sql.Identifier(name)))
    return _Clean(name, clean.catalogue, clean.sequences, clean.seeds, clean.rows)


def _hang_up(owner: Connection, name: str, *, but: Connection | None = None) -> None:
    """Return when nobody else is connected to it any more, also who was still connecting."""
    ends_at = time.monotonic() + PATIENCE_S
    ours = [each.info.backend_pid for each in (owner, but) if each is not None]
    others = f"select pg_terminate_backend(pid) {_OTHERS}".encode()
    while owner.execute(others, (name, ours)).fetchall():
        assert time.monotonic() < ends_at, f"somebody stays connected to {name}"
        time.sleep(0.002)


def _cleaned(owner: Connection, server: str, lent: _Clean) -> _Clean | None:
    """None if only a new copy is as the template again."""
    url = named(server, lent.name)
    used = _open.pop(lent.name)
    connection = _taken(used.get(url, []))
    for other in (other for idle in used.values() for other in idle):
        other.close()
    try:
        _hang_up(owner, lent.name, but=connection)
        connection = connection or psycopg.connect(url)
    except psycopg.OperationalError:  # a test closed its door
        return None
    with connection:
        connection.autocommit = True
        if _catalogue(connection) != lent.catalogue:
            return None
        # Neither triggers nor foreign keys: rows go away here as they never do in the product.
        connection.execute("set session_replication_role = replica")
        worn = _empty(connection, lent)
        _rewind(connection, lent)
        restored = _restore(connection, lent)
        return _seen(connection, lent.name, lent.rows) if worn or restored else lent


def _empty(connection: Connection, lent: _Clean) -> bool:
    """Whether tables were made anew, which the catalogue tells."""
    touched: dict[str, int] = dict(connection.execute(_TOUCHED.encode()).fetchall())
    for table in lent.seeds:
        touched.pop(table, None)
    if worn := [table for table, size in touched.items() if size > WORN_BYTES]:
        connection.execute(f"truncate {', '.join(worn)} cascade".encode())
    with connection.transaction():
        for table in touched.keys() - {*worn}:
            connection.execute(f"delete from only {table}".encode())  # noqa: S608
    return bool(worn)


def _rewind(connection: Connection, lent: _Clean) -> None:
    used = {*_sequences(connection)} - {*lent.sequences}
    before = {name: value for name, _, value in lent.sequences}
    for name, start, _ in used:
        value = before[name]
        connection.execute(
            "select setval(%s::regclass, %s, %s)", (name, value or start, value is not None)
        )


def _restore(connection: Connection, lent: _Clean) -> bool:
    """Rows that the template came with."""
    changed = [table for table in lent.seeds if _seed(connection, table) != lent.seeds[table]]
    with connection.transaction():
        for table in changed:
            connection.execute(f"delete from only {table}".encode())  # noqa: S608
            with connection.cursor().copy(f"copy {table} from stdin".encode()) as to:
                to.write(lent.rows[table])
    return bool(changed)


def _seen(connection: Connection, name: str, rows: dict[str, bytes]) -> _Clean:
    return _Clean(
        name=name,
        catalogue=_catalogue(connection),
        sequences=_sequences(connection),
        seeds={table: _seed(connection, table) for table in rows},
        rows=rows,
    )


def _catalogue(connection: Connection) -> list[tuple[Any, ...]]:
    found = connection.execute(_CATALOGUE.encode()).fetchall()
    return found + connection.execute(_SETTINGS.encode()).fetchall()


def _sequences(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(_SEQUENCES.encode()).fetchall()


def _seed(connection: Connection, table: str) -> tuple[Any, ...]:
    query = f"select count(*), max(xmin::text::bigint) from only {table}"  # noqa: S608
    return connection.execute(query.encode()).fetchall()[0]


def _rows(connection: Connection, table: str) -> bytes:
    with connection.cursor().copy(f"copy {table} to stdout".encode()) as out:
        return b"".join(bytes(part) for part in out)
