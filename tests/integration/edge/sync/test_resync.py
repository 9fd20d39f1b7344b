"""Resync against clouds that are away, refuse an event or break on one; the outbox stays."""

from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.resync import ResyncFilter, ResyncResult, StoppedError, resync
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.sync import owed
from tests.integration.edge.sync.owed import Answer, accept, event, force, owe, rows, sent

DAY = ResyncFilter(owed.BORN, owed.BORN + timedelta(days=1))
ERROR = {"code": "X", "message": "not so"}


async def run(
    pool: db.Pool, settings: EdgeSettings, answer: Answer, wish: ResyncFilter = DAY
) -> ResyncResult:
    quick = settings.model_copy(update={"sync_breaker_s": 0.01, "sync_batch": 4})
    transport = httpx2.MockTransport(answer)
    async with Cloud(lambda: httpx2.AsyncClient(transport=transport), quick) as cloud:
        return await resync(pool, cloud, quick, wish, rate_per_s=1e6, actor="test")


async def delivered(pool: db.Pool, database: Database, count: int) -> list[str]:
    """Events of two minutes each other, all acknowledged, and one that is not."""
    ids = await owe(pool, *(event(minutes=minute // 2) for minute in range(count)))
    force(database, "update sync_outbox set status = 'acked'")
    await owe(pool, event())
    return [str(each) for each in ids]


async def test_what_was_delivered_goes_again_in_order_marked_and_once_each(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    ids = await delivered(pool, edge_db, 10)
    batches: list[dict[str, Any]] = []

    def take(request: httpx2.Request) -> httpx2.Response:
        batches.append(sent(request))
        return accept(request)

    before = rows(edge_db, "select id, status, updated_at from sync_outbox order by 1")
    assert await run(pool, settings, take) == ResyncResult(sent=10)
    assert [len(batch["events"]) for batch in batches] == [4, 4, 2]
    assert all(batch["republish"] is True for batch in batches)
    events = [each for batch in batches for each in batch["events"]]
    assert sorted(each["event_id"] for each in events) == sorted(ids)
    assert [each["occurred_at"] for each in events] == sorted(
        each["occurred_at"] for each in events
    )
    assert rows(edge_db, "select id, status, updated_at from sync_outbox order by 1") == before


async def test_a_cloud_that_is_away_for_a_moment_costs_nothing(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await delivered(pool, edge_db, 4)
    answers = iter([503, 429])

    def busy(request: httpx2.Request) -> httpx2.Response:
        status = next(answers, None)
        return httpx2.Response(status, json={"error": ERROR}) if status else accept(request)

    assert await run(pool, settings, busy) == ResyncResult(sent=4)


@pytest.mark.parametrize("status", [401, 403, 503])
async def test_a_cloud_that_stays_away_ends_it_with_the_place_to_go_on_from(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database, status: int
) -> None:
    await delivered(pool, edge_db, 8)
    taken: list[int] = []

    def first_only(request: httpx2.Request) -> httpx2.Response:
        taken.append(len(sent(request)["events"]))
        return (
            accept(request) if len(taken) == 1 else httpx2.Response(status, json={"error": ERROR})
        )

    with pytest.raises(StoppedError, match=rf"HTTP_{status}: not so.* --from 2025-01-01T00:02:00,"):
        await run(pool, settings, first_only)
    noted = "select detail->>'sent' from audit_log where action = 'sync.resync.ended'"
    assert rows(edge_db, noted) == [("4",)]


async def test_one_event_that_is_refused_or_breaks_the_cloud_is_counted_and_left_out(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    ids = await delivered(pool, edge_db, 8)
    refused, deadly = ids[1], ids[6]
    got: set[str] = set()

    def picky(request: httpx2.Request) -> httpx2.Response:
        batch = [each["event_id"] for each in sent(request)["events"]]
        if deadly in batch:
            return httpx2.Response(500, json={"error": ERROR})
        if refused in batch:
            details = [{"index": batch.index(refused), "reason": "odd"}]
            return httpx2.Response(400, json={"error": {**ERROR, "details": details}})
        got.update(batch)
        return accept(request)

    assert await run(pool, settings, picky) == ResyncResult(sent=6, refused=2)
    assert got == set(ids) - {refused, deadly}


async def test_a_cloud_that_fails_on_everything_is_asked_a_few_times_and_then_left_alone(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    await delivered(pool, edge_db, 60)
    asked: list[int] = []

    def broken(request: httpx2.Request) -> httpx2.Response:
        asked.append(len(sent(request)["events"]))
        return httpx2.Response(500, json={"error": ERROR})

    with pytest.raises(StoppedError, match="CLOUD_BROKEN: HTTP_500"):
        await run(pool, settings, broken)
    assert len(asked) < 30


async def test_only_the_tenant_and_the_device_that_are_meant(
    settings: EdgeSettings, pool: db.Pool, edge_db: Database
) -> None:
    mine = msgspec.structs.replace(event(), device_id="d-2")
    await owe(pool, mine, event(), msgspec.structs.replace(event("t-2"), device_id="d-2"))
    force(edge_db, "update sync_outbox set status = 'acked'")
    got: list[str] = []

    def take(request: httpx2.Request) -> httpx2.Response:
        got.extend(each["event_id"] for each in sent(request)["events"])
        return accept(request)

    wish = ResyncFilter(DAY.since, DAY.until, tenant_id="t-1", device_id="d-2")
    assert await run(pool, settings, take, wish) == ResyncResult(sent=1)
    assert got == [str(mine.event_id)]
