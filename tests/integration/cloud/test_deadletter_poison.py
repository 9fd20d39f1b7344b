"""Letters with properties that nobody can decode or keep: listed, shown, moved, in no one's way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

import pytest

from farmiq.cloud import bus, sink
from farmiq.cloud.deadletter import handlers, store
from farmiq.cloud.deadletter.rules import BusFilter
from farmiq.cloud.feed import service as feed
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus.delivery import Properties
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter import (
    OF_FEED,
    PILE,
    bury,
    dlq,
    has,
    patient,
    url_of,
)
from tests.integration.cloud.test_sinks import kept, sample, written
from tests.integration.plumbing.test_poison import UNREADABLE, Raw
from tests.support.until import until

__all__ = ["bury", "patient"]  # fixtures


async def put(cloud: CloudSite, queue: str, *messages: tuple[bytes, Properties]) -> None:
    async with amqp.connection(url_of(cloud), name="test") as opened:
        await amqp.ensure(opened, OF_FEED)
        outbox = await consume.confirming(opened)
        for body, properties in messages:
            await consume.publish(outbox, queue, body, properties)


@pytest.mark.req("RB-26", "RB-27")
async def test_a_poison_letter_is_counted_shown_and_redriven_without_what_nobody_can_read(
    cloud: CloudSite, tasks: asyncio.TaskGroup
) -> None:
    events = [sample("feed.lot.received") for _ in range(3)]
    poison, raw = written(events[1]), Raw(UNREADABLE["message_id"])
    await put(
        cloud, bus.FEED.queue,
        (written(events[0]), Properties()), (poison, raw), (written(events[2]), Properties()),
    )  # fmt: skip
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(cloud.settings, server, feed.EVENTS))
    await until(partial(has, url_of(cloud), PILE, 1))
    await until(lambda: len(kept(cloud, "feed_events")) == 2)

    code, said, problem = await dlq(cloud, "ls", "--json")
    assert code == 3, problem
    assert [each["count"] for each in json.loads(said)] == [1]
    await until(partial(has, url_of(cloud), PILE, 1))
    _, said, _ = await dlq(cloud, "show", "--body", "--json")
    (shown,) = json.loads(said)
    assert shown["body"].encode() == poison
    assert (shown["origin"], shown["attempts"]) == (bus.FEED.queue, 1)
    assert shown["unreadable"] == "message_id 69642dfffe"
    await until(partial(has, url_of(cloud), PILE, 1))
    code, said, problem = await dlq(cloud, "redrive", "--all", "--json")
    assert code == 0, problem
    assert "without what could not be read: message_id" in json.loads(said.splitlines()[0])["note"]
    await until(lambda: len(kept(cloud, "feed_events")) == 3)
    await until(partial(waiting_nowhere, cloud))


async def waiting_nowhere(cloud: CloudSite) -> bool:
    found = await amqp.depths(url_of(cloud), [PILE, bus.FEED.queue])
    return not any(found.values())


async def test_letters_that_the_broker_moved_as_they_are_can_be_discarded(
    cloud: CloudSite,
) -> None:
    odd = [(name.encode(), Raw(raw)) for name, raw in UNREADABLE.items()]
    await put(cloud, PILE, (b"1", Properties()), *odd, (b"3", Properties()))
    async with (
        amqp.connection(url_of(cloud), name="test") as opened,
        db.pool(cloud.database.url, name="test") as pool,
    ):
        order = handlers.Order("discard", BusFilter(queue=PILE), "test", 100, 1000.0, dry_run=False)
        async with aclosing(handlers.move(opened, pool, order)) as outcomes:
            found = [each async for each in outcomes]
    assert {each.done for each in found} == {"discarded"}
    assert sum(each.letter.unreadable is not None for each in found) == len(odd)
    await until(partial(has, url_of(cloud), PILE, 0))
    kept = {body for (body,) in cloud.rows("select body from dead_letter_actions")}
    assert kept == {b"1", b"3", *(body for body, _ in odd)}


async def test_a_nul_in_a_property_does_not_keep_a_letter_where_it_is(cloud: CloudSite) -> None:
    """And a letter that names a place that is none is not sent there."""
    nul = Properties(
        message_id="a\0b",
        headers={"retry-queue": "q\0", "retry-reason": "n\0o", "retry-failed-at": "\0"},
    )
    lost = Properties(headers={"retry-exchange": "nowhere", "retry-routing-key": "x" * 300})
    await put(cloud, PILE, (b"1", nul), (b"2", lost), (b"3", Properties()))
    code, said, problem = await dlq(cloud, "redrive", "--all", "--json")
    assert code == 3, problem
    assert json.loads(said.splitlines()[-1]) == {"summary": {"failed": 3}}
    await until(partial(has, url_of(cloud), PILE, 3))
    code, said, problem = await dlq(cloud, "discard", "--event-id", "ab")
    assert (code, said) == (0, "discarded 1\n"), problem
    assert cloud.rows(
        "select event_id, reason from dead_letter_actions where body is not null"
    ) == [("ab", "no")]
    await until(partial(has, url_of(cloud), PILE, 2))


async def test_a_letter_that_the_audit_cannot_take_stays_and_holds_no_other(
    cloud: CloudSite, bury: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(b"1", b"2", b"3")
    audit = store.audit

    async def refusing(tx: db.Connection, entries: list[store.AuditEntry]) -> None:
        await audit(tx, entries)
        if any(each.body == b"2" for each in entries):
            await tx.execute("select convert_from('\\x00', 'UTF8')")

    monkeypatch.setattr(store, "audit", refusing)
    async with (
        amqp.connection(url_of(cloud), name="test") as opened,
        db.pool(cloud.database.url, name="test") as pool,
    ):
        order = handlers.Order("discard", BusFilter(queue=PILE), "test", 10, 1000.0, dry_run=False)
        async with aclosing(handlers.move(opened, pool, order)) as outcomes:
            found = [each async for each in outcomes]
    assert [each.done for each in found] == ["discarded", "failed", "discarded"]
    assert "the audit cannot take it" in (found[1].why or "")
    await until(partial(has, url_of(cloud), PILE, 1))
