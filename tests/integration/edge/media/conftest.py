"""The edge's database and a real object store, with the media store's API in front."""

import hashlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx2
import pytest
from PIL import Image

from farmiq.config import EdgeSettings
from farmiq.edge import api_keys
from farmiq.edge.devices.registration import Credentials
from farmiq.edge.ingress import handlers
from farmiq.edge.media.api import Api
from farmiq.edge.media.handlers import ImageChecker
from farmiq.messages import topics
from farmiq.messages.topics import Place, SessionTopic
from farmiq.plumbing import db, http, ids, tokens
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.support import databases, devices

PLACE = Place("t-cam", "f-1", "b-1", "cam-1")
STATION = "st-1"
PRESIGN = "/api/v1/media/images/presign"


def jpeg(colour: str = "red", *, size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    return picture("JPEG", colour, size=size, **options)


def picture(
    form: str,
    colour: str = "red",
    *,
    size: tuple[int, int] = (64, 48),
    mode: str = "RGB",
    **options: Any,
) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, colour).save(out, form, **options)
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def rows(database: Database, query: str, *args: Any) -> list[tuple[Any, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode(), args or None).fetchall()


def later(database: Database, interval: str) -> None:
    """Move the edge's clock."""
    with databases.connected(database.admin_url) as owner:
        owner.execute("delete from test_clock")
        owner.execute("insert into test_clock (ahead) values (%s::interval)", (interval,))


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test", max_size=8) as opened:
        yield opened


@pytest.fixture
def settings(edge_db: Database, engines: dict[str, str], tmp_path: Any) -> EdgeSettings:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
            "FARMIQ_CLOUD_URL": "http://cloud.test",
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        }
    )


@pytest.fixture
def bucket(engines: dict[str, str]) -> objects.Bucket:
    return objects.Bucket(engines["FARMIQ_EDGE_S3_URL"])


@pytest.fixture
def login(edge_db: Database) -> Credentials:
    station = devices.at(PLACE, kind="station", station_id=STATION, wants_receipts=True)
    (made,) = devices.register(edge_db.admin_url, [station])
    return made


@pytest.fixture
def key(edge_db: Database) -> str:
    """A viewer's key."""
    made = api_keys.new_key()
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256) values (%s,%s,%s,%s)",
            (ids.new(), "the viewer", "viewer", api_keys.digest(made)),
        )
    return made


@dataclass
class Edge:
    """The media store of one edge, and a station in front of it."""

    settings: EdgeSettings
    pool: db.Pool
    bucket: objects.Bucket
    checker: ImageChecker
    client: httpx2.AsyncClient
    web: httpx2.AsyncClient
    token: str
    key: str
    database: Database
    place: Place = PLACE
    made: list[UUID] = field(default_factory=list)

    def body(self, data: bytes | None = None, **over: Any) -> dict[str, Any]:
        said: dict[str, Any] = {
            "tenantId": self.place.tenant_id,
            "farmId": self.place.farm_id,
            "barnId": self.place.barn_id,
            "deviceId": self.place.device_id,
            "stationId": STATION,
            "traceId": "trace-1",
            "capturedAt": "2026-11-15T08:00:00Z",
            "contentType": "image/jpeg",
        }
        if data is not None:
            said |= {"contentLength": len(data), "sha256": sha256(data)}
        return {name: value for name, value in {**said, **over}.items() if value is not None}

    async def ask(
        self, body: dict[str, Any], *, request_id: object = None, token: str | None = None
    ) -> httpx2.Response:
        headers = {
            "Authorization": f"Bearer {token or self.token}",
            "x-request-id": str(request_id or ids.new()),
            "x-trace-id": "trace-1",
        }
        return await self.client.post(PRESIGN, json=body, headers=headers)

    async def presigned(self, data: bytes, **over: Any) -> dict[str, Any]:
        answer = await self.ask(self.body(data, **over))
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        return said

    async def put(self, said: dict[str, Any], data: bytes, **over: str) -> httpx2.Response:
        ours = said["upload_url"].startswith(str(self.client.base_url))
        return await (self.client if ours else self.web).put(
            said["upload_url"], content=data, headers={**said["required_headers"], **over}
        )

    async def upload(self, data: bytes, **over: Any) -> UUID:
        said = await self.presigned(data, **over)
        assert (await self.put(said, data)).status_code == 200
        return UUID(said["media_id"])

    async def announce(
        self,
        media_id: object,
        *,
        session_id: UUID | None = None,
        place: Place | None = None,
        **more: Any,
    ) -> Any:
        message = announcement(media_id, session_id=session_id, place=place or self.place, **more)
        return await handlers.commit(self.pool, [message])

    async def store(self, data: bytes, **over: Any) -> UUID:
        """Uploaded, announced and found."""
        media_id = await self.upload(data, **over)
        await self.announce(media_id)
        await self.checker.check_due()
        assert self.status(media_id) == "stored"
        return media_id

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return await self.client.get(f"/api/v1/media/images{path}", headers=headers, **options)

    def status(self, media_id: object) -> str:
        query = "select upload_status from media_objects where id = %s"
        return str(rows(self.database, query, media_id)[0][0])

    def column(self, name: str, media_id: object) -> Any:
        query = f"select {name} from media_objects where id = %s"  # noqa: S608
        return rows(self.database, query, media_id)[0][0]

    def owed(self) -> list[dict[str, Any]]:
        found = rows(
            self.database,
            "select payload_json, session_id, trace_id, occurred_at from sync_outbox "
            "where event_type = 'media.stored' order by created_at",
        )
        return [
            {**payload, "session_id": session, "trace_id": trace, "occurred_at": at}
            for payload, session, trace, at in found
        ]

    def alerts(self) -> set[tuple[str, str]]:
        return set(rows(self.database, "select kind, subject from alerts where closed_at is null"))


def announcement(
    media_id: object, *, session_id: UUID | None, place: Place, **more: Any
) -> tuple[str, bytes]:
    kind = "weighvision.image.captured"
    worn = {
        "schema_version": "1.0",
        "event_id": str(ids.new()),
        "trace_id": "trace-1",
        "tenant_id": place.tenant_id,
        "device_id": place.device_id,
        "event_type": kind,
        "ts": datetime.now(UTC).isoformat(),
        "payload": {"media_id": str(media_id), **more},
    }
    topic = topics.event(place, kind)
    if session_id is not None:
        where = SessionTopic(
            place.tenant_id, place.farm_id, place.barn_id, STATION, session_id, kind
        )
        topic = topics.session(where)
    return topic, json.dumps(worn).encode()


@pytest.fixture
async def web() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60) as opened:
        yield opened


@pytest.fixture
async def edge(  # noqa: PLR0917 - what a media store stands on
    settings: EdgeSettings,
    pool: db.Pool,
    bucket: objects.Bucket,
    login: Credentials,
    key: str,
    edge_db: Database,
    web: httpx2.AsyncClient,
) -> AsyncIterator[Edge]:
    checker = ImageChecker(settings, pool, bucket)
    async with served(settings, pool, bucket, checker) as client:
        yield Edge(settings, pool, bucket, checker, client, web, login.token, key, edge_db)


def served(
    settings: EdgeSettings,
    pool: db.Pool,
    bucket: objects.Bucket | None,
    checker: ImageChecker | None,
) -> httpx2.AsyncClient:
    server = http.HttpServer(title="test", version="0")
    Api(settings, pool, bucket, checker).add_to(server.app)
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app), base_url="http://edge"
    )
