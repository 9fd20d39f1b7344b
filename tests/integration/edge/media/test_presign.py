"""Where a station may put an image: who asks, for what, and what the store makes of the address."""

import asyncio
import hashlib
import io
import json
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from fastapi import Request

from farmiq.device.buffer.recorder import Picture
from farmiq.device.uplink import uploads
from farmiq.edge.media import upload
from farmiq.messages.media import UploadAddress
from farmiq.messages.topics import Place
from farmiq.plumbing import ids, log
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.storage import objects
from tests.integration.device import barn
from tests.integration.edge.media.conftest import PLACE, Edge, jpeg, picture, rows, served
from tests.support import databases, devices
from tests.support.until import until

KEY = (
    r"tenants/t-cam/farms/f-1/barns/b-1/devices/cam-1/images/2026/11/15/"
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.jpg"
)


@pytest.mark.req("MD-01", "MD-03", "MD-04", "MD-05", "MD-09", "MD-10", "MD-12", "DB-08", "WV-28")
async def test_an_address_takes_the_bytes_it_was_asked_for(edge: Edge) -> None:
    data = jpeg()
    answer = await edge.ask(edge.body(data, sessionId=str(session := ids.new())))
    assert (answer.status_code, answer.headers["x-trace-id"]) == (200, "trace-1")
    said = answer.json()
    assert msgspec.convert(said, UploadAddress).expires_at > datetime.now(UTC)
    assert said["expires_at"].endswith("Z")
    assert set(said) == {"upload_url", "media_id", "expires_at", "required_headers"}
    assert UUID(said["media_id"]).version == 7
    assert (await edge.put(said, data)).status_code == 200
    ((key, mime, bound, status),) = rows(
        edge.database, "select object_key, mime_type, session_id, upload_status from media_objects"
    )
    assert re.fullmatch(KEY, key)
    assert (mime, bound, status) == ("image/jpeg", session, "presigned")
    assert await edge.bucket.get(key) == data


@pytest.mark.req("MD-11")
@pytest.mark.parametrize(
    ("form", "kind", "extension"),
    [("JPEG", "image/jpeg", "jpg"), ("PNG", "image/png", "png"), ("WEBP", "image/webp", "webp")],
)
async def test_the_key_ends_as_the_type_says(
    edge: Edge, form: str, kind: str, extension: str
) -> None:
    media_id = await edge.store(picture(form), contentType=kind)
    assert edge.column("object_key", media_id).endswith(f"{media_id}.{extension}")
    assert edge.column("mime_type", media_id) == kind


@pytest.mark.req("MD-02")
@pytest.mark.parametrize(
    "field", ["tenantId", "farmId", "barnId", "deviceId", "traceId", "capturedAt", "contentType"]
)
async def test_what_is_missing_is_named(edge: Edge, field: str) -> None:
    answer = await edge.ask({name: v for name, v in edge.body().items() if name != field})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["traceId"]) == (
        400, "VALIDATION_ERROR", "trace-1",
    )  # fmt: skip
    assert field in str(error["details"])


@pytest.mark.req("WV-29")
async def test_agent_that_is_refused_logs_the_code_and_the_trace_of_the_answer(
    edge: Edge, tmp_path: Path
) -> None:
    """The agent's own uploads ask the edge's own media store, with the token of another device."""
    alarms: list[str | None] = []
    stream = io.StringIO()
    async with barn.recorder(tmp_path) as book:
        taken = Picture(ids.new(), None, "image/jpeg", jpeg(), datetime.now(UTC))
        await book.photograph(taken)
        agent = uploads.Uploads(
            buffer=book.buffer, writer=book.writer, identity=book.writer.identity, edge_url="http://edge",
            token=edge.token, attempts=3, backoff_s=0.01, max_backoff_s=0.01,
            alarm=lambda _, text: alarms.append(text), on_settled=lambda: None,
        )  # fmt: skip
        log.configure("debug", stream=stream)
        running = asyncio.create_task(agent.run(edge.client))
        await until(lambda: agent.unavailable is not None)
        running.cancel()
        await asyncio.wait([running])
        log.configure("warning")
        ((trace_id,),) = await barn.rows(book, "select trace_id from images")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    said = next(line for line in lines if line["event"] == "presign.refused")
    assert (said["status"], said["code"], said["trace_id"]) == (403, "FORBIDDEN", trace_id)
    assert str(agent.unavailable).startswith("403 FORBIDDEN ")
    assert "the media store answers 403" in str(alarms[0])


@pytest.mark.req("MD-02")
async def test_what_is_optional_may_be_absent_or_null(edge: Edge) -> None:
    short = edge.body(stationId=None)
    assert (await edge.ask(short)).status_code == 200
    nothing = dict.fromkeys(("stationId", "sessionId", "contentLength", "mediaId", "sha256"))
    assert (await edge.ask({**short, **nothing})).status_code == 200


@pytest.mark.parametrize(
    ("over", "status"),
    [
        ({"contentType": "image/gif"}, 400),
        ({"contentLength": 0}, 400),
        ({"contentLength": 10 * 2**20 + 1}, 413),
        ({"contentLength": 10 * 2**20}, 200),
        ({"contentLength": 1.5}, 400),
        ({"sha256": "beef"}, 400),
        ({"mediaId": "mine"}, 400),
        ({"sessionId": "mine"}, 400),
        ({"capturedAt": "yesterday"}, 400),
        ({"capturedAt": "2026-11-15T08:00:00"}, 400),
        ({"capturedAt": "0001-01-01T00:00:00+14:00"}, 400),
        ({"traceId": "a\0b"}, 400),
        ({"tenantId": "../t-2"}, 400),
    ],
)
async def test_bad_requests_are_answered(edge: Edge, over: dict[str, object], status: int) -> None:
    answer = await edge.ask({**edge.body(), **over})
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["message"]
        assert rows(edge.database, "select from media_objects") == []


async def test_bad_bodies_and_headers_are_answered(edge: Edge) -> None:
    headers = {"Authorization": f"Bearer {edge.token}", "Content-Type": "application/json"}
    for body, status in (
        (b"", 400), (b"{", 400), (b"[]", 400), (b"\xff", 400), (b"[" * 15_000, 400),
        (b" " * 20_000, 413),
    ):  # fmt: skip
        answer = await edge.client.post(
            "/api/v1/media/images/presign", content=body, headers=headers
        )
        assert answer.status_code == status, body[:10]
    plain = {**headers, "Content-Type": "text/plain"}
    answer = await edge.client.post("/api/v1/media/images/presign", content=b"{}", headers=plain)
    assert answer.status_code == 415
    assert (await edge.ask(edge.body(), request_id="first")).status_code == 400


@pytest.mark.req("MD-02")
async def test_nobody_asks_for_another(edge: Edge) -> None:
    """The claims of the token are what is in the body, or it is 403."""
    for field in ("tenantId", "farmId", "barnId", "deviceId", "stationId"):
        answer = await edge.ask({**edge.body(), field: "t-2"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
        assert [each["field"] for each in answer.json()["error"]["details"]] == [field]
    assert rows(edge.database, "select from media_objects") == []


async def test_a_token_ends_with_its_device(edge: Edge) -> None:
    url = "/api/v1/media/images/presign"
    assert (await edge.client.post(url, json=edge.body())).status_code == 401
    assert (await edge.ask(edge.body(), token="fiqd_guessed")).status_code == 401
    assert (await edge.ask(edge.body(), token=edge.key)).status_code == 401
    for change in ("token_sha256 = sha256('another')", "revoked_at = now()"):
        with databases.connected(edge.database.admin_url) as owner:
            owner.execute(f"update devices set {change} where device_id = 'cam-1'".encode())  # noqa: S608
            answer = await edge.ask(edge.body())
            assert answer.status_code == 200, "nothing is committed yet"
            owner.commit()
        assert (await edge.ask(edge.body())).status_code == 401
        with databases.connected(edge.database.admin_url) as owner:
            owner.execute(
                "update devices set revoked_at = null, token_sha256 = sha256(%s::bytea) "
                "where device_id = 'cam-1'",
                (edge.token.encode(),),
            )


async def test_the_same_request_has_the_same_image(edge: Edge) -> None:
    data, request_id = jpeg(), ids.new()
    first = (await edge.ask(edge.body(data), request_id=request_id)).json()
    again = (await edge.ask(edge.body(data), request_id=request_id)).json()
    assert first["media_id"] == again["media_id"]
    other = await edge.ask(edge.body(jpeg("blue")), request_id=request_id)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "CONFLICT")
    assert len(rows(edge.database, "select from media_objects")) == 1


async def test_an_image_is_asked_about_again_by_its_id(edge: Edge) -> None:
    data = jpeg()
    first = await edge.presigned(data)
    again = await edge.presigned(data, mediaId=first["media_id"])
    assert again["media_id"] == first["media_id"]
    assert "stored" not in again
    assert (await edge.put(again, data)).status_code == 200
    # The answer to the PUT got lost: asking once more settles it, without an announcement.
    settled = await edge.presigned(data, mediaId=first["media_id"])
    assert (settled["stored"], settled["size_bytes"]) == (True, len(data))
    assert settled["sha256"] == edge.body(data)["sha256"]
    assert (await edge.put(settled, data)).status_code == 412
    assert len(edge.owed()) == 1
    wrong = await edge.ask(edge.body(jpeg("blue"), mediaId=first["media_id"]))
    assert wrong.status_code == 409


async def test_an_id_that_a_restored_edge_forgot_stays_good(edge: Edge) -> None:
    media_id = str(ids.new())
    assert (await edge.presigned(jpeg(), mediaId=media_id))["media_id"] == media_id


async def test_an_image_of_another_device_is_not_given(edge: Edge) -> None:
    mine = await edge.presigned(jpeg())
    there = Place(PLACE.tenant_id, "f-1", "b-1", "cam-2")
    (other,) = devices.register(edge.database.admin_url, [devices.at(there, kind="station")])
    body = edge.body(jpeg(), mediaId=mine["media_id"], deviceId="cam-2", stationId=None)
    answer = await edge.ask(body, token=other.token)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")


@pytest.mark.req("MD-04", "MD-12")
async def test_a_tampered_address_is_refused_by_the_store(edge: Edge) -> None:
    data = jpeg()
    said = await edge.presigned(data)
    url = said["upload_url"]
    for change in (
        url.replace(f"{said['media_id']}.jpg", f"{ids.new()}.jpg"),
        url.replace("X-Amz-Expires=900", "X-Amz-Expires=90000"),
        re.sub(r"Signature=[0-9a-f]{4}", "Signature=beef", url),
        re.sub(r"&X-Amz-Signature=.*", "", url),
    ):
        assert change != url
        answer = await edge.put({**said, "upload_url": change}, data)
        assert answer.status_code in (400, 403), change
    assert (await edge.put(said, data, **{"Content-Type": "image/png"})).status_code == 403
    assert (await edge.put(said, data, **{"If-None-Match": ""})).status_code == 403
    longer = {"Content-Length": str(len(data) + 1)}
    assert (await edge.put(said, data + b"x", **longer)).status_code == 403
    other = data[:-1] + bytes([data[-1] ^ 1])
    assert (await edge.put(said, other)).status_code == 400, "another content of that length"
    assert (await edge.put(said, data)).status_code == 200
    assert (await edge.put(said, data)).status_code == 412, "the first one won"


@pytest.mark.req("MD-04")
async def test_an_address_ends(edge: Edge) -> None:
    hasty = edge.settings.model_copy(update={"media_presign_s": 1})
    async with served(hasty, edge.pool, edge.bucket, edge.checker) as client:
        edge.client = client
        said = await edge.presigned(jpeg())
        over = datetime.fromisoformat(said["expires_at"]) + timedelta(seconds=1.1)
        await until(lambda: datetime.now(UTC) > over)
        assert (await edge.put(said, jpeg())).status_code == 403


async def test_who_asks_too_often_waits(edge: Edge) -> None:
    slow = edge.settings.model_copy(update={"media_presigns_per_minute": 2})
    async with served(slow, edge.pool, edge.bucket, edge.checker) as client:
        edge.client = client
        answers = [await edge.ask(edge.body()) for _ in range(3)]
        assert [each.status_code for each in answers] == [200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) >= 1


@pytest.mark.req("MD-02")
async def test_bytes_of_a_device_are_bounded_by_the_hour_rejected_ones_too(edge: Edge) -> None:
    most = edge.settings.media_max_bytes
    bounded = edge.settings.model_copy(update={"media_bytes_per_hour": 3 * most})
    async with served(bounded, edge.pool, edge.bucket, edge.checker) as client:
        edge.client = client
        # By the store: what the address is for counts, whatever becomes of it.
        first = await edge.ask(edge.body(contentLength=most))
        assert first.status_code == 200
        # By an address of ours: what is sent counts, and is refused here.
        said = (await edge.ask(edge.body(sha256=hashlib.sha256(b"another").hexdigest()))).json()
        # A body in parts may say that it is short.
        in_parts = {"Content-Length": "1", "Transfer-Encoding": "chunked"}
        answers = [await edge.put(said, bytes(most), **over) for over in ({}, in_parts, {})]
        assert [each.status_code for each in answers] == [400, 400, 429]
        assert int(answers[-1].headers["Retry-After"]) > 60
        refused = await edge.ask(edge.body(contentLength=most))
        assert (refused.status_code, int(refused.headers["Retry-After"]) > 60) == (429, True)
        # A request for an address of ours sends nothing yet.
        assert (await edge.ask(edge.body())).status_code == 200


async def test_without_a_store_it_is_said(edge: Edge) -> None:
    async with served(edge.settings, edge.pool, None, None) as client:
        edge.client = client
        answer = await edge.ask(edge.body())
        assert answer.status_code == 503
        assert "FARMIQ_EDGE_S3_URL" in answer.json()["error"]["message"]
        assert (await edge.get("")).json() == {"images": [], "next_cursor": None}


async def test_the_address_is_one_that_stations_reach(edge: Edge) -> None:
    url = edge.settings.s3_url
    assert url is not None
    outside = objects.Bucket(url.get_secret_value(), public_url="https://store.barn.example:9000")
    async with served(edge.settings, edge.pool, outside, edge.checker) as client:
        edge.client = client
        said = await edge.presigned(jpeg())
        assert said["upload_url"].startswith("https://store.barn.example:9000/farmiq-edge/tenants/")


@pytest.mark.req("MD-02")
async def test_upload_without_a_length_is_taken_once_and_becomes_an_image(edge: Edge) -> None:
    data = jpeg()
    said = (await edge.ask(edge.body())).json()
    assert said["upload_url"].startswith("http://edge/media/uploads/")
    assert (await edge.put(said, data)).status_code == 200
    assert (await edge.put(said, jpeg("blue"))).status_code == 412
    await edge.announce(said["media_id"])
    await edge.checker.check_due()
    assert edge.status(said["media_id"]) == "stored"
    assert await edge.bucket.get(edge.column("object_key", said["media_id"])) == data


@pytest.mark.req("MD-04", "MD-12")
async def test_upload_without_a_length_ends_at_the_most_that_is_taken(edge: Edge) -> None:
    most = edge.settings.media_max_bytes
    said = (await edge.ask(edge.body())).json()
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 6 * most:
            sent += 2**20
            yield bytes(2**20)

    in_parts = await edge.client.put(
        said["upload_url"], content=endless(), headers=said["required_headers"]
    )
    assert (in_parts.status_code, sent) == (413, most + 2**20)
    assert (await edge.put(said, bytes(most + 1))).status_code == 413
    assert await edge.bucket.head(edge.column("object_key", said["media_id"])) is None
    # What fits is still taken at that address.
    assert (await edge.put(said, jpeg())).status_code == 200


async def test_device_that_sends_slowly_has_one_upload_and_keeps_no_way_to_the_store(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = [(await edge.ask(edge.body())).json() for _ in range(2)]
    began, go_on = asyncio.Event(), asyncio.Event()
    under_way: list[upload.Uploads] = []
    read = upload.Uploads.read_body

    async def seen(uploads: upload.Uploads, request: Request) -> bytes:
        under_way.append(uploads)
        return await read(uploads, request)

    monkeypatch.setattr(upload.Uploads, "read_body", seen)

    async def slowly() -> AsyncIterator[bytes]:
        yield jpeg()[:100]
        began.set()
        await go_on.wait()
        yield jpeg()[100:]

    first = asyncio.create_task(
        edge.client.put(slow["upload_url"], content=slowly(), headers=slow["required_headers"])
    )
    await began.wait()
    assert (await edge.put(other, jpeg())).status_code == 429
    assert under_way[0]._slots._value == upload.MAX_CONCURRENT
    monkeypatch.setattr(upload, "MAX_BODIES", 1)
    with pytest.raises(HttpError, match="too many images"), under_way[0].reserved("t-2/another"):
        pass
    go_on.set()
    assert (await first).status_code == 200
    assert (await edge.put(other, jpeg())).status_code == 200


async def test_address_of_ours_is_good_for_its_image_its_type_and_its_time(edge: Edge) -> None:
    said = (await edge.ask(edge.body())).json()
    other = (await edge.ask(edge.body())).json()
    url, headers = said["upload_url"], said["required_headers"]
    past = int(time.time()) - 1
    for address, kind in (
        (url.replace(said["media_id"], other["media_id"]), "image/jpeg"),
        (re.sub(r"expires=\d+", "expires=99999999999", url), "image/jpeg"),
        (re.sub(r"expires=\d+", f"expires={past}", url), "image/jpeg"),
        (url.partition("&signature=")[0], "image/jpeg"),
        (url, "image/png"),
    ):
        answer = await edge.client.put(
            address, content=jpeg(), headers={**headers, "Content-Type": kind}
        )
        assert answer.status_code == 403, address
    with_hash = await edge.presigned(jpeg(), contentLength=None)
    assert (await edge.put(with_hash, jpeg("blue"))).status_code == 400
    assert (await edge.put(with_hash, jpeg())).status_code == 200
