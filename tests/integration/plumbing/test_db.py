"""PostgreSQL: a pool that outlives its server, a transaction that is whole or nothing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest
from psycopg import sql

from farmiq.plumbing import db, ids, pg_binary
from tests.conftest import Database
from tests.integration.plumbing.relay import relay
from tests.support.until import until


async def test_a_pool_waits_for_a_database_that_is_down_and_finds_it_again(
    edge_db: Database, free_port: Callable[[], int]
) -> None:
    async with (
        relay(edge_db.url, free_port()) as between,
        db.pool(between.url, name="waiting", timeout_s=0.1) as pool,
    ):
        assert "database does not answer" in (await db.problem(pool) or "")
        with pytest.raises(db.UNAVAILABLE):
            async with db.transaction(pool):
                pass

        await between.up()
        await until(lambda: _answers(pool))

        await between.down()
        assert await db.problem(pool) is not None

        await between.up()
        await until(lambda: _answers(pool))


async def _answers(pool: db.Pool) -> bool:
    return await db.problem(pool) is None


async def test_after_a_long_outage_the_next_attempt_is_not_far_away(edge_db: Database) -> None:
    """The pool doubles its pauses for as long as one attempt lasts, so an attempt must end."""
    async with db.pool(edge_db.url, name="patient") as pool:
        assert pool.reconnect_timeout <= 10


async def test_moments_of_a_pool_are_in_utc_whatever_the_logins_zone(edge_db: Database) -> None:
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute(
            sql.SQL("alter database {} set timezone to 'Asia/Bangkok'").format(
                sql.Identifier(owner.info.dbname)
            )
        )
    async with db.pool(edge_db.url, name="test") as pool, pool.connection() as connection:
        at: datetime = await db.fetch_value(connection, "select now()")
    assert at.utcoffset() == timedelta(0)


async def test_a_failed_transaction_leaves_nothing(edge_db: Database) -> None:
    async with db.pool(edge_db.admin_url, name="test") as pool:
        async with db.transaction(pool) as tx:
            await tx.execute("create table kept (n int primary key)")
            await tx.execute("insert into kept values (1)")

        with pytest.raises(ZeroDivisionError):
            await _insert(pool, 2, fail=True)
        with pytest.raises(psycopg.errors.UniqueViolation):
            await _insert(pool, 3, 1)

        async with db.transaction(pool) as tx:
            assert await db.fetch_all(tx, "select n from kept") == [(1,)]
            assert await db.fetch_value(tx, "select n from kept where n = %s", 1) == 1
            assert await db.fetch_value(tx, "select n from kept where n = %s", 9) is None


async def _insert(pool: db.Pool, *numbers: int, fail: bool = False) -> None:
    async with db.transaction(pool) as tx:
        for number in numbers:
            await tx.execute("insert into kept values (%s)", (number,))
        if fail:
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("statement", "is_data"),
    [
        ("select 1 / 0", True),
        ("select 'x'::int", True),
        ("select repeat('x', 10)::varchar(3)::jsonb", True),
        ("""select '{"a": "\\u0000"}'::jsonb""", True),
        ("insert into one values (1), (1)", True),
        ("insert into one values (null)", True),
        ("select nonsense", False),
        ("select * from missing", False),
        ("set statement_timeout = 1; select pg_sleep(5)", False),
        ("select pg_terminate_backend(pg_backend_pid())", False),
    ],
)
async def test_database_error_is_classified_as_data_or_outage(
    edge_db: Database, statement: str, *, is_data: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(edge_db.admin_url) as connection:
        await connection.execute("create temporary table one (n int primary key)")
        with pytest.raises(psycopg.Error) as failed:
            await connection.execute(statement.encode())

    assert db.is_data_error(failed.value) is is_data


async def test_the_first_line_of_an_error_is_short() -> None:
    assert db.first_line(ValueError("first\nsecond")) == "first"
    assert db.first_line(ValueError()) == "ValueError"


async def test_values_in_binary_form_are_read_as_what_they_are(edge_db: Database) -> None:
    """By COPY and in arrays: what is encoded by us and what psycopg reads are the same."""
    event_id, at = ids.new(), datetime(1970, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = (
        pg_binary.uuid(event_id), pg_binary.text("ä\u20ac"), pg_binary.names("x", None, ""),
        pg_binary.timestamptz(at), pg_binary.float8(-1.5e-7), pg_binary.int4(-7),
        pg_binary.boolean(True), pg_binary.jsonb(b'{"a": [1, "b"]}'), pg_binary.bytea(b"\x00\xff"),
    )  # fmt: skip
    async with db.pool(edge_db.url, name="test") as pool, db.transaction(pool) as tx:
        await tx.execute("""
            create temporary table kinds (a uuid, b text, c text, d text, e text,
              f timestamptz, g float8, h int4, i boolean, j jsonb, k bytea)
        """)
        copied = pg_binary.copied([row, row], columns=11)
        await db.copy(tx, "copy kinds from stdin (format binary)", copied)
        found = await db.fetch_all(tx, "select * from kinds")
        arrays = await db.fetch_all(
            tx,
            "select * from unnest(%s::text[], %s::uuid[], %s::bytea[], %s::timestamptz[], "
            "%s::float8[], %s::bool[])",
            db.Texts([pg_binary.text("a"), pg_binary.names(None)]),
            db.Uuids([pg_binary.uuid(event_id)] * 2),
            db.Byteas([pg_binary.bytea(b""), pg_binary.bytea(b"\x01")]),
            db.Instants([pg_binary.timestamptz(at)] * 2),
            db.Floats([pg_binary.float8(1.5), pg_binary.float8(0)]),
            db.Booleans([pg_binary.boolean(True), pg_binary.boolean(False)]),
        )

    one = (event_id, "ä\u20ac", "x", None, "", at, -1.5e-7, -7, True, {"a": [1, "b"]}, b"\x00\xff")
    assert found == [one, one]
    assert arrays == [
        ("a", event_id, b"", at, 1.5, True),
        (None, event_id, b"\x01", at, 0.0, False),
    ]


@pytest.mark.parametrize("hours", [-23, 0, 5, 16, 19, 23])
async def test_timestamp_of_any_zone_is_stored_as_the_same_instant(
    edge_db: Database, hours: int
) -> None:
    """PostgreSQL itself takes no zone of 16 hours and more."""
    at = datetime(2025, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=hours)))
    async with db.pool(edge_db.url, name="test") as pool, db.transaction(pool) as tx:
        query = "select %s::timestamptz, (%s::timestamptz[])[1]"
        ((alone, listed),) = await db.fetch_all(tx, query, at, [at])
        first = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
        assert await db.fetch_value(tx, "select %s::timestamptz < '0001-01-01'", first)
    assert (alone, listed) == (at, at)
