"""Weighings, landed the way cloud-weighvision-service lands them, with pictures in the store."""

import asyncio
import functools
import hashlib
import io
import random
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import psycopg
from PIL import Image, ImageDraw

from farmiq.cloud.weighvision import store
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from tests.support import databases

ZONE = ZoneInfo("Asia/Bangkok")  # the company's, as barns.add_company makes it


_ALL_HAVE_COME = 16  # the last of a_day() is captured at 06:45 and arrives at 14:57


def today(hour: int, minute: int = 0) -> datetime:
    """That time of the company's day; the day before's, while some of it has not come yet."""
    now = datetime.now(ZONE)
    day = now if now.hour >= _ALL_HAVE_COME else now - timedelta(days=1)
    return day.replace(hour=hour, minute=minute, second=0, microsecond=0).astimezone(UTC)


def day_of(weighing: "Weighing") -> str:
    return f"{weighing.at.astimezone(ZONE):%Y-%m-%d}"


@dataclass
class Weighing:
    """One session; what it is told of is what `events` holds when it is landed."""

    at: datetime
    weight_kg: float
    device_id: str = "scale-01"
    barn_id: str = "barn-1"
    tenant_id: str = "tenant-a"
    images: int = 1
    session_id: UUID = field(default_factory=ids.new)
    media_ids: list[UUID] = field(default_factory=list)
    events: list[BusEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.media_ids = [ids.new() for _ in range(self.images)]
        self._tell(
            words.SESSION_CREATED,
            {"status": "created", "batch_id": "flock-12", "initial_weight_kg": self.weight_kg},
        )
        for media_id in self.media_ids:
            self._tell(words.IMAGE_CAPTURED, {"media_id": media_id})
        self._tell(words.WEIGHT_RECORDED, {"weight_kg": self.weight_kg})
        self._tell(
            words.SESSION_FINALIZED,
            {
                "status": "finalized",
                "final_weight_kg": self.weight_kg,
                "image_count": max(1, self.images),
                "inference_result_id": None,
            },
        )

    def without(self, event_type: str) -> "Weighing":
        self.events = [each for each in self.events if each.event_type != event_type]
        return self

    def cancelled(self, reason: str) -> "Weighing":
        self.without(words.SESSION_FINALIZED)
        self._tell(words.SESSION_CANCELLED, {"status": "cancelled", "reason": reason})
        return self

    def _tell(self, event_type: str, payload: dict[str, Any]) -> None:
        self.events.append(
            BusEvent(
                event_id=ids.new(),
                event_type=event_type,
                tenant_id=self.tenant_id,
                farm_id="farm-1",
                barn_id=self.barn_id,
                device_id=self.device_id,
                session_id=self.session_id,
                occurred_at=self.at + timedelta(seconds=2 * len(self.events)),
                trace_id="trace",
                payload=msgspec.Raw(msgspec.json.encode(payload)),
            )
        )


def land(
    url: str, *weighings: Weighing, late: timedelta = timedelta(seconds=1), admin_url: str = ""
) -> None:
    """Land them; with `admin_url` they came that late after they were captured, else now."""

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            events = [event for each in weighings for event in each.events]
            await store.apply_events(connection, events)

    run(work())
    if admin_url:
        with databases.connected(url) as connection:
            for each in weighings:
                connection.execute(
                    "update weight_sessions set received_at = %s, heard_at = %s "
                    "where session_id = %s",
                    (each.at + late, each.at + late, each.session_id),
                )
        with databases.connected(admin_url) as owner:
            owner.execute("set row_security = off")
            for each in weighings:
                for event in each.events:
                    owner.execute(
                        "update weighvision_events set stored_at = %s where event_id = %s",
                        (event.occurred_at + late, event.event_id),
                    )


def photograph(url: str, s3_url: str, *weighings: Weighing) -> None:
    """Their pictures reach the cloud."""
    for each in weighings:
        for number, media_id in enumerate(each.media_ids):
            data = drawn(each, number)
            key = f"tests/{media_id}.jpg"
            run(bucket(s3_url).put(key, data, content_type="image/jpeg"))
            with databases.connected(url) as connection:
                connection.execute(
                    """
                    insert into media_objects (tenant_id, media_id, session_id, mime_type,
                      size_bytes, sha256, object_key, captured_at, stored_at)
                    values (%s, %s, %s, 'image/jpeg', %s, %s, %s, %s, now())
                    """,
                    (
                        each.tenant_id, media_id, each.session_id, len(data),
                        hashlib.sha256(data).hexdigest(), key, each.at,
                    ),
                )  # fmt: skip
                connection.execute(
                    "select pg_notify('weighvision_changed', company_id::text) from companies "
                    "where tenant_id = %s",
                    (each.tenant_id,),
                )


bucket = functools.cache(objects.Bucket)


def drawn(weighing: Weighing, number: int) -> bytes:
    """A bird from above on a scale; the next picture shows it a little further."""
    chance = random.Random(f"{weighing.session_id}")
    picture = Image.new("RGB", (960, 720), (92, 84, 70))
    pen = ImageDraw.Draw(picture)
    for _ in range(900):
        x, y = chance.randrange(960), chance.randrange(720)
        shade = chance.randrange(60, 130)
        pen.line((x, y, x + 14, y + 4), fill=(shade + 20, shade + 8, shade - 20))
    pen.rounded_rectangle((230, 130, 730, 590), 30, fill=(150, 156, 160), outline=(70, 74, 78))
    left = 340 + 40 * number
    pen.ellipse((left, 250, left + 260, 470), fill=(238, 232, 214))
    pen.ellipse((left + 215, 315, left + 315, 405), fill=(240, 235, 220))
    pen.polygon([(left + 308, 350), (left + 345, 360), (left + 308, 372)], fill=(224, 160, 60))
    pen.ellipse((left + 270, 322, left + 300, 345), fill=(190, 40, 36))
    made = io.BytesIO()
    picture.save(made, "JPEG", quality=80)
    return made.getvalue()


def a_day(url: str, admin_url: str, s3_url: str) -> list[Weighing]:
    """Thirty good ones, one open just now, one given up, two that lack something, one late."""
    chance = random.Random(7)
    good = [
        Weighing(today(6, minute), round(chance.gauss(2.31, 0.17), 2), f"scale-0{1 + minute % 2}")
        for minute in range(1, 31)
    ]
    land(url, *good, admin_url=admin_url)
    no_image = Weighing(today(6, 40), 2.28, images=0)
    no_end = Weighing(today(6, 41), 2.44).without(words.SESSION_FINALIZED)
    given_up = Weighing(today(6, 42), 1.98, images=0).without(words.WEIGHT_RECORDED)
    land(url, no_image, no_end, given_up.cancelled("no stable weight"), admin_url=admin_url)
    after_outage = Weighing(today(6, 45), 2.36)
    land(url, after_outage, late=timedelta(hours=8, minutes=12), admin_url=admin_url)
    photograph(url, s3_url, *good[-6:], no_end)
    return [*good, no_image, no_end, given_up, after_outage]


def run(work: Coroutine[Any, Any, None]) -> None:
    """In a thread, which has no loop of its own yet: the browser's runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()
