"""Orders that people give on a page: done once, for their own company, with every outcome."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from farmiq.cloud.deadletter.jobs import DeadLetterJob
from farmiq.cloud.deadletter.orders import CLAIM_S, Orders
from farmiq.plumbing import db, ids
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter import PILE, bury, has, patient, url_of
from tests.integration.cloud.test_sinks import sample, written
from tests.support.until import until

__all__ = ["bury", "patient"]  # fixtures

Bury = Callable[..., Awaitable[None]]
REASON = "value too long"


@pytest.fixture
async def pool(cloud: CloudSite) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud.database.url, name="test") as opened:
        yield opened


@pytest.fixture
def orders(cloud: CloudSite, pool: db.Pool) -> Orders:
    return Orders(cloud.settings, pool, DeadLetterJob(cloud.settings, pool))


def order(cloud: CloudSite, **changes: Any) -> str:
    order_id = str(ids.new())
    values = {
        "order_id": order_id,
        "tenant_id": "t-001",
        "action": "redrive",
        "dry_run": False,
        "queue": PILE,
        "reason": REASON,
        "event_ids": [],
        "note": "",
        "max_letters": 100,
        "rate_per_s": 50.0,
        "ordered_by": "anna@example.com",
        "ordered_at": datetime.now(UTC),
        **changes,
    }
    names = ", ".join(values)
    marks = ", ".join(f"%({name})s" for name in values)
    statement = f"insert into dead_letter_orders ({names}) values ({marks})"  # noqa: S608
    with psycopg.connect(cloud.database.url) as connection:
        connection.execute(statement.encode(), values)
    return order_id


@pytest.mark.req("DB2-20")
async def test_order_moves_letters_of_its_company_alone_and_says_what_became_of_each(
    cloud: CloudSite, bury: Bury, orders: Orders
) -> None:
    ours = [sample("feed.lot.received") for _ in range(3)]
    theirs = sample("feed.lot.received", tenant_id="t-002")
    await bury(*map(written, [*ours, theirs]), reason=REASON)
    await bury(written(sample("feed.lot.received")), reason="another reason")

    tried = order(cloud, dry_run=True)
    assert await orders.run_once() == {"order": tried}
    await until(partial(has, url_of(cloud), PILE, 5))
    assert cloud.rows("select count(*) from dead_letter_actions") == [(0,)]
    groups = "select tenant_id, reason, count, jsonb_array_length(letters) from dead_letter_groups"
    assert sorted(cloud.rows(groups)) == [
        ("t-001", "another reason", 1, 1),
        ("t-001", REASON, 3, 3),
        ("t-002", REASON, 1, 1),
    ]

    some = order(cloud, event_ids=[ours[0]["event_id"]])
    rest = order(cloud, action="discard", note="<b>they are wrong</b>")
    assert await orders.run_once() == {"order": some}
    assert await orders.run_once() == {"order": rest}
    assert await orders.run_once() == {}
    await until(partial(has, url_of(cloud), PILE, 2))
    found = cloud.rows(
        "select dry_run, action, state, done, failed, outcomes -> 0 ->> 'outcome', "
        "jsonb_array_length(outcomes) from dead_letter_orders order by order_id"
    )
    assert found == [
        (True, "redrive", "done", 3, 0, "would redrive", 3),
        (False, "redrive", "done", 1, 0, "redriven", 1),
        (False, "discard", "done", 2, 0, "discarded", 2),
    ]
    audit = cloud.rows("select actor, action, tenant_id, outcome from dead_letter_actions")
    assert sorted(audit) == [
        ("anna@example.com", "discard", "t-001", "discarded: <b>they are wrong</b>"),
        ("anna@example.com", "discard", "t-001", "discarded: <b>they are wrong</b>"),
        ("anna@example.com", "redrive", "t-001", "redriven"),
    ]
    assert sorted(cloud.rows(groups)) == [
        ("t-001", "another reason", 1, 1),
        ("t-002", REASON, 1, 1),
    ]


def states(cloud: CloudSite) -> dict[str, tuple[str, int]]:
    rows = cloud.rows("select order_id, state, done from dead_letter_orders")
    return {str(order_id): (state, done) for order_id, state, done in rows}


async def test_order_of_a_service_that_died_goes_on_and_one_without_a_bus_fails(
    cloud: CloudSite, bury: Bury, orders: Orders, pool: db.Pool
) -> None:
    await bury(*(written(sample("feed.lot.received")) for _ in range(3)), reason=REASON)
    over = order(cloud, state="running", claimed_until=datetime(2026, 1, 1, tzinfo=UTC), done=98)
    # Claimed while the clock was ahead.
    ahead = order(
        cloud, state="running", claimed_until=datetime.now(UTC) + timedelta(days=3), dry_run=True
    )
    held = order(
        cloud, state="running", claimed_until=datetime.now(UTC) + timedelta(seconds=CLAIM_S)
    )
    assert await orders.run_once() == {"order": over}
    assert await orders.run_once() == {"order": ahead}
    assert await orders.run_once() == {}
    # Of its hundred letters two were left; the other is somebody's who still works on it.
    assert states(cloud) == {
        over: ("done", 100), ahead: ("done", 1), held: ("running", 0),
    }  # fmt: skip

    away = cloud.settings.model_copy(update={"amqp_url": SecretStr("amqp://127.0.0.1:9")})
    failed = order(cloud)
    assert await Orders(away, pool, DeadLetterJob(away, pool)).run_once() == {"order": failed}
    assert states(cloud)[failed] == ("failed", 0)
    ((error,),) = cloud.rows("select error from dead_letter_orders where error is not null")
    assert error.startswith("the message bus does not answer")
