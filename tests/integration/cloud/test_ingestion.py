"""cloud-ingestion over real HTTP, with a real database and a real bus."""

import asyncio
import contextlib
import gzip
import json
import re
import select
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aio_pika
import httpx2
import pytest

from farmiq.cloud.bus import (
    RETRY_EXCHANGE,
    TELEMETRY_QUEUE,
    TOPOLOGY,
    UNROUTED_EXCHANGE,
    UNROUTED_QUEUE,
)
from farmiq.cloud.ingestion import backpressure, service
from farmiq.config import CloudSettings
from farmiq.messages import catalogue
from farmiq.messages.catalogue import Maker
from farmiq.plumbing import http, ids
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.conftest import CloudSite, event
from tests.support.until import until
from tests.unit.messages import samples

EXAMPLES = Path(samples.__file__).parent / "examples"


class Client:
    def __init__(
        self, site: CloudSite, server: http.HttpServer, client: httpx2.AsyncClient
    ) -> None:
        self.site, self.server, self._client = site, server, client

    async def post(self, body: Any, **headers: str) -> httpx2.Response:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"authorization": f"Bearer {self.site.token()}", **headers}
        return await self._client.post(
            service.ROUTE, content=sent, headers={"content-type": "application/json", **given}
        )

    async def bus(self, queue: str = TELEMETRY_QUEUE) -> list[bytes]:
        """Takes everything that waits in a queue."""
        url = self.site.settings.amqp_url.get_secret_value()
        found: list[bytes] = []
        async with amqp.connection(url, name="test") as connection:
            channel = await connection.channel()
            waiting = await channel.get_queue(queue)
            while message := await waiting.get(fail=False):
                found.append(message.body)
                await message.ack()
        return found


@pytest.fixture
async def client(cloud: CloudSite, tasks: asyncio.TaskGroup) -> AsyncIterator[Client]:
    async with _serving(cloud, cloud.settings, tasks) as found:
        await until(lambda: ready(found.server))
        yield found


def _serving(
    cloud: CloudSite, settings: CloudSettings, tasks: asyncio.TaskGroup, **limits: Any
) -> Any:
    from contextlib import asynccontextmanager  # noqa: PLC0415

    @asynccontextmanager
    async def serve() -> AsyncIterator[Client]:
        server = http.HttpServer(title="cloud", version="0", **limits)
        running = [
            tasks.create_task(service.run(settings, server)),
            tasks.create_task(http.serve(server, host=settings.http_host, port=settings.http_port)),
        ]
        base = f"http://127.0.0.1:{settings.http_port}"
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            await until(lambda: _answers(client))
            yield Client(cloud, server, client)
        for task in running:
            task.cancel()
        await asyncio.wait(running)

    return serve()


async def _answers(client: httpx2.AsyncClient) -> bool:
    try:
        answer = await client.get("/readyz")
    except httpx2.HTTPError:
        return False
    return "ingestion.bus" in answer.text or answer.status_code == 200


async def ready(server: http.HttpServer) -> bool:
    return not await server.problems()


@pytest.mark.req("FB-06", "FB-08", "FB-05", "RB-12")
async def test_a_batch_is_accepted_noted_and_on_the_bus(client: Client) -> None:
    one = event()
    answer = await client.post({"batchId": "batch-aaa", "events": [one]})
    assert answer.status_code == 202
    assert answer.json() == {"accepted": True, "batchId": "batch-aaa"}
    assert client.site.rows("select event_id::text, batch_id from ingestion_dedupe") == [
        (one["event_id"], "batch-aaa")
    ]
    (body,) = await client.bus()
    assert json.loads(body) == one


@pytest.mark.req("FB-09", "DD-04")
async def test_a_known_event_is_counted_and_not_published_again(client: Client) -> None:
    one = event()
    await client.post({"batchId": "batch-aaa", "events": [one]})
    answer = await client.post({"batchId": "batch-bbb", "events": [one, event()]})
    assert answer.status_code == 202
    assert answer.json() == {"accepted": True, "deduped": 1, "batchId": "batch-bbb"}
    assert len(await client.bus()) == 2
    assert client.site.rows("select count(*) from event_conflicts") == [(0,)]


async def test_the_same_event_twice_in_one_batch_is_stored_once(client: Client) -> None:
    one = event()
    answer = await client.post({"batchId": "b", "events": [one, one]})
    assert answer.json() == {"accepted": True, "deduped": 1, "batchId": "b"}
    assert len(await client.bus()) == 1


async def test_a_known_id_with_another_content_is_deduped_and_written_down(client: Client) -> None:
    one = event()
    await client.post({"batchId": "a", "events": [one]})
    answer = await client.post({"batchId": "b", "events": [{**one, "trace_id": "other"}]})
    assert answer.json()["deduped"] == 1
    assert client.site.rows("select count(*) from event_conflicts") == [(0,)]
    changed = {**one, "payload": {**one["payload"], "metric_value": 99}}
    answer = await client.post({"batchId": "c", "events": [changed]})
    assert answer.json() == {"accepted": True, "deduped": 1, "batchId": "c"}
    assert client.site.rows("select event_id::text, batch_id from event_conflicts") == [
        (one["event_id"], "c")
    ]


async def test_a_batch_without_an_id_gets_one(client: Client) -> None:
    answer = await client.post({"events": [event()]})
    assert answer.json()["batchId"].startswith("batch-")


@pytest.mark.req("FB-10", "RB-11")
async def test_an_event_without_identity_gets_the_documented_answer(client: Client) -> None:
    answer = await client.post(
        {"events": [{"event_type": "feed.intake.recorded"}]}, **{"x-trace-id": "trace-err-201"}
    )
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error.pop("details")[0]["index"] == 0
    assert error == {
        "code": "VALIDATION_ERROR",
        "message": "event_id and tenant_id are required",
        "traceId": "trace-err-201",
    }


@pytest.mark.req("FB-06", "FB-08", "FB-09", "FB-11")
async def test_the_documented_requests_get_the_documented_answers(client: Client) -> None:
    for number in (1, 4):
        request = (EXAMPLES / f"002.example-{number}.request.json").read_bytes()
        answer = await client.post(request)
        assert answer.status_code == 202
        assert answer.json() == json.loads(
            (EXAMPLES / f"002.example-{number}.response.json").read_bytes()
        )


async def test_one_bad_event_is_named_and_nothing_is_stored(client: Client) -> None:
    good, bad = event(), event(occurred_at="yesterday", farm_id=None)
    answer = await client.post({"batchId": "b", "events": [good, bad]})
    assert answer.status_code == 400
    (detail,) = answer.json()["error"]["details"]
    assert (detail["index"], detail["event_id"]) == (1, bad["event_id"])
    assert client.site.rows("select count(*) from ingestion_dedupe") == [(0,)]
    assert await client.bus() == []


@pytest.mark.req("FB-07")
async def test_without_a_good_token_nobody_is_let_in(client: Client) -> None:
    wrong = {
        "none": "",
        "not bearer": "Basic abc",
        "garbage": "Bearer garbage",
        "audience": f"Bearer {client.site.token(audience='other')}",
        "issuer": f"Bearer {client.site.token(issuer='other')}",
    }
    for why, header in wrong.items():
        answer = await client.post({"events": [event()]}, authorization=header)
        assert answer.status_code == 401, why
        assert answer.json()["error"]["code"] == "UNAUTHENTICATED"
        assert answer.json()["error"]["traceId"]


async def test_a_token_speaks_only_for_its_tenants(client: Client) -> None:
    answer = await client.post({"events": [event(), event(tenant_id="t-002")]})
    assert answer.status_code == 403
    assert "t-002" in answer.json()["error"]["message"]
    assert client.site.rows("select count(*) from ingestion_dedupe") == [(0,)]


async def test_an_unknown_tenant_is_refused(client: Client) -> None:
    token = client.site.token(tenants=["nobody"])
    answer = await client.post(
        {"events": [event(tenant_id="nobody")]}, authorization=f"Bearer {token}"
    )
    assert answer.status_code == 403
    assert "not registered" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"no json", 400),
        (b"[]", 400),
        (b'{"events": 5}', 400),
        (b'{"events": ["x", 7, null]}', 400),
        (b'{"batchId": "a/b", "events": []}', 400),
        (b"[" * 200_000, 400),
        (b'{"events": [{"event_id": "\\ud800"}]}', 400),
        (json.dumps({"events": [event(trace_id="a\x00")]}).encode(), 400),
        (json.dumps({"events": [event()] * 501}).encode(), 413),
        (b" " * (5 * 1024 * 1024 + 1), 413),
    ],
)
async def test_bad_bodies_get_the_standard_error(client: Client, body: bytes, status: int) -> None:
    answer = await client.post(body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "traceId", "details"}
    assert error["message"]


async def test_other_content_types_and_methods_are_refused(client: Client) -> None:
    answer = await client.post(b"x", **{"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    answer = await client._client.get(service.ROUTE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("extra", "status"),
    [
        ([("content-type", "application/json; charset=utf-16")], 415),
        ([("content-type", "application/json"), ("authorization", "Bearer other")], 400),
        ([("content-type", "application/json"), ("content-length", "10000000000")], 413),
        ([("content-type", "application/json"), ("content-length", str(5 * 2**20 + 1))], 413),
    ],
)
async def test_batch_is_refused_by_its_headers(
    client: Client, extra: list[tuple[str, str]], status: int
) -> None:
    token = client.site.token()
    head = [("host", "a"), ("authorization", f"Bearer {token}"), ("expect", "100-continue"), *extra]
    if status != 413:
        head.append(("content-length", "9"))
    reader, writer = await asyncio.open_connection("127.0.0.1", client.site.settings.http_port)
    lines = "".join(f"{name}: {value}\r\n" for name, value in head)
    writer.write(f"POST /api/v1/ingestion/batch HTTP/1.1\r\n{lines}\r\n".encode())
    answer = await reader.read()  # to the end: nobody waits for the body
    writer.close()

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_an_event_that_no_queue_wants_is_kept_and_does_not_block(client: Client) -> None:
    url = client.site.settings.amqp_url.get_secret_value()
    async with amqp.connection(url, name="test") as connection:
        channel = await connection.channel()
        queue = await channel.get_queue(TELEMETRY_QUEUE)
        await queue.unbind("farmiq.telemetry.exchange", "telemetry.ingested")
    answer = await client.post({"events": [event()]})
    assert answer.status_code == 202
    assert len(await client.bus(UNROUTED_QUEUE)) == 1


@pytest.mark.req("RB-01", "XC-03")
async def test_when_the_bus_is_away_nothing_is_noted_and_the_edge_is_told_to_wait(
    cloud: CloudSite, tasks: asyncio.TaskGroup
) -> None:
    parts = urlsplit(cloud.settings.amqp_url.get_secret_value())
    away = urlunsplit(parts._replace(netloc=parts.netloc.rpartition(":")[0] + ":9"))
    settings = CloudSettings.model_validate(
        {**cloud.settings.model_dump(by_alias=True), "FARMIQ_AMQP_URL": away}
    )
    async with _serving(cloud, settings, tasks) as client:
        answer = await client.post({"events": [event()]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.json()["error"]["code"] == "UNAVAILABLE"
        assert "ingestion.bus" in await client.server.problems()
    assert cloud.rows("select count(*) from ingestion_dedupe") == [(0,)]


def of_edges() -> list[dict[str, Any]]:
    """One event of each type that an edge may post."""
    return [
        {**samples.on_the_bus(name), "event_id": str(ids.new())}
        for name, kind in sorted(catalogue.BUS.items())
        if kind.made_by is not Maker.CLOUD
    ]


@pytest.mark.req("RB-10", "FB-12", "FB-16")
async def test_every_type_of_an_edge_reaches_its_exchange_under_its_own_name(
    client: Client,
) -> None:
    """A queue bound to everything sees each event once, with its type as the routing key."""
    events = of_edges()
    async with amqp.connection(
        client.site.settings.amqp_url.get_secret_value(), name="test"
    ) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for exchange in {kind.exchange for kind in catalogue.BUS.values()}:
            await queue.bind(exchange, "#")
        answer = await client.post({"batchId": "all", "events": events})
        assert (answer.status_code, answer.json()) == (202, {"accepted": True, "batchId": "all"})
        told = [f"sync.batch.{word}" for word in ("sent", "acked")]
        found = [await queue.get(timeout=60) for _ in (*events, *told)]
        # Of the batch itself there is word too; these are the ones that were sent.
        found = [each for each in found if b'"batch_id":"all"' not in each.body]
    by_key = {message.routing_key: message for message in found}
    assert by_key.keys() == {event_["event_type"] for event_ in events}
    for event_ in events:
        message = by_key[event_["event_type"]]
        assert message.exchange == catalogue.BUS[event_["event_type"]].exchange
        assert json.loads(message.body) == event_
        assert message.headers["schema_version"] == "1.0"


async def test_every_type_of_an_edge_is_wanted_by_a_queue(client: Client) -> None:
    assert (await client.post({"events": of_edges()})).status_code == 202
    assert await client.bus(UNROUTED_QUEUE) == []


@pytest.mark.parametrize("name", ["kpi.daily.updated", "sync.batch.sent", "sync.batch.acked"])
async def test_what_only_the_cloud_makes_is_refused_of_an_edge(client: Client, name: str) -> None:
    forged = {**samples.on_the_bus(name), "event_id": str(ids.new()), "tenant_id": "t-001"}
    answer = await client.post({"events": [event(), forged]})
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert name in error["message"]
    assert [(each["index"], each["event_id"]) for each in error["details"]] == [
        (1, forged["event_id"])
    ]
    assert client.site.rows("select count(*) from ingestion_dedupe") == [(0,)]


SYNC_QUEUE = "farmiq.cloud-sync-service.ingest.queue"


@pytest.mark.req("RB-20", "RB-21")
async def test_the_bus_hears_that_a_batch_came_and_that_all_of_it_is_confirmed(
    client: Client,
) -> None:
    token = client.site.token(tenants=["t-001", "t-002"], edge_cluster_id="edge-7")
    headers = {"authorization": f"Bearer {token}", "x-trace-id": "trace-9"}
    body = {"batchId": "batch-9", "events": [event(), event(), event(tenant_id="t-002")]}
    assert (await client.post(body, **headers)).status_code == 202
    told = [json.loads(each) for each in await client.bus(SYNC_QUEUE)]
    assert [(each["event_type"], each["tenant_id"], each["payload"]) for each in told] == [
        ("sync.batch.sent", "t-001",
         {"batch_id": "batch-9", "event_count": 2, "edge_cluster_id": "edge-7"}),
        ("sync.batch.sent", "t-002",
         {"batch_id": "batch-9", "event_count": 1, "edge_cluster_id": "edge-7"}),
        ("sync.batch.acked", "t-001",
         {"batch_id": "batch-9", "event_count": 2, "status": "acked"}),
        ("sync.batch.acked", "t-002",
         {"batch_id": "batch-9", "event_count": 1, "status": "acked"}),
    ]  # fmt: skip
    for each in told:
        nowhere = ("farm_id", "barn_id", "device_id", "session_id")
        assert [each[name] for name in nowhere] == [None] * 4
        assert each["trace_id"] == "trace-9"
    # The same batch again, whose answer got lost, is the same events again: consumers know them.
    assert (await client.post(body, **headers)).json()["deduped"] == 3
    again = [json.loads(each)["event_id"] for each in await client.bus(SYNC_QUEUE)]
    assert again == [each["event_id"] for each in told]
    assert client.site.rows("select count(*) from ingestion_dedupe") == [(3,)]


async def test_of_a_batch_that_is_refused_or_empty_the_bus_hears_nothing(client: Client) -> None:
    for body, status in (({"events": [{}]}, 400), ({"events": []}, 202)):
        assert (await client.post(body)).status_code == status
    foreign = {"events": [event(tenant_id="t-002")]}
    assert (await client.post(foreign)).status_code == 403
    assert await client.bus(SYNC_QUEUE) == []


async def test_a_batch_is_published_again_only_for_a_token_with_the_role_admin(
    client: Client,
) -> None:
    known, fresh = event(), event()
    await client.post({"events": [known]})
    await client.bus()
    body = {"events": [known, fresh], "republish": True}
    answer = await client.post(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN")
    assert await client.bus() == []
    admin = f"Bearer {client.site.token(role='admin')}"
    answer = await client.post(body, authorization=admin)
    assert (answer.status_code, answer.json()["deduped"]) == (202, 1)
    assert [json.loads(each) for each in await client.bus()] == [known, fresh]
    # What is known with another content stays back: the first one counts (C-05).
    changed = {**known, "payload": {**known["payload"], "metric_value": 99}}
    answer = await client.post({"events": [changed], "republish": True}, authorization=admin)
    assert answer.status_code == 202
    assert await client.bus() == []
    assert client.site.rows("select count(*) from event_conflicts") == [(1,)]


async def test_an_unregistered_type_is_refused(client: Client) -> None:
    answer = await client.post({"events": [event(event_type="weather.guessed")]})
    assert answer.status_code == 400
    assert "not registered" in answer.json()["error"]["details"][0]["reason"]


@pytest.mark.req("RB-06", "RB-31")
async def test_the_topology_is_declared_from_nothing_and_again_without_change(vhost: str) -> None:
    async with amqp.connection(vhost, name="test") as connection:
        channel = await connection.channel()
        for _ in range(2):
            await amqp.declare(channel, TOPOLOGY)
        for exchange in TOPOLOGY.exchanges:
            # Declaring again with other arguments would close the channel: so they are these.
            await channel.declare_exchange(
                exchange.name,
                aio_pika.ExchangeType.TOPIC,
                durable=True,
                arguments={"alternate-exchange": exchange.alternate} if exchange.alternate else {},
            )


@pytest.mark.req("RB-06")
def test_every_family_has_an_exchange_with_a_net_under_it() -> None:
    families = {name.partition(".")[0] for name in catalogue.BUS}
    exchanges = {each.name: each.alternate for each in TOPOLOGY.exchanges}
    assert {f"farmiq.{family}.exchange" for family in families} == exchanges.keys() - {
        UNROUTED_EXCHANGE,
        RETRY_EXCHANGE,
    }
    assert {alternate for alternate in exchanges.values() if alternate} == {UNROUTED_EXCHANGE}
    for queue in TOPOLOGY.queues:
        assert re.fullmatch(r"farmiq\.cloud-[a-z-]+\.[a-z]+\.queue", queue.name)


async def test_every_log_id_is_a_valid_request_id(client: Client) -> None:
    request_id = str(ids.new())
    answer = await client.post({"events": [event()]}, **{"x-request-id": request_id})
    assert answer.headers["x-request-id"] == request_id


async def test_a_compressed_batch_is_taken_like_any_other(client: Client) -> None:
    body = json.dumps({"batchId": "b-1", "events": [event(), event()]}).encode()
    answer = await client.post(gzip.compress(body), **{"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()) == (202, {"accepted": True, "batchId": "b-1"})
    assert len(await client.bus()) == 2


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        # Made by the test: every worker would make them when it collects.
        (lambda: gzip.compress(b" " * (6 * 1024 * 1024)), "gzip", 413),
        # A bomb: a kilobyte for a megabyte, so that a small body would fill the memory.
        (lambda: gzip.compress(bytes(64 * 1024 * 1024), compresslevel=9), "gzip", 413),
        (lambda: gzip.compress(b'{"events": []}')[:-4], "gzip", 400),
        (lambda: gzip.compress(b'{"events": []}') + b"more", "gzip", 400),
        (lambda: gzip.compress(b'{"events"') + gzip.compress(b": []}"), "gzip", 400),
        (lambda: b'{"events": []}', "gzip", 400),
        (lambda: b"", "gzip", 400),
        (lambda: b'{"events": []}', "br", 415),
        (lambda: b'{"events": []}', "gzip, gzip", 415),
    ],
    ids=["large", "bomb", "cut", "tail", "two", "plain", "empty", "brotli", "twice"],
)
async def test_a_body_that_does_not_unpack_within_bounds_gets_its_answer(
    client: Client, body: Callable[[], bytes], encoding: str, status: int
) -> None:
    answer = await client.post(body(), **{"content-encoding": encoding})
    assert answer.status_code == status
    assert set(answer.json()["error"]) >= {"code", "message", "traceId"}


def _begun(site: CloudSite, body: bytes, *, said_length: int) -> bytes:
    """A request whose body says it is longer than what has been sent of it."""
    head = (
        f"POST {service.ROUTE} HTTP/1.1\r\nHost: cloud\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {site.token()}\r\nContent-Length: {said_length}\r\n\r\n"
    )
    return head.encode() + body


async def _all_said(reader: asyncio.StreamReader) -> bytes:
    """What the server said before it hung up; one who still writes then is told so by a reset."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := await reader.read(4096):
            said += more
    return said


async def test_what_is_sent_by_half_is_not_taken_and_others_are(
    cloud: CloudSite, tasks: asyncio.TaskGroup
) -> None:
    """Some go away in the middle, some stay and send nothing more, some trickle."""
    body = json.dumps({"events": [event()]}).encode()
    async with _serving(cloud, cloud.settings, tasks, request_within_s=5) as client:
        await until(lambda: ready(client.server))
        open_ = [
            await asyncio.open_connection("127.0.0.1", cloud.settings.http_port) for _ in range(30)
        ]
        for number, (_, writer) in enumerate(open_):
            writer.write(_begun(cloud, body[: number * 7], said_length=len(body) + number))
            if number % 3 == 0:
                writer.close()
        waiting = [reader for number, (reader, _) in enumerate(open_) if number % 3]
        trickling = [writer for number, (_, writer) in enumerate(open_) if number % 3 == 2]
        answered = asyncio.gather(*(_all_said(reader) for reader in waiting))
        taken = 0
        while not answered.done():
            for writer in trickling:
                writer.write(b" ")
            answer = await client.post({"events": [event()]})
            assert answer.status_code == 202
            taken += 1
            await asyncio.sleep(0.05)
        for said in await answered:
            head, _, told = said.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            assert json.loads(told)["error"]["code"] == "REQUEST_TIMEOUT"
        for _, writer in open_:
            writer.close()
    assert cloud.rows("select count(*) from ingestion_dedupe") == [(taken,)]


def _head(port: int, started: bytes, part: bytes) -> bytes:
    """Sends parts until there is an answer; what was said before a reset can still be read."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            opened.sendall(started)
            while not select.select([opened], [], [], 0)[0]:
                opened.sendall(part)
        return opened.recv(4096)


@pytest.mark.parametrize("length", [b"Content-Length: 5000000000", b"Transfer-Encoding: chunked"])
async def test_a_body_without_an_end_is_refused_before_it_ends(
    client: Client, length: bytes
) -> None:
    started = _begun(client.site, b"", said_length=0).replace(b"Content-Length: 0", length)
    part = b" " * 65_536
    if b"chunked" in length:
        part = b"10000\r\n" + part + b"\r\n"
    head = await asyncio.to_thread(_head, client.site.settings.http_port, started, part)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert (await client.post({"events": [event()]})).status_code == 202


async def has_consumer(url: str) -> bool:
    found = await amqp.depth(url, TELEMETRY_QUEUE)
    return found is not None and found[1] > 0


async def test_batches_wait_for_a_slow_consumer_and_leave_the_backlog_at_the_edge(
    cloud: CloudSite, tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the bus stays below the limit and one batch, so a live event is soon stored."""
    # A busy machine may be slower than a queue that stands still.
    monkeypatch.setattr(backpressure, "MAX_HOLD_S", 120.0)
    monkeypatch.setattr(backpressure, "STALLED_S", 120.0)
    look, looked = backpressure.Backpressure.look, asyncio.Event()

    async def look_and_tell(self: backpressure.Backpressure, channel: Any) -> None:
        await look(self, channel)
        if self._depths:
            looked.set()

    monkeypatch.setattr(backpressure.Backpressure, "look", look_and_tell)
    settings = cloud.settings.model_copy(update={"ingestion_waiting": 40})
    async with _serving(cloud, settings, tasks) as client:
        await until(lambda: ready(client.server))
        url = settings.amqp_url.get_secret_value()
        deepest = 0
        async with amqp.connection(url, name="slow") as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=1)
            queue = await channel.get_queue(TELEMETRY_QUEUE)

            async def consume() -> None:
                async with queue.iterator() as messages:
                    async for message in messages:
                        await asyncio.sleep(0.01)
                        await message.ack()

            consuming = tasks.create_task(consume())
            await until(lambda: has_consumer(url))
            assert (await client.post({"events": [event()]})).status_code == 202
            await looked.wait()
            for _ in range(12):
                batch = {"events": [event() for _ in range(20)]}
                assert (await client.post(batch)).status_code == 202
                waiting, _ = await amqp.depth(url, TELEMETRY_QUEUE) or (0, 0)
                deepest = max(deepest, waiting)
            consuming.cancel()
            await asyncio.wait([consuming])
    assert deepest < 40 + 20
