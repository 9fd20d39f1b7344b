"""Redrive: the door's own path, once more; killed anywhere it loses and doubles nothing."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.edge.ingress import handlers, quarantine
from farmiq.edge.ingress.quarantine import Quarantine
from farmiq.messages import topics
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, deadletters, ids
from farmiq.plumbing.deadletters import Filter, Result
from tests.conftest import Database
from tests.integration.edge.test_ingress import TOPIC, message, rows
from tests.integration.edge.test_quarantine import ahead
from tests.support import databases, preloaded
from tests.support.until import until

ALL: Filter = {}


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


@contextmanager
def nobody_records_readings() -> Iterator[None]:
    """As before a version that knows them."""
    record = handlers.HANDLERS.pop("telemetry.reading")
    try:
        yield
    finally:
        handlers.HANDLERS["telemetry.reading"] = record


async def put_aside(pool: db.Pool, count: int) -> list[UUID]:
    events = [ids.new() for _ in range(count)]
    with nobody_records_readings():
        await handlers.commit(pool, [(TOPIC, message(event)) for event in events])
    return events


async def again(pool: db.Pool, chosen: Filter = ALL, **options: Any) -> Result:
    by = Quarantine(handlers.handle, "test")
    return await deadletters.redrive(pool, by, chosen, **{"limit": 10_000, **options})


def stored(database: Database) -> set[UUID]:
    return {row[0] for row in rows(database, "select id from telemetry_raw")}


async def test_what_is_right_now_is_stored_and_leaves(pool: db.Pool, edge_db: Database) -> None:
    events = await put_aside(pool, 250)
    assert stored(edge_db) == set()
    assert await again(pool) == Result(250, accepted=250)
    assert stored(edge_db) == set(events)
    assert rows(edge_db, "select count(*) from sync_outbox") == [(250,)]
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]
    assert await again(pool) == Result(0)


async def test_what_is_still_wrong_stays_with_the_reasons_of_today(
    pool: db.Pool, edge_db: Database
) -> None:
    await handlers.commit(pool, [(TOPIC, b"bad"), (TOPIC, b"bad")])
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update quarantine set reasons = array['of old'], gist = 'of old'")
    assert await again(pool) == Result(1, refused=1)
    ((reason, gist, received, redriven),) = rows(
        edge_db, "select reasons[1], gist, received_count, redriven_count from quarantine"
    )
    assert reason.startswith("not JSON")
    assert (gist, received, redriven) == ("not JSON", 2, 1)


async def test_a_message_that_waited_for_days_is_not_taken_for_a_wrong_clock(
    pool: db.Pool, edge_db: Database
) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    with nobody_records_readings():
        await handlers.commit(pool, [(TOPIC, message(ts=long_ago.isoformat()))])
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update quarantine set first_received_at = %s", (long_ago,))
    assert (await again(pool)).accepted == 1
    assert rows(edge_db, "select clock_suspect from telemetry_raw") == [(False,)]


async def test_one_that_came_again_meanwhile_has_one_effect(
    pool: db.Pool, edge_db: Database
) -> None:
    (event,) = await put_aside(pool, 1)
    ((raw,),) = rows(edge_db, "select raw from quarantine")
    await handlers.commit(pool, [(TOPIC, bytes(raw))])
    assert (await again(pool)).accepted == 1
    assert stored(edge_db) == {event}
    assert rows(edge_db, "select count(*) from sync_outbox") == [(1,)]
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]


async def test_what_was_cut_short_or_clashes_is_left_and_said(
    pool: db.Pool, edge_db: Database
) -> None:
    event = ids.new()
    other = message(event, payload={"value": 9, "unit": "C"})
    await handlers.commit(pool, [(TOPIC, message(event)), (TOPIC, other), (TOPIC, b"x" * 300_000)])
    assert await again(pool, dry_run=True) == Result(2, 1, 1, dry_run=True)
    assert await again(pool) == Result(2, 1, 1)
    assert rows(edge_db, "select count(*) from quarantine") == [(2,)]


async def test_an_id_that_only_the_outbox_remembers_does_not_make_a_message_vanish(
    pool: db.Pool, edge_db: Database
) -> None:
    """Its content may be another one: it stays, as a conflict."""
    (event,) = await put_aside(pool, 1)
    await handlers.commit(pool, [(TOPIC, message(event, payload={"value": 9, "unit": "C"}))])
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("delete from ingress_dedupe")
    assert await again(pool) == Result(1, refused=1)
    ((kind, reason),) = rows(edge_db, "select kind, reasons[1] from quarantine")
    assert kind == "conflict"
    assert "taken long ago" in reason


async def test_one_whose_data_break_the_transaction_stays_and_the_rest_goes(
    pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await put_aside(pool, 5)
    (record,) = handlers.HANDLERS["telemetry.reading"]

    async def allergic(tx: db.Connection, arrivals: Any) -> list[BusEvent]:
        if any(arrival.event.event_id == events[2] for arrival in arrivals):
            await tx.execute("select 1/0")
        return await record(tx, arrivals)

    monkeypatch.setitem(handlers.HANDLERS, "telemetry.reading", (allergic,))
    assert await again(pool) == Result(5, accepted=4, refused=1)
    assert stored(edge_db) == {*events} - {events[2]}
    ((kind, reason),) = rows(edge_db, "select kind, reasons[1] from quarantine")
    assert (kind, "division by zero" in reason) == ("database", True)


async def test_a_limit_takes_the_oldest(pool: db.Pool, edge_db: Database) -> None:
    events = [event for _ in range(4) for event in await put_aside(pool, 1)]
    assert (await again(pool, limit=2)).accepted == 2
    assert stored(edge_db) == set(events[:2])


async def test_filters_choose(pool: db.Pool, edge_db: Database) -> None:
    await put_aside(pool, 2)
    ahead(edge_db, hours=3)
    await put_aside(pool, 3)
    assert (await again(pool, {"older_than_hours": 1})).accepted == 2
    assert (await again(pool, {"topic": "iot/event/"})).chosen == 0
    assert (await again(pool, {"reason": "not recorded"})).accepted == 3


async def test_many_at_once_and_the_gateway_beside_them_have_one_effect_each(
    pool: db.Pool, edge_db: Database
) -> None:
    events = await put_aside(pool, 300)
    raws = [bytes(row[0]) for row in rows(edge_db, "select raw from quarantine order by 1")]

    async def taken(part: list[tuple[str, bytes]]) -> bool:
        """As the gateway does: again, as often as it takes."""
        try:
            await handlers.commit(pool, part)
        except psycopg.errors.DeadlockDetected:
            return False
        return True

    async def deliver() -> None:
        for start in range(0, len(raws), 20):
            part = [(TOPIC, raw) for raw in raws[start : start + 20]]
            await until(partial(taken, part))

    results = await asyncio.gather(again(pool), again(pool), deliver())
    assert stored(edge_db) == set(events)
    assert rows(edge_db, "select count(*) from sync_outbox") == [(300,)]
    done = sum(result.accepted for result in results if result is not None)
    left = rows(edge_db, "select count(*) from quarantine")[0][0]
    assert done + left == 300


class TestCommand:
    """`farmiq quarantine`, as a person types it."""

    @staticmethod
    def run(database: Database, *arguments: str, crash_at: str = "") -> Any:
        settings = {"FARMIQ_EDGE_DB_URL": database.url, "FARMIQ_CRASH_AT": crash_at}
        return preloaded.command("quarantine", *arguments, environment=settings)

    async def test_look_mend_redrive_discard(self, pool: db.Pool, edge_db: Database) -> None:
        events = await put_aside(pool, 2)
        await handlers.commit(pool, [(TOPIC, b"\x1b[31mbad")])
        listed = self.run(edge_db, "ls", "--json")
        assert listed.returncode == 3
        found = json.loads(listed.stdout)
        assert {each["kind"]: each["rows"] for each in found["counts"]} == {
            "not_recorded": 2,
            "format": 1,
        }
        bad = next(row for row in found["rows"] if row["kind"] == "format")
        shown = self.run(edge_db, "show", bad["quarantine_id"])
        assert (shown.returncode, "\x1b" in shown.stdout) == (0, False)
        assert "not JSON" in shown.stdout
        dry = self.run(edge_db, "redrive", "--all", "--dry-run")
        assert "3 of 3 would be tried" in dry.stdout
        done = self.run(edge_db, "redrive", "--all")
        assert (done.returncode, done.stdout) == (3, "2 accepted, 1 refused again\n")
        assert stored(edge_db) == set(events)
        gone = self.run(edge_db, "discard", bad["quarantine_id"])
        assert (gone.returncode, gone.stdout) == (0, "1 discarded\n")
        again = self.run(edge_db, "show", bad["quarantine_id"])
        assert (again.returncode, "farmiq quarantine ls" in again.stderr) == (1, True)
        audited = rows(edge_db, "select actor, action from audit_log order by at")
        assert [action for _, action in audited] == ["quarantine.redrive", "quarantine.discard"]
        assert all(actor.startswith("cli") for actor, _ in audited)

    def test_asked_wrongly(self) -> None:
        for arguments in (("ls", "--kind", "odd"), ("redrive",), ("discard",), ("show", "7")):
            assert CliRunner().invoke(app, ["quarantine", *arguments]).exit_code == 2

    @pytest.mark.parametrize("passes", [1, 2, 3])
    async def test_killed_in_redrive_nothing_is_lost_and_nothing_doubled(
        self, pool: db.Pool, edge_db: Database, passes: int
    ) -> None:
        events = await put_aside(pool, 2 * deadletters.BATCH + 50)
        before = rows(edge_db, "select count(*) from quarantine")[0][0]
        died = self.run(edge_db, "redrive", "--all", crash_at=f"quarantine.in_redrive:{passes}")
        assert died.returncode == -signal.SIGKILL, died.stderr
        done = (passes - 1) * deadletters.BATCH
        assert len(stored(edge_db)) == done
        assert rows(edge_db, "select count(*) from quarantine") == [(before - done,)]
        finished = self.run(edge_db, "redrive", "--all", "--json")
        assert (finished.returncode, json.loads(finished.stdout)["accepted"]) == (0, 250 - done)
        assert stored(edge_db) == set(events)
        assert rows(edge_db, "select count(*) from telemetry_raw") == [(len(events),)]
        assert rows(edge_db, "select count(*) from sync_outbox") == [(len(events),)]
        assert rows(edge_db, "select count(*) from quarantine") == [(0,)]


def test_the_longest_topic_that_is_kept_is_longer_than_any_that_is_right() -> None:
    """So a topic that was cut for the table can never become a right one in redrive."""
    assert quarantine._MAX_TOPIC > topics.MAX_TOPIC_BYTES
