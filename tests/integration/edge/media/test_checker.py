"""Announced, uploaded, both or neither: what is right becomes stored, what is wrong lies aside."""

import hashlib
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import msgspec
import pytest

from farmiq.edge.media import handlers, store
from farmiq.lab.simulate import link
from farmiq.messages.media import MediaStored
from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.edge.media.conftest import (
    PLACE,
    Edge,
    jpeg,
    later,
    picture,
    rows,
    sha256,
)
from tests.support import databases, devices

OWNER = "t-cam/cam-1"


@pytest.mark.req("MD-05", "MD-13", "MD-15", "WV-14")
async def test_an_announced_image_is_stored_and_owed_to_the_cloud(edge: Edge) -> None:
    data, session = jpeg(), ids.new()
    media_id = await edge.upload(data, sessionId=str(session))
    outcome = await edge.announce(media_id, session_id=session, sha256=sha256(data).upper())
    assert (outcome.new_count, outcome.rejected) == (1, ())
    assert edge.status(media_id) == "presigned"
    assert await edge.checker.check_due() == 1
    (owed,) = edge.owed()
    told = msgspec.convert(
        {name: owed[name] for name in owed if name in MediaStored.__struct_fields__}, MediaStored,
        strict=False,
    )  # fmt: skip
    assert (told.media_id, told.size_bytes, told.sha256) == (media_id, len(data), sha256(data))
    assert told.path == told.object_key == edge.column("object_key", media_id)
    assert (told.bucket, owed["session_id"]) == ("farmiq-edge", session)
    assert edge.column("etag", media_id)
    assert await edge.checker.check_due() == 0
    assert edge.alerts() == set()


@pytest.mark.req("MD-06")
async def test_the_order_of_upload_and_announcement_does_not_matter(edge: Edge) -> None:
    """Announced first (it must not be): looked for again, an alert, cleared when it arrives."""
    data = jpeg()
    said = await edge.presigned(data)
    await edge.announce(said["media_id"])
    for ahead in ("0 s", "1 minute", "2 minutes", "3 minutes"):
        later(edge.database, ahead)
        await edge.checker.check_due()
    assert edge.status(said["media_id"]) == "missing"
    assert edge.alerts() == {("media.missing", OWNER)}
    assert edge.owed() == []
    assert (await edge.put(said, data)).status_code == 200
    later(edge.database, "1 day")
    assert await edge.checker.check_due() == 1
    assert edge.status(said["media_id"]) == "stored"
    assert edge.alerts() == set()
    assert len(edge.owed()) == 1


async def test_an_alert_stays_until_the_last_missing_image_came(edge: Edge) -> None:
    both = [await edge.presigned(jpeg(colour)) for colour in ("red", "blue")]
    for said in both:
        await edge.announce(said["media_id"])
    for ahead in ("0 s", "1 minute", "2 minutes", "3 minutes"):
        later(edge.database, ahead)
        await edge.checker.check_due()
    for said, colour, left in zip(
        both, ("red", "blue"), ({("media.missing", OWNER)}, set()), strict=True
    ):
        assert (await edge.put(said, jpeg(colour))).status_code == 200
        settled = await edge.presigned(jpeg(colour), mediaId=said["media_id"])
        assert settled["stored"]
        assert edge.alerts() == left


async def test_what_was_uploaded_and_never_announced_is_stored_too(edge: Edge) -> None:
    media_id = await edge.upload(jpeg())
    assert await edge.checker.check_due() == 0, "its address is still good"
    later(edge.database, "16 minutes")
    assert await edge.checker.check_due() == 1
    assert edge.status(media_id) == "stored"
    assert [owed["media_id"] for owed in edge.owed()] == [str(media_id)]
    await edge.announce(media_id)
    assert await edge.checker.check_due() == 0
    assert edge.column("announced_at", media_id) is not None
    assert len(edge.owed()) == 1


async def test_what_was_never_uploaded_is_forgotten_after_a_day(edge: Edge) -> None:
    said = await edge.presigned(jpeg())
    for ahead, left in (("16 minutes", 1), ("23 hours", 1), ("25 hours", 0)):
        later(edge.database, ahead)
        await edge.checker.check_due()
        assert len(rows(edge.database, "select from media_objects")) == left
    again = await edge.presigned(jpeg(), mediaId=said["media_id"])
    assert again["media_id"] == said["media_id"]
    assert edge.alerts() == set()


async def test_asking_again_after_days_never_loses_the_row(edge: Edge) -> None:
    data = jpeg()
    said = await edge.presigned(data)
    later(edge.database, "3 days")
    again = await edge.presigned(data, mediaId=said["media_id"])
    assert (await edge.put(again, data)).status_code == 200
    assert (await edge.presigned(data, mediaId=said["media_id"]))["stored"]


async def test_images_claimed_while_the_store_was_away_are_due_as_soon_as_it_is_back(
    edge: Edge, engines: dict[str, str]
) -> None:
    """Not only when the lease has ended, a minute later."""
    media_ids = [await edge.upload(jpeg(colour)) for colour in ("red", "blue")]
    for media_id in media_ids:
        await edge.announce(media_id)
    parts = urlsplit(engines["FARMIQ_EDGE_S3_URL"])
    login = parts.netloc.rpartition("@")[0]
    async with link.linked(parts.hostname or "", parts.port or 0) as line:
        there = parts._replace(netloc=f"{login}@127.0.0.1:{line.port_here}")
        checker = handlers.ImageChecker(edge.settings, edge.pool, objects.Bucket(urlunsplit(there)))
        line.refusing = True
        with pytest.raises(ExceptionGroup) as raised:
            await checker.check_due()
        assert raised.group_contains(objects.UNAVAILABLE)
        line.heal()
        assert await checker.check_due() == len(media_ids)
    assert [edge.status(media_id) for media_id in media_ids] == ["stored", "stored"]


@pytest.mark.req("MD-13")
@pytest.mark.parametrize(
    ("draw", "kind", "reason"),
    [
        (lambda: b"", "image/jpeg", "empty"),
        (lambda: b"hello, I am no image", "image/jpeg", "first bytes"),
        (lambda: jpeg()[:-2], "image/jpeg", "cut off"),
        (lambda: jpeg()[:300], "image/jpeg", "cut off"),
        (lambda: picture("PNG"), "image/jpeg", "its first bytes say image/png"),
        (lambda: picture("PNG")[:-20], "image/png", "cut off"),
        (lambda: picture("WEBP")[:-20], "image/webp", "cut off"),
        # Black and white: in colour that takes a second.
        (lambda: picture("PNG", size=(9000, 9000), mode="1"), "image/png", "pixels"),
    ],
    ids=["empty", "text", "no-end", "half", "mistyped", "png", "webp", "bomb"],
)
async def test_wrong_bytes_lie_aside_and_the_right_ones_may_follow(
    edge: Edge, draw: Callable[[], bytes], kind: str, reason: str
) -> None:
    """Without sha256 and length nothing but the look finds it; nothing is lost, nothing shown."""
    data = draw()
    body = edge.body(contentType=kind)
    said = (await edge.ask(body)).json()
    media_id = UUID(said["media_id"])
    assert (await edge.put(said, data)).status_code == 200
    await edge.announce(media_id)
    assert await edge.checker.check_due() == 1
    assert edge.status(media_id) == "missing"
    assert reason in edge.column("refused_reason", media_id)
    assert edge.alerts() == {("media.refused", OWNER)}
    assert await edge.bucket.get(edge.column("aside_key", media_id)) == data
    assert await edge.bucket.head(edge.column("object_key", media_id)) is None
    assert edge.owed() == []
    refused = await edge.get(f"/{media_id}")
    assert refused.status_code == 404
    assert reason in refused.json()["error"]["message"]
    again = (await edge.ask({**body, "mediaId": str(media_id)})).json()
    good = picture({"jpeg": "JPEG", "png": "PNG", "webp": "WEBP"}[kind.removeprefix("image/")])
    assert (await edge.put(again, good)).status_code == 200
    assert (await edge.ask({**body, "mediaId": str(media_id)})).json()["stored"]
    assert edge.alerts() == set()


async def test_refused_images_of_one_device_share_an_alert_that_closes_with_the_last(
    edge: Edge,
) -> None:
    asked = [(await edge.ask(edge.body())).json() for _ in range(2)]
    for said in asked:
        assert (await edge.put(said, b"no image")).status_code == 200
        await edge.announce(said["media_id"])
    while await edge.checker.check_due():
        pass
    assert edge.alerts() == {("media.refused", OWNER)}
    for said, left in zip(asked, ({("media.refused", OWNER)}, set()), strict=True):
        body = {**edge.body(), "mediaId": said["media_id"]}
        again = (await edge.ask(body)).json()
        assert (await edge.put(again, jpeg())).status_code == 200
        assert (await edge.ask(body)).json()["stored"]
        assert edge.alerts() == left


async def test_an_image_that_is_too_large_is_set_aside_unread(edge: Edge) -> None:
    strict = edge.settings.model_copy(update={"media_max_bytes": 500})
    strict_checker = handlers.ImageChecker(strict, edge.pool, edge.bucket)
    said = (await edge.ask(edge.body())).json()
    assert (await edge.put(said, jpeg())).status_code == 200
    await edge.announce(said["media_id"])
    await strict_checker.check_due()
    assert "at most 500" in edge.column("refused_reason", said["media_id"])


@pytest.mark.req("MD-13")
@pytest.mark.parametrize(
    "more",
    [
        {"sha256": hashlib.sha256(b"other").hexdigest()},
        {"size_bytes": 7},
        {"content_type": "image/png"},
    ],
)
async def test_an_announcement_that_says_something_else_sets_it_aside(
    edge: Edge, more: dict[str, Any]
) -> None:
    media_id = await edge.upload(jpeg())
    await edge.announce(media_id, **more)
    await edge.checker.check_due()
    assert edge.status(media_id) == "missing"
    assert "its announcement says" in edge.column("refused_reason", media_id)


async def test_an_image_that_nobody_asked_about_is_noted_and_missed(edge: Edge) -> None:
    media_id, session = ids.new(), ids.new()
    outcome = await edge.announce(media_id, session_id=session)
    assert outcome.rejected == ()
    assert (edge.status(media_id), edge.column("session_id", media_id)) == ("missing", session)
    for ahead in ("0 s", "1 minute", "2 minutes"):
        later(edge.database, ahead)
        await edge.checker.check_due()
    assert edge.alerts() == {("media.missing", OWNER)}
    # Its device can still bring it.
    data = jpeg()
    body = edge.body(data, mediaId=str(media_id), sessionId=str(session))
    said = (await edge.ask(body)).json()
    assert (await edge.put(said, data)).status_code == 200
    assert (await edge.ask(body)).json()["stored"]
    assert edge.alerts() == set()
    assert "/images/2026/11/15/" in edge.column("object_key", media_id)
    assert edge.column("captured_at", media_id).isoformat().startswith("2026-11-15T08:00")


async def test_anothers_image_and_anothers_session_change_nothing(edge: Edge) -> None:
    session = ids.new()
    media_id = await edge.store(jpeg(), sessionId=str(session))
    there = Place(PLACE.tenant_id, "f-1", "b-1", "cam-2")
    devices.register(edge.database.admin_url, [devices.at(there, kind="station")])
    await edge.announce(media_id, place=there)
    assert ("media.not_its_own", "t-cam/cam-2") in edge.alerts()
    await edge.announce(media_id, session_id=ids.new(), sha256="0" * 64)
    assert edge.column("session_id", media_id) == session
    assert edge.alerts() >= {
        ("media.session_differs", OWNER),
        ("media.announcement_differs", OWNER),
    }
    assert edge.status(media_id) == "stored"


async def test_the_same_announcement_twice_and_two_loops_give_one_event(edge: Edge) -> None:
    media_id = await edge.upload(jpeg())
    for _ in range(3):
        await edge.announce(media_id)
    with databases.connected(edge.database.admin_url) as owner:
        image_row = owner.execute("select count(*) from media_objects").fetchone()
    assert image_row == (1,)
    other = handlers.ImageChecker(edge.settings, edge.pool, edge.bucket)
    async with edge.pool.connection() as connection:
        image = await store.by_id(connection, media_id)
    assert image is not None
    assert [await each.check(image) for each in (edge.checker, other, edge.checker)] == [True] * 3
    assert len(edge.owed()) == 1


@pytest.mark.req("MD-06", "MD-15")
@pytest.mark.parametrize("seed", range(8))
async def test_any_order_and_any_repetition_ends_in_one_image_and_one_event(
    edge: Edge, seed: int
) -> None:
    """Upload, announcements, looks and repeated questions, shuffled; the clock goes on between."""
    data, session = jpeg("red", comment=str(seed).encode()), ids.new()
    body = {"mediaId": str(ids.new()), "sessionId": str(session)}
    hours = iter(range(1, 100))

    async def upload() -> None:
        said = await edge.presigned(data, **body)
        assert (await edge.put(said, data)).status_code in (200, 412)

    async def announce() -> None:
        await edge.announce(body["mediaId"], session_id=session, sha256=sha256(data))

    async def look() -> None:
        later(edge.database, f"{next(hours)} hours")
        await edge.checker.check_due()

    async def ask() -> None:
        await edge.presigned(data, **body)

    steps = [upload, upload, announce, announce, look, look, look, ask, ask]
    random.Random(seed).shuffle(steps)
    for step in steps:
        await step()
    await look()
    assert edge.status(body["mediaId"]) == "stored"
    (owed,) = edge.owed()
    assert (owed["media_id"], owed["session_id"]) == (body["mediaId"], session)
    assert edge.alerts() == set()


@pytest.mark.req("DB-08", "DB-09")
def test_the_table_is_the_documented_one(edge_db: Database) -> None:
    columns = rows(
        edge_db,
        "select column_name, data_type, is_nullable from information_schema.columns "
        "where table_name = 'media_objects'",
    )
    found = {name: (kind, nullable == "YES") for name, kind, nullable in columns}
    text, moment = "text", "timestamp with time zone"
    documented = {
        "id": ("uuid", False), "tenant_id": (text, False), "farm_id": (text, False),
        "barn_id": (text, False), "device_id": (text, False), "session_id": ("uuid", True),
        "bucket": (text, False), "object_key": (text, False), "etag": (text, True),
        "mime_type": (text, False), "size_bytes": ("bigint", True), "captured_at": (moment, False),
        "created_at": (moment, False), "sha256": (text, True),
    }  # fmt: skip
    assert found.items() >= documented.items()
    indexes = [
        text
        for (text,) in rows(
            edge_db, "select indexdef from pg_indexes where tablename = 'media_objects'"
        )
    ]
    for wanted in ("(tenant_id, session_id)", "(tenant_id, device_id, captured_at DESC)"):
        assert any(wanted in index for index in indexes)
