"""A weigh station of the tests, and what it says."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from farmiq.messages import topics
from farmiq.messages import weighvision as words
from farmiq.messages.topics import Place, SessionTopic
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.support import databases, devices

PLACE = Place("t-1", "f-1", "b-1", "scale-1")
NEIGHBOUR = Place("t-1", "f-1", "b-1", "scale-2")
STRANGER = Place("t-2", "f-1", "b-1", "scale-1")
START = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)

Message = tuple[str, bytes]


def station(place: Place) -> str:
    return place.device_id.replace("scale", "st")


@dataclass(slots=True)
class Weighing:
    """One session of one station; each call is an event as the device sends it."""

    place: Place = PLACE
    session_id: UUID = field(default_factory=ids.new)
    seq: int = 0
    at: datetime = START

    def said(
        self, event_type: str, payload: dict[str, Any], *, event_id: UUID | None = None
    ) -> Message:
        self.seq += 1
        where = SessionTopic(
            self.place.tenant_id,
            self.place.farm_id,
            self.place.barn_id,
            station(self.place),
            self.session_id,
            event_type,
        )
        worn = {
            "schema_version": "1.0",
            "event_id": str(event_id or ids.new()),
            "trace_id": "trace-1",
            "tenant_id": self.place.tenant_id,
            "device_id": self.place.device_id,
            "event_type": event_type,
            "ts": (self.at + timedelta(seconds=self.seq)).isoformat(),
            "seq": self.seq,
            "boot_id": "boot-1",
            "payload": payload,
        }
        return topics.session(where), json.dumps(worn).encode()

    def created(self, **payload: Any) -> Message:
        return self.said(words.SESSION_CREATED, {"batch_id": "lot-7", **payload})

    def weight(self, weight_kg: float = 80.5) -> Message:
        return self.said(words.WEIGHT_RECORDED, {"weight_kg": weight_kg})

    def captured(self, media_id: UUID) -> Message:
        return self.said(words.IMAGE_CAPTURED, {"media_id": str(media_id)})

    def finalized(self, image_count: int = 1, **payload: Any) -> Message:
        return self.said(words.SESSION_FINALIZED, {"image_count": image_count, **payload})

    def cancelled(self, reason: str = "no stable weight") -> Message:
        return self.said(words.SESSION_CANCELLED, {"reason": reason})


def rows(database: Database, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode(), args or None).fetchall()


def upload(
    database: Database,
    weighing: Weighing,
    *,
    media_id: UUID | None = None,
    status: str = "stored",
    **other: Any,
) -> UUID:
    """An image in the store, as edge-media-store notes it."""
    id_ = media_id or ids.new()
    row = {
        "id": id_,
        "tenant_id": weighing.place.tenant_id,
        "farm_id": weighing.place.farm_id,
        "barn_id": weighing.place.barn_id,
        "device_id": weighing.place.device_id,
        "station_id": station(weighing.place),
        "session_id": weighing.session_id,
        "upload_status": status,
        **other,
    }
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            """
            insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, station_id,
              session_id, bucket, object_key, mime_type, size_bytes, captured_at, upload_status,
              stored_at)
            values (%(id)s, %(tenant_id)s, %(farm_id)s, %(barn_id)s, %(device_id)s, %(station_id)s,
              %(session_id)s, 'farmiq', %(id)s::text, 'image/jpeg', 10, now(), %(upload_status)s,
              case when %(upload_status)s::text = 'stored' then fn_now() end)
            on conflict on constraint media_objects_pkey do update set
              upload_status = excluded.upload_status, stored_at = excluded.stored_at,
              size_bytes = excluded.size_bytes
            """,
            row,
        )
    return id_


@pytest.fixture
def stations(edge_db: Database) -> Database:
    """The edge's database with three stations: two of one company, one of another."""
    devices.register(
        edge_db.admin_url,
        [
            devices.at(place, kind="station", station_id=station(place))
            for place in (PLACE, NEIGHBOUR, STRANGER)
        ],
    )
    return edge_db


@pytest.fixture
async def pool(stations: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(stations.url, name="test") as opened:
        yield opened
