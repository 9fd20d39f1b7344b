"""PostgreSQL: a pool, a transaction, and which errors mean "try again" and which "bad data"."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import adapt, pq
from psycopg.abc import Buffer
from psycopg.rows import TupleRow, class_row, dict_row
from psycopg.types.datetime import DatetimeDumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from farmiq.plumbing import pg_binary

Connection = psycopg.AsyncConnection[TupleRow]
Pool = AsyncConnectionPool[Connection]

T = TypeVar("T")

Meaning = Literal["data", "retry", "wait", "refuse", "bug"]

# What an SQLSTATE, or else its class, means for the sender of the statement (C-81):
# data: it can never succeed with this data, so the batch is split;
# retry: the same transaction may succeed in a moment; wait: when the database is repaired;
# refuse: schema or rights are not ours, so the process ends and says so; bug: everything else.
MEANINGS: dict[str, Meaning] = {
    "22": "data",  # data exception
    "23": "data",  # integrity constraint
    "54": "data",  # too large for an index, too many columns: waiting does not lift these limits
    "08": "retry",  # connection
    "25P03": "retry",  # we were frozen in mid-transaction
    "25P04": "retry",
    "40": "retry",  # deadlock, serialization
    "53": "retry",  # disk full, out of memory, too many connections
    "55": "retry",  # locked, in use
    "57": "retry",  # cancelled, shutting down, starting
    "25006": "wait",  # read-only: a standby, or set so by an operator
    "28": "wait",  # the login is refused: a password was changed
    "58": "wait",  # the server's files
    "XX": "wait",  # corrupted, or the server's own bug
    "3D000": "refuse",
    "3F000": "refuse",
    "42501": "refuse",  # no right to it
    "42703": "refuse",  # no such column, function, object, table
    "42883": "refuse",
    "42704": "refuse",
    "42P01": "refuse",
}

# All that MEANINGS calls retry or wait; psycopg calls most of it operational.
UNAVAILABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    PoolTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
    psycopg.errors.InternalError_,
    psycopg.errors.DataCorrupted,
    psycopg.errors.IndexCorrupted,
)
# And what we are short of ourselves: descriptors, disk, memory, time. No data are to blame (C-81).
PASSING = (*UNAVAILABLE, OSError, MemoryError)


# The newest migration that this code knows, by the site that services' names begin with.
_revisions: dict[str, str] = {}


def say_revision(site: str, revision: str) -> None:
    """From now on sessions of the site's services have it in their names (D-580)."""
    _revisions[site] = revision


def session_name(name: str) -> str:
    revision = _revisions.get(name.partition("-")[0])
    return f"{name} {revision}" if revision else name


@asynccontextmanager
async def pool(
    url: str,
    *,
    name: str,
    min_size: int = 1,
    max_size: int = 4,
    timeout_s: float = 10.0,
    check_after_s: float = 0.0,
    statement_timeout_s: float | None = None,
) -> AsyncIterator[Pool]:
    """A pool that opens lazily: a service starts, and says so, while its database is still down.

    With `least` 0 a service that has nothing to do holds no connection. Whether a connection works
    is asked before it is used, but not within `check_after_s` of the last time: whoever tries again
    anyway saves a round trip. A statement that takes longer than `statement_timeout_s` is ended and
    raises one of UNAVAILABLE.
    """
    opened: Pool = AsyncConnectionPool(
        url,
        kwargs={"application_name": session_name(name), "connect_timeout": 5},
        connection_class=psycopg.AsyncConnection[TupleRow],
        min_size=min_size,
        max_size=max_size,
        timeout=timeout_s,
        name=name,
        open=False,
        check=partial(_check, after_s=check_after_s),
        configure=partial(_configure, statement_timeout_s=statement_timeout_s),
        # Within one attempt the pauses double without end, so an attempt has to end; the next
        # request begins another.
        reconnect_timeout=5.0,
    )
    await opened.open(wait=False)
    try:
        yield opened
    finally:
        await opened.close()


# Which connections we close ourselves is not news.
logging.getLogger("psycopg.pool").addFilter(
    lambda record: "discarding closed" not in str(record.msg)
)


async def _configure(connection: Connection, *, statement_timeout_s: float | None) -> None:
    """Moments come out in UTC, whatever zone the server or the login has."""
    await connection.execute("set time zone 'UTC'")
    if statement_timeout_s is not None:
        milliseconds = str(round(statement_timeout_s * 1000))
        await connection.execute(
            "select set_config('statement_timeout', %s, false)", (milliseconds,)
        )
    await connection.commit()


_checked_at: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()


async def _check(connection: Connection, *, after_s: float) -> None:
    """Raises if the connection is broken; then the pool makes another."""
    now = time.monotonic()
    if now - _checked_at.get(connection, float("-inf")) >= after_s:
        await AsyncConnectionPool.check_connection(connection)
        _checked_at[connection] = now


@asynccontextmanager
async def transaction(source: Pool) -> AsyncIterator[Connection]:
    """One transaction on a pooled connection; it commits at the end of the block or not at all."""
    async with source.connection() as connection:
        try:
            async with connection.transaction():
                yield connection
        except psycopg.errors.ReadOnlySqlTransaction:
            # A session stays read-only, or with a standby, though the next one might not be.
            await connection.close()
            raise


@asynccontextmanager
async def autocommit(source: Pool) -> AsyncIterator[Connection]:
    """A pooled connection on which each statement is its own transaction.

    The server commits it, so no lock stays behind if this process is frozen after sending it.
    """
    async with source.connection() as connection:
        await connection.set_autocommit(True)
        try:
            yield connection
        finally:
            # The pool closes a connection that is not idle.
            if connection.info.transaction_status is pq.TransactionStatus.IDLE:
                await connection.set_autocommit(False)


async def problem(source: Pool) -> str | None:
    """What is wrong with the database, in a sentence, or None."""
    try:
        async with source.connection(timeout=2.0) as connection:
            if await fetch_value(connection, "show transaction_read_only") == "on":
                await connection.close()
                return "database is read-only: whoever runs it must make it writable"
    except UNAVAILABLE as error:
        return f"database does not answer: {first_line(error)}"
    return None


# A role may also become any role it is a member of, so those count as itself. Whoever owns a
# function that policies ask, or the place where it lies, can put another in its stead.
_POWERS = """
select r.rolname,
  case
    when r.rolsuper then 'is a superuser'
    when r.rolbypassrls then 'bypasses row level security'
    when r.rolcreaterole then 'may create roles and give itself others'
    when r.rolreplication then 'may replicate the whole server'
    when r.rolname = 'pg_execute_server_program' then 'runs programs on the server'
    when r.rolname in ('pg_read_server_files', 'pg_write_server_files')
      then 'reads or writes files of the server'
    else 'owns ' || coalesce(
      (select format('the database %I', d.datname) from pg_database d
       where d.datdba = r.oid and d.datname = current_database()),
      (select format('%I.%I', n.nspname, c.relname)
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where c.relowner = r.oid and c.relkind in ('r', 'p', 'v', 'm', 'f')
         and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
       order by 1 limit 1),
      (select format('the function %I.%I', n.nspname, p.proname)
       from pg_proc p join pg_namespace n on n.oid = p.pronamespace
       where p.proowner = r.oid and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
       order by 1 limit 1),
      (select format('the schema %I', n.nspname) from pg_namespace n
       where n.nspowner = r.oid and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
       order by 1 limit 1))
  end
from pg_roles r
where pg_has_role(session_user, r.oid, 'member')
order by r.rolname <> session_user, r.rolname
"""


def role_problem(url: str) -> str | None:
    """Why row level security would not hold for the login of this address, or None."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        return login_problem(connection)


def login_problem(connection: psycopg.Connection) -> str | None:
    """The same for the login of a connection that is open."""
    rights = [row for row in connection.execute(_POWERS).fetchall() if row[1] is not None]
    me = connection.execute("select session_user").fetchone()
    if not rights or me is None:
        return None
    role, power = rights[0]
    via = "" if role == me[0] else f"can become {role}, which "
    return f"the role {me[0]} {via}{power}, so row level security would not hold"


def meaning(error: Exception) -> Meaning:
    """What to do after this error."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state is None:
        if isinstance(error, psycopg.DataError):
            return "data"  # the driver itself refuses the value
        return "retry" if isinstance(error, PASSING) else "bug"
    return MEANINGS.get(state) or MEANINGS.get(state[:2], "bug")


def is_data_error(error: psycopg.Error) -> bool:
    """Whether the statement can never succeed with this data; anything else may be tried again."""
    return meaning(error) == "data"


def is_outage(error: Exception) -> bool:
    """Whether it speaks of the database or of us, not of the data: no message is to blame."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return not is_data_error(error)
    return isinstance(error, PASSING)


_CERTIFICATE = (
    "the server's certificate is refused: renew it there if it has expired, or add its authority "
    "to the file that sslrootcert in the address names"
)


def first_line(error: BaseException) -> str:
    """What people read of an error. libpq does not say what is wrong with a certificate."""
    if "certificate verify failed" in str(error):
        return _CERTIFICATE
    return (str(error).splitlines() or [type(error).__name__])[0]


class Texts(list[bytes]):
    """A text[] parameter, its elements in binary form (pg_binary)."""

    oid, element = 1009, 25


class Uuids(list[bytes]):
    oid, element = 2951, 2950


class Byteas(list[bytes]):
    oid, element = 1001, 17


class Integers(list[bytes]):
    oid, element = 1007, 23


class Instants(list[bytes]):
    oid, element = 1185, 1184


class Floats(list[bytes]):
    oid, element = 1022, 701


class Booleans(list[bytes]):
    oid, element = 1000, 16


_TO_BINARY: dict[type[list[bytes]], Callable[[Any], bytes]] = {
    Texts: pg_binary.text,
    Uuids: pg_binary.uuid,
    Byteas: pg_binary.bytea,
    Integers: pg_binary.int4,
    Instants: pg_binary.timestamptz,
    Floats: pg_binary.float8,
    Booleans: pg_binary.boolean,
}


def packed(kind: type[T], values: Iterable[Any]) -> T:
    """These values, or None, as one of the parameters above."""
    to_binary = _TO_BINARY[kind]  # type: ignore[index]
    return kind(pg_binary.NULL if value is None else to_binary(value) for value in values)  # type: ignore[call-arg]


def _dumper(kind: Any) -> type[adapt.Dumper]:
    class Packed(adapt.Dumper):
        format = pq.Format.BINARY
        oid = kind.oid

        def dump(self, obj: Any) -> bytes:
            return pg_binary.array(kind.element, obj)

    return Packed


for _kind in _TO_BINARY:
    psycopg.adapters.register_dumper(_kind, _dumper(_kind))


async def copy(connection: Connection, sql: Any, rows: bytes) -> None:
    """Run `copy … from stdin (format binary)` with what pg_binary.copied made."""
    async with connection.cursor() as cursor, cursor.copy(sql) as link:
        await link.write(rows)


async def fetch_all(connection: Connection, sql: Any, *args: Any) -> list[TupleRow]:
    cursor = await connection.execute(sql, args or None)
    return await cursor.fetchall()


async def fetch_value(connection: Connection, sql: Any, *args: Any) -> Any:
    cursor = await connection.execute(sql, args or None)
    row = await cursor.fetchone()
    return row[0] if row else None


async def fetch_as(connection: Connection, kind: type[T], sql: Any, args: Any = None) -> list[T]:
    """The rows as objects of this class, by the names of the columns."""
    async with connection.cursor(row_factory=class_row(kind)) as cursor:
        await cursor.execute(sql, args)
        return await cursor.fetchall()


async def fetch_dicts(connection: Connection, sql: Any, args: Any = None) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql, args)
        return await cursor.fetchall()


def columns(rows: Collection[Any], *names: str) -> list[list[Any]]:
    """The attributes of these rows, a list each, for `unnest`; a name may have dots."""
    return [[get(row) for row in rows] for get in map(attrgetter, names)]


class _InUtc(DatetimeDumper):
    """A moment in UTC: Python knows zones of a day less a minute, PostgreSQL of 16 hours."""

    def dump(self, obj: datetime) -> Buffer | None:
        with suppress(OverflowError):  # the first and last hours of time stay as they are
            obj = obj.astimezone(UTC)
        return super().dump(obj)


psycopg.adapters.register_dumper(datetime, _InUtc)
