"""Messages of many cameras in one transaction: what one does wrong is its own matter."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from farmiq.cloud.camera.gateway import batches, chunks, handlers
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol import wire
from farmiq.plumbing import db
from tests.integration.cloud.camera_gateway.conftest import Site, now


@pytest.fixture
async def pool(site: Site) -> AsyncIterator[db.Pool]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as opened:
        yield opened


def said(mac: str, **body: Any) -> wire.RawMessage:
    return wire.RawMessage(f"device/{mac}/data", json.dumps(body).encode())


def announced(mac: str, number: int) -> wire.RawMessage:
    at = (now() - timedelta(seconds=60 - number)).isoformat()
    return said(mac, image_name=f"{number}.jpg", captured_at=at, total_chunks=2)


def chunk(mac: str, number: int, chunk_id: int = 0) -> wire.RawMessage:
    return said(mac, image_name=f"{number}.jpg", chunk_id=chunk_id, payload=[number] * 9)


async def test_rejection_between_announcements_rolls_back_only_itself(
    site: Site, pool: db.Pool
) -> None:
    well, homeless = (await site.camera()).mac, (await site.camera()).mac
    site.farm.owner.execute("update devices set site_id = null where mac = %s", (homeless,))
    site.farm.owner.execute(
        "delete from device_assignments a using devices d "
        "where d.device_id = a.device_id and d.mac = %s",
        (homeless,),
    )
    sent = [
        message
        for n in range(8)
        for message in (announced(well, n), announced(homeless, n), chunk(well, n))
    ]
    outcome = await batches.commit(pool, sent, Timing())
    assert (outcome.stored, [one.kind for one in outcome.rejected]) == (16, ["unassigned"] * 8)
    assert outcome.failed == (handlers.TOO_MANY_OPEN,) * 6
    receiving = "select image_name from device_images where status = 'receiving' order by 1"
    assert site.rows(receiving) == [("6.jpg",), ("7.jpg",)]
    assert site.rows("select count(*), sum(received_count) from camera_transfers") == [(8, 4)]
    assert site.rows("select count(*) from camera_chunks") == [(4,)]


async def test_chunks_before_their_announcement_count_in_the_same_transaction(
    site: Site, pool: db.Pool
) -> None:
    mac = (await site.camera()).mac
    await batches.commit(pool, [chunk(mac, 1), announced(mac, 1), chunk(mac, 1, 1)], Timing())
    assert site.rows("select received_count, total_chunks from camera_transfers") == [(2, 2)]
    assert site.rows("select count(*) from camera_chunks") == [(2,)]


async def test_rejected_announcement_changes_nothing(site: Site, pool: db.Pool) -> None:
    mac, at = (await site.camera()).mac, now().isoformat()
    first, other = (
        said(mac, image_name="1.jpg", captured_at=at, total_chunks=total, image_size=total * 9)
        for total in (2, 3)
    )
    for sent in ([first, chunk(mac, 1)], [other], [other, other], [first, other]) * 3:
        outcome = await batches.commit(pool, sent, Timing())
        assert [one.kind for one in outcome.rejected] == ["conflict"] * sent.count(other)
    assert site.rows("select total_chunks, image_size from device_images") == [(2, 18)]
    assert site.rows("select received_count, total_chunks from camera_transfers") == [(1, 2)]


async def test_chunk_that_contradicts_another_is_quarantined_with_its_bytes(
    site: Site, pool: db.Pool
) -> None:
    """Or nobody could look at it, or try it again."""
    mac = (await site.camera()).mac
    other = said(mac, image_name="1.jpg", chunk_id=0, payload=[2] * 9)
    sent = [announced(mac, 1), chunk(mac, 1), other, chunk(mac, 1)]
    await batches.commit(pool, sent, Timing())
    assert site.rows("select kind, topic, raw from camera_quarantine") == [
        ("conflict", other.topic, other.raw)
    ]


async def test_answers_use_the_last_spelling_of_the_address(site: Site, pool: db.Pool) -> None:
    mac = (await site.camera()).mac
    sent = announced(mac, 1)
    await batches.commit(pool, [sent], Timing())
    site.farm.owner.execute("update camera_transfers set state = 'complete', ended_at = fn_now()")
    dashed = "-".join(mac[at : at + 2] for at in range(0, 12, 2))
    await batches.commit(pool, [sent._replace(topic=f"device/{dashed}/data")], Timing())
    assert site.rows("select spelling, due_at is not null from camera_transfers") == [
        (dashed, True)
    ]


async def test_complete_images_that_wait_for_the_bucket_only_the_newest_stay(
    site: Site, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MAX_WHOLE", 3)
    mac = (await site.camera()).mac
    for n in range(5):
        await batches.commit(pool, [announced(mac, n), chunk(mac, n), chunk(mac, n, 1)], Timing())
    whole = "select image_name from camera_transfers where state = 'receiving' order by 1"
    assert site.rows(whole) == [("2.jpg",), ("3.jpg",), ("4.jpg",)]
    assert site.rows("select count(*) from device_images where status = 'failed'") == [(2,)]


async def test_error_of_an_earlier_statement_is_not_a_rejection_of_the_announcement(
    site: Site, pool: db.Pool
) -> None:
    mac = (await site.camera()).mac

    async def behind_a_failure() -> None:
        async with db.transaction(pool) as tx, tx.pipeline():
            await tx.execute("select 1 / 0")
            await batches.apply(tx, [announced(mac, 1)], Timing())

    with pytest.raises(psycopg.errors.DivisionByZero):
        await behind_a_failure()
    assert site.rows("select count(*) from device_images") == [(0,)]


async def test_announcement_with_a_bad_topic_beside_it_is_stored(site: Site, pool: db.Pool) -> None:
    mac = (await site.camera()).mac
    (outcome,) = await batches.commit_bisecting(
        pool, [announced(mac, 1), announced("112233", 2)], Timing()
    )
    assert (outcome.stored, len(outcome.rejected)) == (1, 1)


async def test_second_announcement_of_a_batch_that_contradicts_the_first_is_rejected(
    site: Site, pool: db.Pool
) -> None:
    mac, at = (await site.camera()).mac, now().isoformat()
    first, other = (
        said(mac, image_name="1.jpg", captured_at=at, total_chunks=2, chunk_size=size)
        for size in (9, 10)
    )
    outcome = await batches.commit(pool, [first, other, chunk(mac, 1)], Timing())
    assert [one.reasons for one in outcome.rejected] == [
        ["chunk_size of this image was 9 and is 10 now"]
    ]
    assert site.rows("select received_count, chunk_size from camera_transfers") == [(1, 9)]


async def test_statements_of_a_batch_do_not_grow_with_cameras(
    site: Site, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute, counts = psycopg.AsyncCursor.execute, Counter[int]()
    own = asyncio.current_task()

    def counted(size: int) -> Any:
        async def run(self: Any, *args: Any, **options: Any) -> Any:
            # The pool prepares connections in tasks of its own, whenever it likes.
            counts[size] += asyncio.current_task() is own
            return await execute(self, *args, **options)

        return run

    async with pool.connection():
        pass
    for size in (1, 8):
        macs = [(await site.camera()).mac for _ in range(size)]
        hellos = [wire.RawMessage(f"device/{mac}/status", b'{"pending_count": 0}') for mac in macs]
        sent = [message for mac in macs for message in (announced(mac, 1), chunk(mac, 1))]
        with monkeypatch.context() as patched:
            patched.setattr(psycopg.AsyncCursor, "execute", counted(size))
            outcome = await batches.commit(pool, hellos + sent, Timing())
        assert (outcome.stored, outcome.rejected) == (3 * size, ())
    assert counts[8] == counts[1]


async def test_two_hellos_of_a_batch_are_stored_as_one_with_what_the_last_one_leaves_out(
    site: Site, pool: db.Pool
) -> None:
    mac = (await site.camera()).mac
    bodies = (
        b'{"pending_count": 2, "battery_voltage": 3.5}',
        b'{"pending_count": 1, "firmware": "7"}',
    )
    sent = [wire.RawMessage(f"device/{mac}/status", body) for body in bodies]
    await batches.commit(pool, sent, Timing())
    noted = "select pending_count, battery_voltage, firmware from devices where mac = %s"
    assert site.rows(noted, mac) == [(1, 3.5, "7")]
