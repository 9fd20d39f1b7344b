"""What weigh sessions wait for, by the edge's clock; how long they are kept."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from farmiq.edge import alerts
from farmiq.edge.ingress import handlers
from farmiq.edge.weighvision import jobs, service
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.edge.test_quarantine import ahead, settings
from tests.integration.edge.weighvision.conftest import NEIGHBOUR, Weighing, rows, upload
from tests.support import databases

PATIENCE_S = 600.0
ALERTS = "select kind, subject, severity, seen_count, closed_at is null from alerts"
FLAG = "select is_incomplete, incomplete_reason, incomplete_at is not null from weight_sessions"


async def look(pool: db.Pool) -> dict[str, object]:
    return await jobs.flag_incomplete(pool, patience_s=PATIENCE_S)


def open_alert(*, seen: int = 1, is_open: bool = True) -> tuple[Any, ...]:
    subject = "t-1/f-1/b-1/st-1"
    return ("weighvision.session_incomplete", subject, "warning", seen, is_open)


@pytest.mark.req("SC-03")
@pytest.mark.parametrize(("seconds", "late"), [(599, False), (600, False), (601, True)])
async def test_session_without_an_image_is_incomplete_after_ten_minutes(
    pool: db.Pool, stations: Database, seconds: int, *, late: bool
) -> None:
    """In one transaction, in which the clock stands still."""
    one = Weighing()
    await handlers.commit(pool, [one.created(), one.weight(), one.finalized()])
    async with db.transaction(pool) as tx:
        await tx.execute(
            "update weight_sessions set received_at = fn_now() - %s, heard_at = fn_now() - %s",
            (timedelta(seconds=seconds),) * 2,
        )
        began_at = await db.fetch_value(tx, "select fn_now()")
        for _ in range(3):  # however often it is looked
            await jobs.evaluate_portion(tx, patience_s=PATIENCE_S, began_at=began_at)
    assert rows(stations, FLAG) == [(True, "image", True) if late else (False, None, False)]
    assert rows(stations, ALERTS) == ([open_alert()] if late else [])


@pytest.mark.req("SC-03")
async def test_incomplete_session_clears_when_the_image_is_stored(
    pool: db.Pool, stations: Database
) -> None:
    one = Weighing()
    image = ids.new()
    await handlers.commit(pool, [one.created(), one.weight(), one.captured(image), one.finalized()])
    ahead(stations, minutes=11)
    assert await look(pool) == {"flagged": 1, "cleared": 0}
    assert await look(pool) == {"flagged": 0, "cleared": 0}
    assert rows(stations, FLAG) == [(True, "image (announced, not uploaded)", True)]
    upload(stations, one, media_id=image)
    assert await look(pool) == {"flagged": 0, "cleared": 1}
    assert rows(stations, FLAG) == [(False, None, False)]
    assert rows(stations, ALERTS) == [open_alert(is_open=False)]
    assert rows(stations, "select is_settled from weight_sessions") == [(True,)]


async def test_session_that_becomes_incomplete_is_reported_once_each_time(
    pool: db.Pool, stations: Database
) -> None:
    one = Weighing()
    await handlers.commit(pool, [one.created(), one.weight()])
    for minutes in (11, 22):
        ahead(stations, minutes=minutes)
        await look(pool)
    incomplete = """
        select o.session_id, o.device_id, o.payload_json, w.received_at, o.occurred_at > w.heard_at
        from sync_outbox o join weight_sessions w on w.id = o.session_id
        where event_type = 'weighvision.session.incomplete' order by o.created_at
    """
    ((session_id, device_id, payload, received_at, is_later),) = rows(stations, incomplete)
    assert (session_id, device_id, is_later) == (one.session_id, one.place.device_id, True)
    assert datetime.fromisoformat(payload.pop("since")) == received_at
    assert payload == {
        "session_id": str(one.session_id), "missing": ["image", "finalized"], "station_id": "st-1"
    }  # fmt: skip
    image = upload(stations, one)
    await handlers.commit(pool, [one.captured(image), one.finalized(2)])
    await look(pool)
    assert rows(stations, FLAG) == [(False, None, False)]
    assert len(rows(stations, incomplete)) == 1
    ahead(stations, minutes=44)
    await look(pool)
    assert rows(stations, incomplete)[1][2]["missing"] == ["images: 1 of 2"]


@pytest.mark.req("SC-03", "MD-06")
async def test_part_that_arrives_is_removed_from_the_reason(
    pool: db.Pool, stations: Database
) -> None:
    """One alert all along; a replay after days starts its time when it arrives (C-27)."""
    one = Weighing(at=Weighing().at - timedelta(hours=72))
    image = upload(stations, one)
    created, captured, weight, end = (
        one.created(), one.captured(image), one.weight(), one.finalized(),
    )  # fmt: skip
    await handlers.commit(pool, [captured])
    await look(pool)
    assert rows(stations, FLAG) == [(False, None, False)]
    for minutes, message, reason in (
        (11, None, "created; weight; finalized"),
        (22, weight, "created; finalized"),
        (33, end, "created"),
        (44, created, None),
    ):
        if message:
            await handlers.commit(pool, [message])
            await look(pool)
        ahead(stations, minutes=minutes)
        await look(pool)
        assert rows(stations, "select incomplete_reason from weight_sessions") == [(reason,)]
        assert len(rows(stations, "select from alerts where closed_at is null")) == bool(reason)


@pytest.mark.req("WV-13")
async def test_session_with_fewer_images_than_counted_is_incomplete(
    pool: db.Pool, stations: Database
) -> None:
    one = Weighing()
    first, second = upload(stations, one), ids.new()
    await handlers.commit(
        pool,
        [one.created(), one.weight(), one.captured(first), one.finalized(2)],
    )
    ahead(stations, minutes=11)
    await look(pool)
    assert rows(stations, FLAG) == [(True, "images: 1 of 2", True)]
    upload(stations, one, media_id=second)
    await look(pool)
    assert rows(stations, FLAG) == [(True, "images: 1 of 2", True)]  # not announced yet
    await handlers.commit(pool, [one.captured(second)])
    await look(pool)
    assert rows(stations, FLAG) == [(False, None, False)]


@pytest.mark.req("SC-02")
async def test_image_of_another_device_or_session_is_not_bound(
    pool: db.Pool, stations: Database
) -> None:
    one, other = Weighing(), Weighing()
    foreign = upload(stations, Weighing(place=NEIGHBOUR, session_id=one.session_id))
    elsewhere = upload(stations, other)
    messages = [one.created(), one.weight(), one.finalized(3)]
    messages += [one.captured(image) for image in (foreign, elsewhere)]
    await handlers.commit(pool, messages)
    ahead(stations, minutes=11)
    await look(pool)
    assert rows(stations, FLAG) == [(True, "image (announced, not uploaded)", True)]
    # One that was uploaded for no session is bound by the topic that announces it.
    await handlers.commit(pool, [one.captured(upload(stations, one, session_id=None))])
    ahead(stations, minutes=22)
    await look(pool)
    assert rows(stations, FLAG) == [(True, "images: 1 of 3", True)]


async def test_cancelled_session_is_not_incomplete(pool: db.Pool, stations: Database) -> None:
    await handlers.commit(pool, [Weighing().cancelled()])
    ahead(stations, minutes=11)
    assert await look(pool) == {"flagged": 0, "cleared": 0}
    assert rows(stations, "select is_settled from weight_sessions") == [(True,)]


async def test_sessions_are_evaluated_in_portions_once_a_round(
    pool: db.Pool, stations: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PORTION", 7)
    await handlers.commit(pool, [Weighing().created() for _ in range(50)])
    assert await look(pool) == {"flagged": 0, "cleared": 0}
    ahead(stations, minutes=11)
    assert await look(pool) == {"flagged": 50, "cleared": 0}
    assert await look(pool) == {"flagged": 0, "cleared": 0}
    assert rows(stations, "select count(*), max(seen_count) from alerts") == [(1, 50)]


async def test_sessions_of_one_station_share_an_alert_that_closes_with_the_last(
    pool: db.Pool, stations: Database
) -> None:
    sessions = [Weighing(), Weighing(), Weighing(place=NEIGHBOUR)]
    await handlers.commit(
        pool, [message for one in sessions for message in (one.created(), one.weight())]
    )
    ahead(stations, minutes=11)
    await look(pool)
    counted = "select subject, seen_count from alerts where closed_at is null order by 1"
    assert rows(stations, counted) == [("t-1/f-1/b-1/st-1", 2), ("t-1/f-1/b-1/st-2", 1)]
    await handlers.commit(pool, [sessions[0].cancelled()])
    await look(pool)
    ((message,),) = rows(
        stations, "select message from alerts where subject like '%%st-1' and closed_at is null"
    )
    assert message.startswith("a weigh session of station st-1")
    await handlers.commit(pool, [sessions[1].cancelled()])
    await look(pool)
    assert rows(stations, counted) == [("t-1/f-1/b-1/st-2", 1)]


async def test_an_incomplete_alert_that_a_person_closed_opens_again_only_for_a_new_session(
    pool: db.Pool, stations: Database
) -> None:
    opened = "select seen_count from alerts where closed_at is null"
    await handlers.commit(pool, [Weighing().created()])
    ahead(stations, minutes=11)
    await look(pool)
    async with db.transaction(pool) as tx:
        await alerts.close_chosen(tx, alerts.Filter(jobs.INCOMPLETE, exact=True), by="Ann")
    await jobs.count(pool)
    assert rows(stations, opened) == []
    await handlers.commit(pool, [Weighing().created()])
    ahead(stations, minutes=22)
    await look(pool)
    assert rows(stations, opened) == [(1,)]


async def test_alerts_of_single_sessions_as_older_versions_raised_them_become_one(
    pool: db.Pool, stations: Database
) -> None:
    await handlers.commit(pool, [Weighing().created() for _ in range(3)])
    ahead(stations, minutes=11)
    await look(pool)
    with databases.connected(stations.admin_url) as owner:
        owner.execute("delete from alerts")
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message) select "
            "gen_random_uuid(), %s, 't-1/' || id, 'warning', 'old' from weight_sessions",
            (jobs.INCOMPLETE,),
        )
    await jobs.count(pool)
    opened = "select subject, seen_count from alerts where closed_at is null"
    assert rows(stations, opened) == [("t-1/f-1/b-1/st-1", 3)]


async def test_images_without_their_session_are_counted(pool: db.Pool, stations: Database) -> None:
    one = Weighing()
    upload(stations, one)
    await jobs.count(pool)
    assert jobs.UNBOUND._value.get() == 1
    await handlers.commit(pool, [one.created()])
    await jobs.count(pool)
    assert jobs.UNBOUND._value.get() == 0


@pytest.mark.req("RT-12", "RT-13")
@pytest.mark.parametrize("days", [400, 7])
async def test_retention_deletes_ended_sessions_that_the_cloud_has(
    pool: db.Pool, stations: Database, days: int
) -> None:
    more = {} if days == 400 else {"WEIGHVISION_RETENTION_DAYS": str(days)}
    schedule = {each.name: each for each in service.all_jobs(pool, settings(stations, **more))}
    gone, owed, still_open, unsynced = (Weighing() for _ in range(4))
    upload(stations, unsynced)
    for each in (gone, unsynced):
        await handlers.commit(pool, [each.created(), each.finalized()])
    await handlers.commit(pool, [owed.finalized(), still_open.created()])
    with databases.connected(stations.admin_url) as owner:
        owner.execute("set local session_replication_role = replica")
        owner.execute(
            "update sync_outbox set status = 'acked' where session_id <> %s", (owed.session_id,)
        )
    ahead(stations, minutes=11)
    await look(pool)
    ahead(stations, days=days - 0.01)
    assert await schedule["weighvision.retention"].do() == {"count": 0}
    ahead(stations, days=days + 0.01)
    assert await schedule["weighvision.retention"].do() == {"count": 1}
    left = {row[0] for row in rows(stations, "select id from weight_sessions")}
    assert left == {owed.session_id, still_open.session_id, unsynced.session_id}
    await schedule["weighvision.count"].do()
    ((message,),) = rows(stations, "select message from alerts where closed_at is null")
    assert message.startswith("3 weigh sessions of station st-1")
