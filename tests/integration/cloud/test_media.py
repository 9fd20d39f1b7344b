"""Images on their way from an edge to the cloud, and how people see them there."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest
from PIL import Image
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from farmiq.cloud import sink
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.media import service
from farmiq.config import CloudSettings
from farmiq.edge.media import cloud_upload
from farmiq.edge.media import store as edge_store
from farmiq.edge.media.cloud_upload import CloudUploader
from farmiq.messages.media import STORED
from farmiq.plumbing import db, http, ids, tokens
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.edge.media import conftest as edges
from tests.integration.edge.media.conftest import Edge, jpeg, rows, sha256
from tests.support import databases
from tests.support.until import until
from tests.unit.messages import samples

# The fixtures of an edge with its own store.
bucket, edge, key, login, pool, settings, web = (
    edges.bucket, edges.edge, edges.key, edges.login, edges.pool, edges.settings, edges.web,
)  # fmt: skip

PRESIGN = "/api/v1/media/images/presign"
IMAGES = "/api/v1/media/images"


@dataclass
class Cloud:
    """A cloud-media-store without its bus: routes, database and bucket are real."""

    settings: CloudSettings
    database: Database
    pool: db.Pool
    bucket: objects.Bucket
    client: httpx2.AsyncClient
    uploader: CloudUploader
    edge: Edge
    # Answers the cloud gives instead of its own.
    instead: list[PlainTextResponse] = field(default_factory=list)

    def row(self, media_id: object) -> dict[str, Any]:
        with psycopg.connect(
            self.database.admin_url, row_factory=psycopg.rows.dict_row
        ) as connection:
            found = connection.execute(
                "select * from media_objects where media_id = %s", (media_id,)
            ).fetchone()
        assert found is not None
        return found

    def token(self, **changes: Any) -> str:
        key_file = self.edge.settings.edge_key_file
        claims: dict[str, Any] = {
            "subject": "edge-01", "issuer": self.settings.token_issuer,
            "audience": self.settings.token_audience, "now": datetime.now(UTC),
            "tenants": ["t-cam"],
        }  # fmt: skip
        return tokens.sign(json.loads(key_file.read_text()), **{**claims, **changes})

    async def ask(self, body: dict[str, Any], **claims: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token(**claims)}"}
        return await self.client.post(PRESIGN, json=body, headers=headers)

    async def deliver(self) -> None:
        """The events of the edge are in the cloud."""
        for event_id, payload, session in rows(
            self.edge.database,
            "select id, payload_json, session_id from sync_outbox where status <> 'acked' "
            "and event_type = 'media.stored'",
        ):
            body = {
                **samples.on_the_bus(STORED), "event_id": str(event_id), "tenant_id": "t-cam",
                "device_id": "cam-1", "session_id": str(session) if session else None,
                "payload": payload,
            }  # fmt: skip
            bodies = [json.dumps(body).encode()]
            assert await sink.store_events(self.pool, bodies, service.SINK) == {}
        acked(self.edge.database)

    async def upload(self) -> int:
        return await self.uploader.upload_once()


def acked(database: Database) -> None:
    with databases.connected(database.admin_url) as owner:
        owner.execute("set local session_replication_role = replica")
        owner.execute("update sync_outbox set status = 'acked'")


@pytest.fixture
async def cloud(
    cloud_db: Database, engines: dict[str, str], edge: Edge, tmp_path: Path
) -> AsyncIterator[Cloud]:
    with databases.connected(cloud_db.admin_url) as connection:
        company = add_company(connection, "t-cam", name="Cam", timezone="Asia/Tokyo")
        add_user(connection, "p@cam.farm", company_id=company, password="a long enough password")
        other = add_company(connection, "t-other", name="Other")
        add_user(connection, "p@other.farm", company_id=other, password="a long enough password")
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
            "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        }
    )
    server = http.HttpServer(title="cloud", version="0")
    instead: list[PlainTextResponse] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (instead.pop(0) if instead else server.app)(scope, receive, send)

    def connect() -> httpx2.AsyncClient:
        mounts = {"http://cloud.test": httpx2.ASGITransport(app=app)}
        return httpx2.AsyncClient(mounts=mounts, timeout=60)

    async with (
        db.pool(cloud_db.url, name="test", max_size=6) as opened,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=server.app), base_url="http://cloud.test"
        ) as client,
        CloudUploader(edge.settings, edge.pool, edge.bucket, connect) as uploader,
    ):
        service.add_routes(settings, server, opened)
        own = objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"])
        yield Cloud(settings, cloud_db, opened, own, client, uploader, edge, instead)


def sign_in(cloud: Cloud, email: str) -> dict[str, str]:
    with databases.connected(cloud.database.admin_url) as connection:
        token = open_sign_in(connection, email, lasts=timedelta(hours=1))
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.req("MD-08")
async def test_an_image_is_in_the_cloud_byte_for_byte_after_its_event(cloud: Cloud) -> None:
    data, session = jpeg(), ids.new()
    media_id = await cloud.edge.store(data, sessionId=str(session))
    assert await cloud.upload() == 0, "the event goes first"
    await cloud.deliver()
    assert cloud.row(media_id)["stored_at"] is None
    assert await cloud.upload() == 1
    found = cloud.row(media_id)
    assert found["stored_at"] is not None
    assert (found["session_id"], found["station_id"]) == (session, "st-1")
    assert found["object_key"] == cloud.edge.column("object_key", media_id)
    assert await cloud.bucket.get(found["object_key"]) == data
    assert cloud.edge.column("synced_at", media_id) is not None
    assert await cloud.upload() == 0
    async with cloud.edge.pool.connection() as connection:
        (progress,) = await edge_store.progress(connection)
    assert (progress.stored, progress.unsynced, progress.stored_bytes) == (1, 0, len(data))


async def test_bytes_before_the_event_are_kept_all_the_same(cloud: Cloud) -> None:
    """An outbox that was archived or emptied: the image is not held back for ever."""
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    assert await cloud.upload() == 1
    assert cloud.row(media_id)["told_at"] is None
    await cloud.deliver()
    assert cloud.edge.column("synced_at", media_id) is not None


async def test_the_newest_go_first(cloud: Cloud) -> None:
    stored = [
        await cloud.edge.store(jpeg(colour))
        for colour in ("red", "green", "blue", "black", "white")
    ]
    acked(cloud.edge.database)
    assert await cloud.upload() == 4
    assert [cloud.edge.column("synced_at", each) is None for each in stored] == [
        True, False, False, False, False,
    ]  # fmt: skip
    assert await cloud.upload() == 1


async def test_a_cloud_that_is_away_costs_nothing_and_its_wait_is_kept(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(cloud_upload, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    cloud.instead += [PlainTextResponse("busy", 503, headers={"Retry-After": "1"})]
    assert await cloud.upload() == 1
    assert await cloud.upload() == 0, "it rests"
    assert cloud.edge.column("sync_count", media_id) == 0
    assert "503" in cloud.edge.column("sync_error", media_id)
    clock[0] += 3600

    async def there() -> bool:
        await cloud.upload()
        return cloud.edge.column("synced_at", media_id) is not None

    await until(there)
    assert cloud.edge.alerts() == set()


async def test_an_image_put_off_by_a_clock_that_was_ahead_is_uploaded_when_it_is_back(
    cloud: Cloud,
) -> None:
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    with databases.connected(cloud.edge.database.admin_url) as owner:
        owner.execute("update media_objects set sync_at = fn_now() + interval '3 days'")
    assert await cloud.upload() == 1
    assert cloud.edge.column("synced_at", media_id) is not None


async def test_a_lost_answer_is_asked_about_again(cloud: Cloud) -> None:
    """The bytes are up, the confirmation got lost: the store says 412, or the cloud: stored."""
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    answer = await cloud.ask(told(cloud, media_id))
    said = answer.json()
    assert "stored" not in said
    assert (await cloud.edge.put(said, jpeg())).status_code == 200
    assert await cloud.upload() == 1
    assert cloud.edge.column("synced_at", media_id) is not None
    assert (await cloud.edge.put(said, jpeg())).status_code == 412


async def test_a_damaged_object_is_not_taken_to_the_cloud(cloud: Cloud) -> None:
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    place = cloud.edge.column("object_key", media_id)
    await cloud.edge.bucket.put(place, jpeg("blue"), content_type="image/jpeg")
    for count in range(1, 5):
        edges.later(cloud.edge.database, f"{count} hours")
        assert await cloud.upload() == 1
    assert "damaged" in cloud.edge.column("sync_error", media_id)
    assert cloud.edge.alerts() == {("media.not_taken", "t-cam/cam-1")}
    assert cloud.edge.column("synced_at", media_id) is None
    await cloud.edge.bucket.put(place, jpeg(), content_type="image/jpeg")
    edges.later(cloud.edge.database, "2 days")
    assert await cloud.upload() == 1
    assert cloud.edge.alerts() == set()


async def test_wrong_bytes_in_the_clouds_bucket_do_not_count(cloud: Cloud) -> None:
    media_id = await cloud.edge.store(jpeg())
    acked(cloud.edge.database)
    place = cloud.edge.column("object_key", media_id)
    await cloud.bucket.put(place, jpeg("blue"), content_type="image/jpeg")
    assert await cloud.upload() == 1
    assert await cloud.bucket.get(place) == jpeg()
    assert [key for key, _ in await cloud.bucket.page(f"aside/{place}", after="")]
    assert cloud.edge.column("synced_at", media_id) is not None


def told(cloud: Cloud, media_id: UUID, **over: Any) -> dict[str, Any]:
    return cloud.edge.body(jpeg(), mediaId=str(media_id), **over)


async def test_who_asks_the_cloud_for_an_address_is_an_edge_of_that_tenant(cloud: Cloud) -> None:
    body = told(cloud, ids.new())
    assert (await cloud.client.post(PRESIGN, json=body)).status_code == 401
    assert (await cloud.ask(body, tenants=["t-other"])).status_code == 403
    assert (await cloud.ask({**body, "tenantId": "t-other"})).status_code == 403
    assert (await cloud.ask({**body, "tenantId": "t-9"}, tenants=["t-9"])).status_code == 403
    assert (await cloud.ask(body)).status_code == 200
    for left_out in ("mediaId", "sha256", "contentLength", "tenantId", "capturedAt"):
        short = {name: value for name, value in body.items() if name != left_out}
        answer = await cloud.ask(short)
        assert answer.status_code == 400, left_out
        assert left_out in str(answer.json()["error"]["details"])
    assert (await cloud.ask({**body, "contentType": "text/html"})).status_code == 400
    other = cloud.edge.body(jpeg("blue"), mediaId=body["mediaId"])
    assert (await cloud.ask(other)).status_code == 409
    headers = {"Authorization": f"Bearer {cloud.token()}", "Content-Type": "application/json"}
    for raw, status in ((b"{", 400), (b" " * 20_000, 413)):
        answer = await cloud.client.post(PRESIGN, content=raw, headers=headers)
        assert answer.status_code == status


async def test_people_see_the_pictures_of_their_company_and_no_others(cloud: Cloud) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8825)[2] = (52.0, 30.0, 0.0)
    exif[0x010F] = "a camera"
    data = jpeg("red", size=(800, 600), exif=exif)
    session = ids.new()
    media_id = await cloud.edge.store(data, sessionId=str(session))
    await cloud.deliver()
    mine, others = sign_in(cloud, "p@cam.farm"), sign_in(cloud, "p@other.farm")
    early = await cloud.client.get(f"{IMAGES}/{media_id}", headers=mine)
    assert (early.status_code, "still at its edge" in early.text) == (404, True)
    await cloud.upload()
    whole = await cloud.client.get(f"{IMAGES}/{media_id}", headers=mine)
    assert (whole.status_code, whole.headers["content-type"]) == (200, "image/jpeg")
    assert b"a camera" in data
    assert b"a camera" not in whole.content
    again = await cloud.client.get(
        f"{IMAGES}/{media_id}", headers={**mine, "If-None-Match": whole.headers["etag"]}
    )
    assert again.status_code == 304
    for _ in range(2):
        small = await cloud.client.get(f"{IMAGES}/{media_id}/thumbnail", headers=mine)
        assert small.status_code == 200
        assert len(small.content) < len(whole.content)
    detail = (await cloud.client.get(f"{IMAGES}/{media_id}/detail", headers=mine)).json()
    assert (detail["sha256"], detail["size_bytes"]) == (sha256(data), len(data))
    for path in ("", "/thumbnail", "/detail"):
        url = f"{IMAGES}/{media_id}{path}"
        assert (await cloud.client.get(url)).status_code == 401
        assert (await cloud.client.get(url, headers=others)).status_code == 404
    assert (await cloud.client.get(f"{IMAGES}/nothing", headers=mine)).status_code == 404
    cookie = {"Cookie": f"farmiq_sign_in={mine['Authorization'].removeprefix('Bearer ')}"}
    assert (await cloud.client.get(f"{IMAGES}/{media_id}", headers=cookie)).status_code == 200


async def test_images_are_listed_by_session_device_and_day(cloud: Cloud) -> None:
    session = str(ids.new())
    # 16:00 in UTC is the next day already where the company is.
    days = {
        "2026-11-10T16:00:00Z": None,
        "2026-11-11T03:00:00Z": session,
        "2026-11-12T03:00:00Z": None,
    }
    made = [
        str(await cloud.edge.store(jpeg(colour), capturedAt=at, sessionId=of))
        for colour, (at, of) in zip(("red", "green", "blue"), days.items(), strict=True)
    ]
    await cloud.deliver()
    mine = sign_in(cloud, "p@cam.farm")

    async def ls(**asked: str) -> list[str]:
        answer = await cloud.client.get(IMAGES, params=asked, headers=mine)
        assert answer.status_code == 200, answer.text
        return [each["media_id"] for each in answer.json()["images"]]

    assert await ls() == made[::-1]
    assert await ls(session=session) == [made[1]]
    assert await ls(device="cam-1") == made[::-1]
    assert await ls(device="cam-2") == []
    assert await ls(day="2026-11-11") == [made[1], made[0]]
    page = (await cloud.client.get(f"{IMAGES}?limit=2", headers=mine)).json()
    assert await ls(limit="2", cursor=page["next_cursor"]) == [made[0]]
    for odd in ("day=today", "limit=0", "session=x", "cursor=x", "colour=red", "day=1&day=2"):
        assert (await cloud.client.get(f"{IMAGES}?{odd}", headers=mine)).status_code == 400
    others = sign_in(cloud, "p@other.farm")
    assert (await cloud.client.get(IMAGES, headers=others)).json()["images"] == []
    assert (await cloud.client.get(IMAGES)).status_code == 401
