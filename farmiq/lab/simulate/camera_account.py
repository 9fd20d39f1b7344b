"""The cloud's side of a simulated fleet: it is registered, and what came of it is read.

captures.compare <-- Stored <-- device_images, device_wake_payloads, site_device_sessions, S3
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import psycopg

from farmiq.lab.simulate import captures
from farmiq.lab.simulate.camera import Image
from farmiq.lab.simulate.camera_faults import ZONES, Kit
from farmiq.lab.simulate.captures import Account, Entry, Stored
from farmiq.lab.simulate.check import Findings
from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from farmiq.plumbing.storage.objects import Bucket

IMAGES = """
    select d.mac, i.image_name, i.captured_at, i.status, i.image_url,
      (select count(*)::integer from device_wake_payloads p where p.image_id = i.image_id),
      coalesce((select p.payload_status from device_wake_payloads p
                where p.image_id = i.image_id limit 1), 'none')
    from device_images i join devices d on d.device_id = i.device_id
    where d.mac = any(%s)
"""
ONE = IMAGES + " and i.image_name = %s and i.captured_at = %s"
# Counters that are not what a recount of the payloads gives: some wake was counted twice, or not.
MISCOUNTED = """
    select s.session_id::text from site_device_sessions s
    left join lateral (
      select count(*) filter (where p.payload_status = 'complete') as completed,
        count(*) filter (where p.payload_status = 'failed') as failed,
        count(*) filter (where p.overage_flag) as extra
      from device_wake_payloads p where p.site_device_session_id = s.session_id) c on true
    where (s.completed_wake_count, s.failed_wake_count, s.extra_wake_count)
      is distinct from (c.completed, c.failed, c.extra)
"""
AGAIN_S = 0.5
# Every two hours: a day of twelve wakes.
SCHEDULES = ("0 */2 * * *",)

_PROGRAM = """
    insert into pilot_programs (program_id, company_id, program_name, program_type)
    values (%s, %s, %s, %s) on conflict (company_id, lower(program_name)) do nothing
"""
_SITE = """
    insert into sites (site_id, company_id, program_id, site_name, timezone)
    select %s, company_id, program_id, %s, %s from pilot_programs
    where company_id = %s and program_name = %s
    on conflict (company_id, lower(site_name)) do nothing
"""
_CAMERA = """
    insert into devices (device_id, company_id, site_id, mac, device_name, dialect,
      wake_schedule_cron, x_position, y_position, firmware)
    select %s, company_id, site_id, %s, %s, %s, %s, %s, %s, 'simulated 1.0' from sites
    where company_id = %s and site_name = %s
    on conflict (company_id, mac) where is_active do nothing
"""


def read(journal: Path) -> Account:
    """A journal, also while it is written: half a line at its end is left out."""
    account = Account()
    decoder = msgspec.json.Decoder(Entry)
    if journal.exists():
        with journal.open("rb") as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    account.take(decoder.decode(raw))
    return account


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker found; `waiting` captures were never acknowledged."""

    findings: Findings
    waiting: int
    unreadable: tuple[str, ...]
    miscounted: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return self.findings.clean and not (self.unreadable or self.miscounted)

    def as_json(self) -> dict[str, object]:
        findings = self.findings
        return {
            "captured": findings.sent,
            "complete": findings.stored,
            "waiting": self.waiting,
            "lost": findings.lost,
            "twice": findings.twice,
            "invented": findings.invented,
            "changed": findings.changed,
            "acked_unreadable": self.unreadable,
            "sessions_miscounted": self.miscounted,
            "clean": self.clean,
        }


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where to look. A thread asks: a fleet's loop has its cameras to tend."""

    database_url: str
    bucket: Bucket

    async def report(self, journal: Path) -> Report:
        account = read(journal)
        macs = {mac for mac, _ in account.captures}
        stored = [row async for row in self.stored(macs)]
        miscounted = await asyncio.to_thread(self._rows, MISCOUNTED, ())
        return Report(
            captures.compare(account, stored),
            len(account.waiting),
            tuple(account.unreadable),
            tuple(str(row[0]) for row in miscounted),
        )

    async def stored(self, macs: Iterable[str]) -> AsyncIterator[Stored]:
        """One image after the other: pictures of a whole fleet do not fit in memory."""
        for row in await asyncio.to_thread(self._rows, IMAGES, (list(macs),)):
            yield await self._read(row)

    async def witness(self, mac: str, image: Image, sha256: str) -> str | None:
        """Why an image that was acknowledged cannot be read back, or None.

        An engine that is down is asked again until it is there.
        """
        while True:
            try:
                return await self._problem(mac, image, sha256)
            except (psycopg.OperationalError, *objects.UNAVAILABLE):
                await asyncio.sleep(AGAIN_S)

    async def _problem(self, mac: str, image: Image, sha256: str) -> str | None:
        key = ([mac], image.name, image.captured_at)
        rows = await asyncio.to_thread(self._rows, ONE, key)
        if len(rows) != 1:
            return f"{len(rows)} rows"
        stored = await self._read(rows[0])
        if not stored.is_whole:
            return f"image {stored.status}, payload {stored.payload_status}, bytes {stored.sha256}"
        return None if stored.sha256 == sha256 else "other bytes than were captured"

    async def _read(self, row: tuple[object, ...]) -> Stored:
        mac, name, captured_at, status, image_url, payloads, payload_status = row
        data = None if image_url is None else await self.bucket.find(self._key(str(image_url)))
        assert isinstance(captured_at, datetime)  # noqa: S101 - as the column says
        assert isinstance(payloads, int)  # noqa: S101
        return Stored(
            mac=str(mac), name=str(name), captured_at=captured_at, status=str(status),
            payloads=payloads, payload_status=str(payload_status),
            sha256=None if data is None else hashlib.sha256(data).hexdigest(),
        )  # fmt: skip

    def _key(self, image_url: str) -> str:
        """The object's key, whether the row has it bare or as s3://bucket/key."""
        return image_url.removeprefix(f"s3://{self.bucket.name}/")

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database_url, connect_timeout=5) as connection:
            return connection.execute(query.encode(), values).fetchall()


def register(
    connection: psycopg.Connection,
    kits: Iterable[Kit],
    *,
    tenant_id: str,
    schedules: Sequence[str] = SCHEDULES,
) -> int:
    """How many cameras are new; those that are known stay as they are. Raises ValueError.

    Schedules take turns. Before a day of theirs opens all of them are there, or it would not expect
    those that came later.
    """
    row = connection.execute(
        "select company_id from companies where tenant_id = %s", (tenant_id,)
    ).fetchone()
    if row is None:
        raise ValueError(f"no company has the tenant {tenant_id}: `farmiq company add` makes one")
    company_id = row[0]
    for number, zone in enumerate(ZONES):
        kind = ("control", "experimental")[number % 2]
        program, site = f"Simulated, {kind}", site_name(zone)
        connection.execute(_PROGRAM, (ids.new(), company_id, program, kind))
        connection.execute(_SITE, (ids.new(), site, zone, company_id, program))
    try:
        return sum(
            _add(connection, kit, company_id, schedules[kit.number % len(schedules)])
            for kit in kits
        )
    except psycopg.errors.CheckViolation as error:
        raise ValueError(f"a schedule cannot be one: {', '.join(schedules)}") from error


def _add(connection: psycopg.Connection, kit: Kit, company_id: object, schedule: str) -> int:
    # A name that people can say; the end of its address makes it the only one of the company.
    named = f"Camera {kit.number + 1}-{kit.mac[-4:]}"
    # Metres on the floor of its site.
    place = (2.0 + 3.0 * (kit.number // len(ZONES)), 2.0 + 2.5 * (kit.number % 2))
    values = (ids.new(), kit.mac, named, kit.speech.dialect, schedule, *place, company_id)
    return connection.execute(_CAMERA, (*values, site_name(kit.timezone))).rowcount


def site_name(zone: str) -> str:
    return f"Simulated {zone.rpartition('/')[2].replace('_', ' ')}"
