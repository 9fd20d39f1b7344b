"""A farm that weighs: real agents, a real edge and cloud, and the account of what arrived.

agents' buffers (every minted event, every kept picture) --> compared with tables and buckets of
both sites.
"""

import contextlib
import hashlib
import io
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from farmiq.device.buffer import database as buffers
from farmiq.device.buffer import store
from farmiq.device.buffer.database import Clock
from farmiq.device.buffer.recorder import Picture, Recorder
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.writer import Writer
from farmiq.lab.simulate.stations import Post, SimulatedStation
from farmiq.lab.simulate.weighings import Session
from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from farmiq.plumbing.storage.objects import Bucket
from tests.support import devices, station
from tests.support.farm import TENANT, Farm
from tests.support.until import until

# What is away is asked for again at once: a test is short.
IMPATIENT = {
    "AGENT_RECONNECT_SECONDS": "0.5",
    "AGENT_UPLOAD_BACKOFF_SECONDS": "0.1",
    "AGENT_RECEIPT_SECONDS": "5",
    "AGENT_DISK_RESERVE_BYTES": "0",
}
FAMILY = "weighvision."
UNSETTLED = (
    "waiting",
    "sending",
    "published",
    "refused",
    "failed",
    "pictures",
    "pictures_failed",
    "unsettled",
)
STORED = {
    "EDGE": "select id::text, object_key, sha256 from media_objects "
    "where upload_status = 'stored' and synced_at is not null",
    "CLOUD": "select media_id::text, object_key, sha256 from media_objects "
    "where stored_at is not null",
}
# What both sites say of a session, in the same words.
SAID = "status, batch_id, initial_weight_kg, final_weight_kg, image_count, start_at, end_at"
PICTURED = """
    select s.{0}::text, s.status, s.final_weight_kg, s.image_count,
      array(select m.sha256 from media_objects m where m.session_id = s.{0} and m.{1})
    from weight_sessions s
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a station's buffer holds: every minted event by its id, and what is left to do.

    `again` counts events that were sent more than once.
    """

    events: dict[str, dict[str, Any]]
    sessions: set[str]
    last_seq: int
    counts: dict[str, int]

    @property
    def is_settled(self) -> bool:
        return not any(self.counts[name] for name in UNSETTLED)


def kept(folder: Path) -> Kept:
    """From the file of a station's buffer, beside the agent that runs on it."""
    with contextlib.closing(buffers.connect_read_only(folder / buffers.FILE)) as tx:
        rows = tx.execute("select raw, session_id from events").fetchall()
        last_seq = int(store.meta(tx, "last_seq") or 0)
        (unsettled,) = tx.execute("select count(*) from sessions where settled = 0").fetchone()
        (again,) = tx.execute("select count(*) from events where attempts > 1").fetchone()
        counts = {**store.tally(tx), "unsettled": unsettled, "again": again}
    bodies = [json.loads(bytes(row[0])) for row in rows]
    return Kept(
        {each["event_id"]: each for each in bodies},
        {row[1] for row in rows if row[1] is not None},
        last_seq,
        counts,
    )


@dataclass
class WeighingFarm:
    """A farm and the buffers of its stations."""

    farm: Farm
    buffers: list[Path] = field(default_factory=list)

    def post(self, number: int, *, edge: str = "edge") -> Post:
        """Register a station; `edge` is the process that its media store is in."""
        place = Place(TENANT, "hill-farm", "barn-1", f"weigher-{number}")
        device = devices.at(
            place, kind="station", station_id=f"scale-{number}", wants_receipts=True
        )
        (login,) = devices.register(self.farm.edge_db.admin_url, [device])
        return Post(
            place=place,
            station_id=f"scale-{number}",
            mqtt_url=self.farm.environment["FARMIQ_DEVICES_MQTT_URL"],
            edge_url=self.farm.url(edge),
            token=login.as_json()["token"],
        )

    def kept(self) -> list[Kept]:
        return [kept(folder) for folder in self.buffers]

    def minted(self) -> dict[str, dict[str, Any]]:
        """Every event of a weighing that the stations made."""
        return {
            event_id: body
            for each in self.kept()
            for event_id, body in each.events.items()
            if body["event_type"].startswith(FAMILY)
        }

    # --- what arrived

    def events(self) -> Counter[str]:
        rows = self.farm.cloud("select event_id::text from weighvision_events")
        return Counter(row[0] for row in rows)

    def sessions(self) -> tuple[dict[str, Any], dict[str, Any]]:
        edge = self.farm.edge(f"select id::text, {SAID} from weight_sessions")  # noqa: S608
        cloud = self.farm.cloud(
            f"select session_id::text, {SAID} from weight_sessions"  # noqa: S608
        )
        return {row[0]: row[1:] for row in edge}, {row[0]: row[1:] for row in cloud}

    def pictured(self) -> list[list[Session]]:
        """Sessions of edge and cloud with the hashes of their pictures."""
        edge = self.farm.edge(PICTURED.format("id", "upload_status = 'stored'"))
        cloud = self.farm.cloud(PICTURED.format("session_id", "stored_at is not null"))
        return [
            [Session(session_id=r[0], status=r[1], weight_kg=r[2], image_count=r[3],
                     sha256s=tuple(r[4])) for r in rows]
            for rows in (edge, cloud)
        ]  # fmt: skip

    def announced(self) -> dict[str, str]:
        """sha256 by media_id, as the stations announced them."""
        return {
            body["payload"]["media_id"]: body["payload"]["sha256"]
            for body in self.minted().values()
            if body["event_type"].endswith("image.captured")
        }

    async def in_bucket(self, site: str) -> dict[str, str]:
        """sha256 of the bytes in the bucket, by media_id; the row says the same."""
        bucket = Bucket(self.farm.environment[f"FARMIQ_{site}_S3_URL"])
        rows = self.farm.edge(STORED[site]) if site == "EDGE" else self.farm.cloud(STORED[site])
        found = {}
        for media_id, object_key, sha256 in rows:
            of_bytes = hashlib.sha256(await bucket.get(object_key)).hexdigest()
            assert of_bytes == sha256, (site, object_key)
            found[media_id] = of_bytes
        return found

    async def uploaded(self) -> int:
        """How many objects the edge's bucket has of those that were asked for, announced or not."""
        bucket = Bucket(self.farm.environment["FARMIQ_EDGE_S3_URL"])
        rows = self.farm.edge("select object_key from media_objects")
        return sum([await bucket.head(row[0]) is not None for row in rows])

    # --- the account

    def has_arrived(self) -> bool:
        """Receipts for everything, and the cloud has every event and picture."""
        try:
            if not all(each.is_settled for each in self.kept()):
                return False
        except sqlite3.Error:
            return False
        minted, announced = self.minted(), self.announced()
        return (
            len(self.events()) >= len(minted)
            and len(self.farm.edge(STORED["EDGE"])) >= len(announced)
            and len(self.farm.cloud(STORED["CLOUD"])) >= len(announced)
        )

    def changed(self) -> list[str]:
        """Events that say something else in the cloud.

        The edge may add what it knows, also where the station said null (C-29), and change nothing.
        """
        minted = self.minted()
        rows = self.farm.cloud("select event_id::text, event_type, payload from weighvision_events")
        return [
            event_id
            for event_id, event_type, payload in rows
            if minted[event_id]["event_type"] != event_type
            or payload | _said(minted[event_id]["payload"]) != payload
        ]

    async def check(self, given: Iterable[str], *, within_s: float = 90) -> None:
        """Every minted event once, sessions equal at both sites, every picture byte for byte."""
        await until(self.has_arrived, within_s=within_s)
        assert self.events() == Counter(self.minted().keys())
        assert self.changed() == []
        edge, cloud = self.sessions()
        assert edge == cloud
        assert edge.keys() == {key for each in self.kept() for key in each.sessions}
        announced, taken = self.announced(), set(given)
        for site in STORED:
            found = await self.in_bucket(site)
            assert found == announced
            assert set(found.values()) <= taken
            assert len(set(found.values())) == len(found)
        assert self.farm.edge("select count(*)::int from quarantine") == [(0,)]
        lacking = "select session_id, missing from weight_sessions where status = 'finalized' "
        assert self.farm.cloud(lacking + "and missing <> '{}'") == []

    def sent_again(self) -> int:
        return sum(each.counts["again"] for each in self.kept())


def _said(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value is not None}


def stands_there(each: SimulatedStation) -> bool:
    """Somebody is weighed, and a picture of it was taken."""
    return each.stage is not None and each.stage.here is not None and bool(each.stage.given)


async def fill(
    each: SimulatedStation,
    *,
    sessions: int,
    weights: int,
    size: tuple[int, int] = (64, 48),
    most_events: int = 10_000,
) -> set[str]:
    """Weighings in a station's buffer before its agent runs; the sha256 of their pictures."""
    buffer = await buffers.opened(each.buffer, clock=Clock())
    who = Identity(each.post.place, each.post.station_id)
    book = Recorder(buffer, Writer(who, buffer, station.limits(events=most_events)))
    given = set()
    for _ in range(sessions):
        session_id, at = ids.new(), datetime.now(UTC)
        data = noise(size)
        given.add(hashlib.sha256(data).hexdigest())
        first = Picture(ids.new(), session_id, "image/jpeg", data, at)
        await book.open(session_id, batch_id=None, initial_weight_kg=None, picture=first, at=at)
        for number in range(weights):
            await book.weigh(session_id, weight_kg=90 + number / 10, at=datetime.now(UTC))
        await book.close(session_id, final_weight_kg=90.0, at=datetime.now(UTC))
    await buffer.close()
    return given


def noise(size: tuple[int, int]) -> bytes:
    """A picture that no other is like."""
    image = Image.frombytes("RGB", size, os.urandom(3 * size[0] * size[1]))
    file = io.BytesIO()
    image.save(file, "JPEG")
    return file.getvalue()


def ports(farm: Farm, free_port: Callable[[], int], *names: str) -> None:
    farm.ports |= {name: free_port() for name in names}
    farm.environment["FARMIQ_CLOUD_URL"] = farm.url("cloud")
