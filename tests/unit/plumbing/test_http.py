"""The door of a process: one error body, ids on every answer, and what is wrong in a sentence."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import httpx2
import prometheus_client
import psycopg
import pytest
from fastapi import Request, Response

from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError, HttpServer
from tests.support.until import until


@pytest.fixture
def server() -> HttpServer:
    opened = HttpServer(title="farmiq test", version="1.2.3")

    async def boom() -> None:
        raise ValueError("secret detail")

    async def teapot(count: int) -> dict[str, int]:
        if count > 9:
            raise HttpError(
                429, "slow down", details=[{"index": 0, "reason": "many"}], retry_after_s=7
            )
        return {"count": count}

    async def traced(request: Request) -> dict[str, str]:
        return {"trace": http.trace_id(request)}

    opened.app.add_api_route("/boom", boom)
    opened.app.add_api_route("/count", teapot)
    opened.app.add_api_route("/traced", traced)
    return opened


@pytest.fixture
async def client(server: HttpServer) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=server.app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://door") as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("GET", "/openapi.json", 404, "NOT_FOUND"),
        ("POST", "/healthz", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/count", 400, "VALIDATION_ERROR"),
        ("GET", "/count?count=many", 400, "VALIDATION_ERROR"),
        ("GET", "/count?count=10", 429, "TOO_MANY_REQUESTS"),
        ("GET", "/boom", 500, "ERROR"),
    ],
)
async def test_error_response_has_the_standard_body_and_ids(
    client: httpx2.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(
        method, path, headers={"x-trace-id": "t-1", "x-request-id": "r-1"}
    )
    error = answer.json()["error"]

    assert answer.status_code == status
    assert (error["code"], error["traceId"]) == (code, "t-1")
    assert error["message"]
    assert answer.headers.get_list("x-trace-id") == ["t-1"]
    assert answer.headers.get_list("x-request-id") == ["r-1"]


async def test_an_invalid_request_names_its_fields(client: httpx2.AsyncClient) -> None:
    error = (await client.get("/count?count=many")).json()["error"]

    assert [detail["field"] for detail in error["details"]] == ["count"]


async def test_unexpected_exception_does_not_show_in_the_response(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/boom")

    assert "secret" not in answer.text
    assert answer.json()["error"]["message"] == "something went wrong on our side"


async def test_error_with_retry_after_sets_the_header(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/count?count=10")

    assert answer.headers["retry-after"] == "7"
    assert answer.json()["error"]["details"] == [{"index": 0, "reason": "many"}]


async def test_unavailable_database_gets_503_with_retry_after(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    async def fail() -> None:
        raise psycopg.OperationalError("server closed the connection: secret")

    server.app.add_api_route("/fail", fail)
    response = await client.get("/fail")

    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert response.json()["error"]["code"] == "UNAVAILABLE"
    assert "secret" not in response.text


async def test_api_response_is_not_cached_unless_it_says_so(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    async def cached() -> Response:
        return Response(headers={"cache-control": "max-age=2"})

    async def plain() -> None:
        return None

    for path, handler in (("/api/cached", cached), ("/api/plain", plain), ("/plain", plain)):
        server.app.add_api_route(path, handler)
    paths = ("/api/cached", "/api/plain", "/api/nothing", "/plain")
    caching = [(await client.get(path)).headers.get_list("cache-control") for path in paths]

    assert caching == [["max-age=2"], ["no-store"], ["no-store"], []]


async def test_wrong_method_response_names_the_allowed_ones(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/healthz")).headers["allow"] == "GET"


async def test_ids_are_made_when_none_are_given(client: httpx2.AsyncClient) -> None:
    first, second = await client.get("/traced"), await client.get("/traced")

    assert first.json()["trace"] == first.headers["x-trace-id"]
    ids = [one.headers[name] for one in (first, second) for name in ("x-trace-id", "x-request-id")]
    assert len({UUID(one) for one in ids}) == 4


@pytest.mark.parametrize("given", ["x" * 129, "", "tr\xe4ce", "a\tb", "a\x7fb"])
async def test_a_value_that_is_no_id_is_replaced(client: httpx2.AsyncClient, given: str) -> None:
    raw = given.encode("latin-1")
    headers = [(b"x-trace-id", raw), (b"x-request-id", raw)]
    answer = await client.get("/traced", headers=headers)

    assert UUID(answer.headers["x-trace-id"]).version == 7
    assert UUID(answer.headers["x-request-id"]).version == 7


async def test_an_id_of_128_characters_is_kept(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/traced", headers={"x-trace-id": "x" * 128})

    assert answer.json() == {"trace": "x" * 128}


async def test_alive_and_version(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    answer = await client.get("/version")
    assert answer.json() == {"name": "farmiq test", "version": "1.2.3", "contract": 0}


async def test_readiness_names_what_is_wrong(
    server: HttpServer, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.checks, "ANSWER_HOLDS_S", -1.0)
    wrong: dict[str, str | None] = {"database": None, "broker": None}

    async def database() -> str | None:
        return wrong["database"]

    server.ready("database", database)
    server.ready("broker", lambda: wrong["broker"])

    async def readiness() -> tuple[int, Any]:
        answer = await client.get("/readyz")
        return answer.status_code, answer.json()

    assert await readiness() == (200, {"status": "ready", "problems": {}})
    wrong["broker"] = "broker: connection lost"
    assert await readiness() == (
        503,
        {"status": "not ready", "problems": {"broker": "broker: connection lost"}},
    )
    wrong["database"] = "database does not answer"
    assert set((await readiness())[1]["problems"]) == {"database", "broker"}
    wrong.update(database=None, broker=None)
    assert (await readiness())[0] == 200


async def test_readiness_check_that_hangs_is_named_within_the_deadline(
    server: HttpServer, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.checks, "CHECK_WITHIN_S", 0.05)
    began = asyncio.Event()

    async def hangs() -> str | None:
        began.set()
        await asyncio.Event().wait()
        return None

    async def meanwhile() -> str | None:
        await began.wait()  # checks run side by side
        return "is away"

    server.ready("second", meanwhile)
    server.ready("first", hangs)

    problems = (await client.get("/readyz")).json()["problems"]
    assert problems == {"first": "the check did not end within 0.05 s", "second": "is away"}


async def test_readiness_check_that_cannot_be_cancelled_is_not_awaited(
    server: HttpServer, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a query to a frozen database: that it is cancelled has to be told to the database."""
    monkeypatch.setattr(http.checks, "CHECK_WITHIN_S", 0.05)
    thawed, asked = asyncio.Event(), 0

    async def frozen() -> str | None:
        nonlocal asked
        asked += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await thawed.wait()
            raise
        return None

    server.ready("frozen", frozen)
    for _ in range(3):
        said = (await client.get("/readyz")).json()
        assert said["problems"] == {"frozen": "the check did not end within 0.05 s"}
    assert asked == 1  # a probe that comes every second must not pile them up
    thawed.set()
    await until(lambda: all(run.done() for run in server._runs._runs.values()))


async def test_readiness_answers_while_checks_are_added(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    async def starting() -> None:
        server.ready("second", lambda: None)
        server.note("second", lambda: None)
        await asyncio.sleep(0)

    server.ready("first", starting)
    server.note("first", starting)

    assert (await client.get("/readyz")).status_code == 200


async def test_readiness_names_a_service_that_is_starting(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    first, second = server.part("first"), server.part("second")

    async def problems() -> Any:
        return (await client.get("/readyz")).json()["problems"]

    assert await problems() == {"first": "is starting", "second": "is starting"}
    first.ready("first.broker", lambda: "not subscribed yet")
    assert await problems() == {"first.broker": "not subscribed yet", "second": "is starting"}
    first.ready("first.broker", lambda: None)
    second.note("second", lambda: "off: nothing is set")
    assert await problems() == {}


async def test_metrics_count_requests_by_route_not_by_path(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    async def plain(_: Request) -> Response:
        return Response()

    server.app.add_route("/plain/{name}", plain)
    for path in ("/count?count=1", "/plain/1", "/nowhere/1", "/nowhere/2"):
        await client.get(path)

    answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain")
    assert 'farmiq_http_requests_total{route="/count",status="200"}' in answer.text
    assert 'farmiq_http_requests_total{route="/plain/{name}",status="200"}' in answer.text
    assert 'farmiq_http_requests_total{route="none",status="404"}' in answer.text
    assert "/nowhere" not in answer.text


# --- tokens


@pytest.mark.parametrize(
    ("given", "token"),
    [
        (None, None),
        ("Basic abc", None),
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Bearer", ""),
        ("Bearer ", ""),
    ],
)
def test_bearer_token_is_taken_from_its_header_alone(given: str | None, token: str | None) -> None:
    headers = [] if given is None else [(b"authorization", given.encode())]
    assert http.bearer(Request({"type": "http", "headers": headers})) == token


# --- streams


def test_an_error_body_is_json_without_details_if_there_are_none() -> None:
    request = Request({"type": "http", "farmiq.trace_id": "t-1", "headers": []})

    answer = http.error_response(request, HttpError(503, "away"))

    assert json.loads(bytes(answer.body)) == {
        "error": {"code": "UNAVAILABLE", "message": "away", "traceId": "t-1"}
    }


async def test_a_service_that_failed_is_named_and_its_routes_answer_503_until_it_is_back(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    part = server.part("cloud-example")

    def begin(answer: str) -> None:
        async def say() -> str:
            return answer

        part.app.add_api_route("/said", say)
        part.ready("example.database", lambda: "the pool is closed" if answer == "old" else None)
        part.note("example", lambda: answer)

    begin("old")
    part.failed("failed and is being started again: KeyError('x')")
    ready = await client.get("/readyz")
    away = await client.get("/said")
    begin("new")

    assert ready.status_code == 503
    assert ready.json() == {
        "status": "not ready",
        "problems": {"cloud-example": "failed and is being started again: KeyError('x')"},
    }
    assert (away.status_code, away.headers["retry-after"]) == (503, "5")
    assert "cloud-example" in away.json()["error"]["message"]
    assert (await client.get("/said")).json() == "new"
    assert (await client.get("/readyz")).json() == {
        "status": "ready",
        "problems": {},
        "notes": {"example": "new"},
    }
    assert [getattr(route, "path", "") for route in server.app.routes].count("/said") == 1


async def test_readiness_check_result_is_cached_for_a_moment(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    asked = 0

    async def database() -> str | None:
        nonlocal asked
        asked += 1
        return "database does not answer"

    server.ready("database", database)
    answers = [await client.get("/readyz") for _ in range(20)]

    assert asked == 1
    assert {answer.status_code for answer in answers} == {503}


# --- bodies and headers


@pytest.fixture
def taking(server: HttpServer) -> HttpServer:
    async def take(request: Request) -> dict[str, int]:
        return {"size": len(await http.body(request, what="a thing", max_bytes=10))}

    async def take_any(request: Request) -> dict[str, int]:
        return {"size": len(await http.body(request, what="a thing", max_bytes=10, kind=None))}

    server.app.add_api_route("/take", take, methods=["POST"])
    server.app.add_api_route("/take-any", take_any, methods=["POST"])
    return server


@pytest.mark.usefixtures("taking")
@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/take", "application/json", 200),
        ("/take", 'Application/JSON; charset="UTF-8"', 200),
        ("/take", "application/json;charset=us-ascii; q=1", 200),
        ("/take", "application/json; charset=utf-16", 415),
        ("/take", "application/json; charset=latin-1", 415),
        ("/take", "text/plain", 415),
        ("/take", None, 415),
        ("/take-any", None, 200),
        ("/take-any", "text/plain", 200),
        ("/take-any", "application/json; charset=utf-16", 415),
    ],
)
async def test_body_of_another_type_or_charset_is_refused(
    client: httpx2.AsyncClient, path: str, kind: str | None, status: int
) -> None:
    headers = {"content-type": kind} if kind else {}
    assert (await client.post(path, content=b"abc", headers=headers)).status_code == status


@pytest.mark.usefixtures("taking")
@pytest.mark.parametrize("length", ["11", "10000000000", "9" * 20])
async def test_body_that_says_it_is_too_large_is_refused_unread(
    client: httpx2.AsyncClient, length: str
) -> None:
    asked_for = False

    async def parts() -> AsyncIterator[bytes]:
        nonlocal asked_for
        asked_for = True
        yield b"x"

    answer = await client.post(
        "/take", content=parts(), headers={"content-type": http.JSON, "content-length": length}
    )

    assert answer.status_code == 413
    assert not asked_for
    assert answer.json()["error"]["message"] == "a thing has at most 10 bytes"


@pytest.mark.usefixtures("taking")
async def test_body_that_grows_too_large_is_refused(client: httpx2.AsyncClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"12345"

    answer = await client.post("/take", content=parts(), headers={"content-type": http.JSON})
    assert answer.status_code == 413


@pytest.mark.parametrize("name", ["authorization", "content-type", "content-encoding"])
async def test_header_sent_twice_is_refused_on_every_route(
    client: httpx2.AsyncClient, name: str
) -> None:
    answer = await client.get("/healthz", headers=[(name, "a"), (name, "a")])

    assert answer.status_code == 400
    assert name in answer.json()["error"]["message"]
    assert answer.json()["error"]["traceId"] == answer.headers["x-trace-id"]


# --- metrics

TOKEN = "a token of some length"


@pytest.fixture
def by_tenant() -> Iterator[None]:
    registry = prometheus_client.REGISTRY
    made = [
        prometheus_client.Gauge("test_waiting", "…", ["tenant_id", "kind"]),
        prometheus_client.Gauge("test_oldest_seconds", "…", ["tenant_id"]),
    ]
    for tenant_id, value in (("acme", 3), ("globex", 4)):
        made[0].labels(tenant_id=tenant_id, kind="a").set(value)
        made[1].labels(tenant_id=tenant_id).set(value)
    yield
    for each in made:
        registry.unregister(each)


@pytest.mark.usefixtures("by_tenant")
async def test_metrics_without_token_name_no_tenant(client: httpx2.AsyncClient) -> None:
    await client.get("/metrics")  # requests are counted when they are over
    shown = (await client.get("/metrics")).text

    assert "acme" not in shown
    assert "globex" not in shown
    assert 'test_waiting{kind="a"} 7.0' in shown
    assert "test_oldest_seconds 4.0" in shown
    assert "farmiq_http_requests_total{" in shown


@pytest.mark.usefixtures("by_tenant")
async def test_metrics_with_token_are_by_tenant(
    server: HttpServer, client: httpx2.AsyncClient
) -> None:
    server.metrics_token = TOKEN
    answer = await client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})

    assert 'test_waiting{kind="a",tenant_id="acme"} 3.0' in answer.text


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("given", ["Bearer None", "Bearer wrong", "Basic x", TOKEN])
async def test_metrics_with_a_wrong_token_are_refused(
    server: HttpServer, client: httpx2.AsyncClient, token: str | None, given: str
) -> None:
    server.metrics_token = token
    answer = await client.get("/metrics", headers={"authorization": given})

    assert answer.status_code == 401
