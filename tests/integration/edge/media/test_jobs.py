"""Images over their time, the net under it, rows against objects."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from farmiq.edge.media import jobs, store
from farmiq.plumbing import db, ids
from farmiq.plumbing.images.gallery import small_key
from tests.conftest import Database
from tests.integration.edge.media.conftest import Edge, jpeg, later, rows
from tests.support import databases


def synced(database: Database, *which: UUID) -> None:
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "update media_objects set synced_at = now() where id = any(%s)", (list(which),)
        )


def session(database: Database, status: str) -> UUID:
    made = ids.new()
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
            "status, start_at) values (%s, 't-cam', 'f-1', 'b-1', 'cam-1', 'st-1', %s, now())",
            (made, status),
        )
    return made


def left(edge: Edge) -> set[UUID]:
    return {row[0] for row in rows(edge.database, "select id from media_objects")}


def now() -> str:
    return datetime.now(UTC).isoformat()


@pytest.mark.req("RT-03", "RT-08")
async def test_object_and_row_go_after_their_time_and_never_before_the_cloud_has_them(
    edge: Edge,
) -> None:
    gone, unsynced = [await edge.store(jpeg(c), capturedAt=now()) for c in ("red", "blue")]
    synced(edge.database, gone)
    key = edge.column("object_key", gone)
    assert (await edge.get(f"/{gone}/thumbnail")).status_code == 200
    later(edge.database, "89 days")
    assert await jobs.purge(edge.pool, edge.bucket, edge.settings) == {"deleted": 0}
    later(edge.database, "91 days")
    assert await jobs.purge(edge.pool, edge.bucket, edge.settings) == {"deleted": 1}
    assert left(edge) == {unsynced}
    assert await edge.bucket.head(key) is None
    assert await edge.bucket.head(small_key(key)) is None
    assert await edge.bucket.head(edge.column("object_key", unsynced)) is not None


@pytest.mark.req("RT-08")
async def test_an_object_that_is_gone_already_is_fine(edge: Edge) -> None:
    media_id = await edge.store(jpeg(), capturedAt=now())
    synced(edge.database, media_id)
    await edge.bucket.delete(edge.column("object_key", media_id))
    later(edge.database, "91 days")
    assert await jobs.purge(edge.pool, edge.bucket, edge.settings) == {"deleted": 1}


@pytest.mark.req("RT-09")
@pytest.mark.parametrize("status", ["created", "finalized", "cancelled"])
@pytest.mark.parametrize("allowed", [False, True])
async def test_images_of_open_sessions_stay_unless_configured(
    edge: Edge,
    status: str,
    allowed: bool,  # noqa: FBT001
) -> None:
    of = session(edge.database, status)
    media_id = await edge.store(jpeg(), capturedAt=now(), sessionId=str(of))
    synced(edge.database, media_id)
    later(edge.database, "91 days")
    settings = edge.settings.model_copy(update={"media_open_sessions": allowed})
    await jobs.purge(edge.pool, edge.bucket, settings)
    assert (media_id in left(edge)) == (status == "created" and not allowed)


async def test_the_image_of_a_session_that_never_comes_goes_in_its_time(edge: Edge) -> None:
    media_id = await edge.store(jpeg(), capturedAt=now(), sessionId=str(ids.new()))
    synced(edge.database, media_id)
    later(edge.database, "91 days")
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == set()


@pytest.mark.req("RT-03")
@pytest.mark.parametrize("at", ["1970-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
async def test_a_wrong_clock_deletes_nothing_too_early_nor_never(edge: Edge, at: str) -> None:
    media_id = await edge.store(jpeg(), capturedAt=at)
    synced(edge.database, media_id)
    later(edge.database, "80 days")
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == {media_id}
    later(edge.database, "91 days")
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == set()


@pytest.mark.req("MD-14")
@pytest.mark.xdist_group("the bucket's own rule")
async def test_the_buckets_own_rule_is_a_net_that_never_takes_what_must_stay(edge: Edge) -> None:
    media_id = await edge.store(jpeg(), capturedAt=now())
    assert await jobs.set_bucket_rule(edge.pool, edge.bucket, edge.settings) == 120
    assert await edge.bucket.expiry() == {"tenants/": 120}
    later(edge.database, "91 days")
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == {media_id}
    assert await edge.bucket.expiry() == {}, "the cloud has not got it"
    synced(edge.database, media_id)
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == set()
    assert await edge.bucket.expiry() == {"tenants/": 120}
    await edge.bucket.expire("tenants/", days=None)


async def test_what_was_set_aside_goes_with_its_row(edge: Edge) -> None:
    said = (await edge.ask(edge.body(capturedAt=now()))).json()
    await edge.put(said, b"no image")
    await edge.announce(said["media_id"])
    await edge.checker.check_due()
    aside = edge.column("aside_key", said["media_id"])
    later(edge.database, "91 days")
    await jobs.purge(edge.pool, edge.bucket, edge.settings)
    assert left(edge) == set()
    assert await edge.bucket.head(aside) is None


async def test_rows_and_objects_are_compared(edge: Edge) -> None:
    good, gone, short, other = [
        await edge.store(jpeg(colour)) for colour in ("red", "blue", "green", "white")
    ]
    keys = {each: edge.column("object_key", each) for each in left(edge)}
    await edge.bucket.delete(keys[gone])
    await edge.bucket.put(keys[short], b"x", content_type="image/jpeg")
    data = bytearray(jpeg("white"))
    data[100] ^= 1
    await edge.bucket.put(keys[other], bytes(data), content_type="image/jpeg")
    stranger = f"tenants/t-{ids.new()}/x.jpg"
    await edge.bucket.put(stranger, b"x", content_type="image/jpeg")
    prefix = stranger.removesuffix("x.jpg")
    found = await jobs.verify(edge.pool, edge.bucket, prefix=prefix)
    assert (found.checked, found.gone, found.damaged) == (4, [str(gone)], [str(short)])
    assert found.unknown == [stranger]
    deep = await jobs.verify(edge.pool, edge.bucket, deep=True, prefix=prefix)
    assert set(deep.damaged) == {str(short), str(other)}
    await jobs.verify_and_alert(edge.pool, edge.bucket)
    assert edge.status(gone) == "missing"
    assert edge.status(good) == "stored"
    assert edge.alerts() >= {
        ("media.object_gone", "the edge's bucket"),
        ("media.object_damaged", "the edge's bucket"),
    }
    # Somebody restores the bucket: it is found again, and told to nobody twice.
    await edge.bucket.put(keys[gone], jpeg("blue"), content_type="image/jpeg")
    later(edge.database, "2 hours")
    await edge.checker.check_due()
    assert edge.status(gone) == "stored"
    assert len(edge.owed()) == 4
    await edge.bucket.delete(stranger)


async def test_progress_is_measured(edge: Edge) -> None:
    await edge.store(jpeg())
    await jobs.measure(edge.pool)
    assert jobs.UNSYNCED.labels(tenant_id="t-cam")._value.get() == 1


async def test_a_full_store_lets_the_oldest_go_that_the_cloud_has(edge: Edge) -> None:
    colours = ("red", "blue", "green", "white")
    first, unsynced, opened, last = [
        await edge.store(
            jpeg(colour),
            sessionId=str(session(edge.database, "created")) if colour == "green" else None,
        )
        for colour in colours
    ]
    synced(edge.database, first, opened, last)
    keys = {each: edge.column("object_key", each) for each in left(edge)}
    size = len(jpeg())

    async def shed(images: float) -> None:
        most = {"media_store_max_bytes": int(size * images)}
        await jobs.shed(edge.pool, edge.bucket, edge.settings.model_copy(update=most))

    await shed(4.5)
    assert len(left(edge)) == 4
    await shed(3.5)
    assert left(edge) == {unsynced, opened, last}
    assert await edge.bucket.head(keys[first]) is None
    await shed(0.5)
    assert left(edge) == {unsynced, opened}
    assert edge.alerts() == {("media.store_full", "the edge's bucket")}
    await shed(9)
    assert edge.alerts() == set()


async def test_rejected_uploads_count_in_the_budget_and_go_first(edge: Edge) -> None:
    good = await edge.store(jpeg())
    synced(edge.database, good)
    said = (await edge.ask(edge.body())).json()
    keys = []
    for rubbish in (b"no image" * 100, b"no image either" * 100):
        assert (await edge.put(said, rubbish)).status_code == 200
        await edge.announce(said["media_id"])
        await edge.checker.check_due()
        keys.append(edge.column("aside_key", said["media_id"]))
    assert await edge.bucket.head(keys[0]) is None, "only the last one is kept, and counted"
    async with db.transaction(edge.pool) as tx:
        assert await store.stored_bytes(tx) == len(jpeg()) + 1500
    most = {"media_store_max_bytes": len(jpeg()) + 1000}
    await jobs.shed(edge.pool, edge.bucket, edge.settings.model_copy(update=most))
    assert await edge.bucket.head(keys[1]) is None
    assert left(edge) == {good, UUID(said["media_id"])}
    assert edge.column("refused_reason", said["media_id"])


async def test_image_put_off_by_a_clock_ahead_is_looked_for_once_it_is_right(edge: Edge) -> None:
    said = (await edge.ask(edge.body())).json()
    assert (await edge.put(said, jpeg())).status_code == 200
    with databases.connected(edge.database.admin_url) as owner:
        owner.execute("update media_objects set check_at = fn_now() + interval '9 days'")
    assert await edge.checker.check_due() == 0
    assert await jobs.reset_future_checks(edge.pool, edge.settings) == {"count": 1}
    assert await jobs.reset_future_checks(edge.pool, edge.settings) == {"count": 0}
    assert await edge.checker.check_due() == 1
