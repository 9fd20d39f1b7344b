"""Cameras at the sites of the console's company: their days, wakes and images, by the functions."""

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from PIL import Image, ImageDraw

from farmiq.cloud.identity import accounts
from farmiq.plumbing import ids
from tests.browser import barns, scales
from tests.sql.camera.farm import Farm
from tests.support import databases

TECHNICIAN = "tom@example.com"
BANGKOK = ZoneInfo("Asia/Bangkok")
DAY = date(2025, 1, 15)


@contextmanager
def farm(database: Any, tenant_id: str = "tenant-a") -> Iterator[Farm]:
    """Of a company that is there already, with a technician."""
    with (
        databases.connected(database.admin_url, autocommit=True) as owner,
        databases.connected(database.url, autocommit=True) as service,
    ):
        ((company,),) = owner.execute(
            "select company_id from companies where tenant_id = %s", (tenant_id,)
        ).fetchall()
        if tenant_id == "tenant-a":
            accounts.add_user(
                owner, TECHNICIAN, company_id=company, password=barns.PASSWORD, role="technician"
            )
        program = ids.new()
        owner.execute(
            "insert into pilot_programs (program_id, company_id, program_name, program_type) "
            "values (%s, %s, 'Winter trial', 'experimental')",
            (program, company),
        )
        yield Farm(database, owner, service, company, program)


@dataclass(frozen=True)
class Shots:
    """What cameras of one farm send; their images lie in the store where the gateway puts them."""

    farm: Farm
    s3_url: str

    def announce(self, device: UUID, at: datetime, name: str = "", **said: Any) -> UUID:
        """Captured at that time and told of now; the clock says when now is."""
        answer = self.farm.wake(device, at, name or f"IMG_{at:%H%M}.jpg", **said)
        return UUID(answer["image_id"])

    def complete(self, device: UUID, image_id: UUID, *, picture: bool = False) -> None:
        key = f"camera/{self.farm.company}/{device}/{image_id}.jpg"
        if picture:
            data = drawn(image_id)
            scales.run(scales.bucket(self.s3_url).put(key, data, content_type="image/jpeg"))
        self.farm.call("fn_image_completion_handler", image_id=image_id, image_url=key)

    def fail(self, image_id: UUID, why: str = "7 of 40 pieces never came") -> None:
        self.farm.call(
            "fn_image_failure_handler",
            image_id=image_id, error_code="TIMEOUT", error_message=why,
        )  # fmt: skip

    def send(self, device: UUID, at: datetime, *, picture: bool = True, **said: Any) -> UUID:
        """A wake as it should be: captured, and here seconds later."""
        self.farm.at(at + timedelta(seconds=4))
        image_id = self.announce(device, at, **said)
        self.farm.at(at + timedelta(seconds=19))
        self.complete(device, image_id, picture=picture)
        return image_id

    def open_day(self, site: UUID, at: datetime) -> None:
        self.farm.at(at)
        self.farm.call("fn_midnight_session_opener", site_id=site)


def on(day: date, hour: int, minute: int = 0, zone: ZoneInfo = BANGKOK) -> datetime:
    return datetime.combine(day, time(hour, minute), tzinfo=zone)


def drawn(image_id: UUID) -> bytes:
    """A dish from above with what grows in it."""
    chance = random.Random(f"{image_id}")
    picture = Image.new("RGB", (800, 600), (58, 54, 48))
    pen = ImageDraw.Draw(picture)
    pen.ellipse((130, 30, 670, 570), fill=(214, 205, 178), outline=(240, 240, 236), width=10)
    for _ in range(26):
        x, y, size = chance.randrange(220, 540), chance.randrange(120, 440), chance.randrange(8, 46)
        shade = chance.randrange(110, 200)
        pen.ellipse((x, y, x + size, y + size), fill=(shade, shade + 14, shade - 30))
    made = io.BytesIO()
    picture.save(made, "JPEG", quality=80)
    return made.getvalue()


@dataclass(frozen=True)
class Barn:
    """Three sites on the afternoon of Jan 15, 2025 in Bangkok; `failed` is an image that did."""

    site: UUID
    busy: UUID
    failed: UUID


def a_fortnight(shots: Shots) -> Barn:
    """River House has had better and worse days, and today every kind of wake."""
    farm = shots.farm
    farm.at(on(DAY - timedelta(days=14), 0))
    site = farm.site(site_name="River House")
    steady = farm.device(site, "0 */2 * * *", device_name="Device-001", firmware="2.4.1")
    busy = farm.device(site, "0 4-13 * * *", device_name="Device-002", firmware="2.4.1")
    silent = farm.device(site, "0 6,12,18 * * *", device_name="Device-003", firmware="2.3.0")
    for number, back in enumerate(range(13, 0, -1)):
        day = DAY - timedelta(days=back)
        if number == 4:
            continue
        shots.open_day(site, on(day, 0, 1))
        share = (1, 1, 0.9, 1, 0, 1, 0.7, 0.3, 0.9, 1, 1, 1, 1)[number]
        wakes = [(each, hour) for each, hours in (
            (steady, range(0, 24, 2)), (busy, range(4, 14)), (silent, (6, 12, 18))
        ) for hour in hours]  # fmt: skip
        for device, hour in wakes[: round(share * len(wakes))]:
            shots.send(device, on(day, hour), picture=False)
        farm.at(on(day + timedelta(days=1), 0))
        farm.call("fn_end_of_day_locker", site_id=site)
    shots.open_day(site, on(DAY, 0, 1))
    for hour in (0, 2, 4, 10, 12):
        shots.send(
            steady, on(DAY, hour), battery_voltage=3.92, wifi_rssi=-61,
        )  # fmt: skip
    farm.at(on(DAY, 12, 1))
    late = shots.announce(steady, on(DAY, 6))
    shots.complete(steady, late, picture=True)
    for hour in range(4, 14):
        shots.send(busy, on(DAY, hour), battery_voltage=3.55, wifi_rssi=-78)
    for minute in (20, 25, 31):
        shots.send(busy, on(DAY, 13, minute), battery_voltage=3.55, wifi_rssi=-83)
    farm.at(on(DAY, 13, 40))
    failed = shots.announce(busy, on(DAY, 13, 38))
    shots.fail(failed)
    farm.owner.execute("update devices set pending_count = 0 where device_id = %s", (steady,))
    farm.owner.execute("update devices set pending_count = 2 where device_id = %s", (silent,))
    farm.at(on(DAY, 13, 59, BANGKOK))
    shots.announce(steady, on(DAY, 13, 58))
    for name, zone, cron in (
        ("Hill House", "Europe/Berlin", "0 1,3,5 * * *"),
        ("Prairie House", "America/Chicago", "30 9-17 * * *"),
    ):
        other = farm.site(zone, site_name=name)
        camera = farm.device(other, cron, device_name=f"{name} 1", firmware="2.4.1")
        farm.at(on(DAY, 14))
        farm.call("fn_midnight_session_opener", site_id=other)
        if zone == "Europe/Berlin":
            for hour in (1, 3, 5):
                shots.send(camera, on(DAY, hour, zone=ZoneInfo(zone)), battery_voltage=4.0)
    farm.at(on(DAY, 14))
    return Barn(site, busy, failed)


def two_days(shots: Shots) -> UUID:
    """A camera with a low battery, one that is silent and one that is well, since yesterday."""
    farm = shots.farm
    farm.at(on(DAY - timedelta(days=1), 0))
    site = farm.site(site_name="River House")
    weak = farm.device(site, "0 6,9,12 * * *", device_name="Device-001", firmware="2.4.1")
    silent = farm.device(site, "0 6,9,12 * * *", device_name="Device-002", firmware="2.3.0")
    well = farm.device(site, "0 9 * * *", device_name="Device-003")
    for day in (DAY - timedelta(days=1), DAY):
        shots.open_day(site, on(day, 0, 1))
        for hour in (6, 9, 12):
            shots.send(
                weak, on(day, hour), battery_voltage=3.6 - hour / 100,
                wifi_rssi=-60 - hour, temperature=20 + hour / 10, humidity=60,
            )  # fmt: skip
        shots.send(well, on(day, 9), picture=False, battery_voltage=4.0, temperature=22.5)
        if day < DAY:
            shots.send(silent, on(day, 6), picture=False)
            farm.at(on(DAY, 0))
            farm.call("fn_end_of_day_locker", site_id=site)
    farm.at(on(DAY, 12, 30))
    shots.fail(shots.announce(weak, on(DAY, 12, 29)))
    farm.at(on(DAY, 14))
    return weak


def a_fresh_site(shots: Shots) -> UUID:
    """Its days open since yesterday; today its first camera came, with images on its card."""
    farm = shots.farm
    site = farm.site(site_name="New House")
    shots.open_day(site, on(DAY - timedelta(days=1), 9))
    farm.at(on(DAY, 0, 1))
    farm.call("fn_end_of_day_locker", site_id=site)
    shots.open_day(site, on(DAY, 0, 1))
    farm.at(on(DAY, 13))
    camera = farm.device(site, "0 * * * *", put_now=True, device_name="Device-001")
    for back, hour in ((3, 8), (1, 9), (1, 10)):
        waited = shots.announce(camera, on(DAY - timedelta(days=back), hour), pending=True)
        shots.complete(camera, waited, picture=True)
    shots.send(camera, on(DAY, 13, 30), picture=False)
    farm.at(on(DAY, 14))
    farm.call("fn_end_of_day_locker_all")
    return site
