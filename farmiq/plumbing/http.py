"""The HTTP door of a process: one address, the routes of every service in it, one error body.

Always there: /healthz (the process lives), /readyz (its parts work; names what does not),
/metrics (Prometheus), /version.
"""

import asyncio
import contextlib
import copy
import inspect
import json
import math
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import h11
import prometheus_client
import structlog
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from farmiq.plumbing import ids, log
from farmiq.plumbing.allowance import Allowance
from farmiq.plumbing.tls import Tls

Check = Callable[[], Awaitable[str | None] | str | None]

CODES = {
    400: "VALIDATION_ERROR", 401: "UNAUTHENTICATED", 403: "FORBIDDEN", 404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED", 408: "REQUEST_TIMEOUT", 409: "CONFLICT", 412: "PRECONDITION_FAILED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE", 429: "TOO_MANY_REQUESTS", 431: "HEADERS_TOO_LARGE",
    503: "UNAVAILABLE",
}  # fmt: skip
TOO_SLOW, TOO_LONG = 408, 431
CHECK_WITHIN_S = 3.0
# A header longer than this is not an id; it would only fill our logs.
_LONGEST_ID = 128
# After an answer to what is no HTTP: so much more is read, for so long.
_MOST_DROPPED = 4 * 1024 * 1024
_LINGERS_S = 1.0

REQUESTS = prometheus_client.Counter(
    "farmiq_http_requests_total", "HTTP requests answered", ["route", "status"]
)


class HttpError(Exception):
    """An answer with the standard error body (C-105)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        details: list[dict[str, Any]] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.details = status, message, details
        self.retry_after_s = retry_after_s


def error_response(request: Request, error: HttpError) -> JSONResponse:
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
    if error.status == TOO_SLOW:
        headers["Connection"] = "close"  # the rest of the body is not waited for
    body = error_body(error, trace=trace_id(request))
    return _Escaped(body, status_code=error.status, headers=headers)


class _Escaped(JSONResponse):
    """An answer may quote what was sent, and half a character has no UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def error_body(error: HttpError, *, trace: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "code": CODES.get(error.status, "ERROR"),
        "message": error.message,
        "traceId": trace,
    }
    if error.details:
        body["details"] = error.details
    return {"error": body}


def trace_id(request: Request) -> str:
    found: str = request.scope.get("farmiq.trace_id", "")
    return found


def allow(request: Request, who: str) -> None:
    """For routes by which a person or key acts. Raises HttpError 429 if they do so too often."""
    wait_s: float = request.app.state.allowance.take(who, now=time.monotonic())
    if wait_s:
        seconds = math.ceil(wait_s)
        raise HttpError(
            429, f"{who} acts too often; try again in {seconds} s", retry_after_s=seconds
        )


@dataclass
class Door:
    """Services add their routes to `app` and say with `ready` how to see whether they work."""

    title: str
    version: str
    actions_per_minute: int = 120
    # A whole request is here within so long; who trickles must not hold connections for ever.
    request_within_s: float = 60.0
    app: FastAPI = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _checks: dict[str, Check] = field(default_factory=dict)
    _notes: dict[str, Check] = field(default_factory=dict)
    _asking: "dict[Check, asyncio.Task[str | None]]" = field(default_factory=dict)
    service: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # The contract of the routes is `farmiq openapi`; what FastAPI would tell is not all of it.
        self.app = FastAPI(
            title=self.title, version=self.version, docs_url=None, redoc_url=None, openapi_url=None
        )
        self.app.state.allowance = Allowance(self.actions_per_minute)
        self.app.add_exception_handler(HttpError, _on_http_error)
        self.app.add_exception_handler(HTTPException, _on_starlette_error)
        self.app.add_exception_handler(RequestValidationError, _on_invalid_request)
        self.app.add_exception_handler(ClientDisconnect, _on_gone)
        self.app.add_exception_handler(Exception, _on_any_error)
        self.app.add_middleware(_Hurry, within_s=self.request_within_s)
        self.app.add_middleware(_Identify)
        self.app.add_api_route("/healthz", self._healthz, include_in_schema=False)
        self.app.add_api_route("/readyz", self._readyz, include_in_schema=False)
        self.app.add_api_route("/metrics", _metrics, include_in_schema=False)
        self.app.add_api_route("/version", self._version, include_in_schema=False)

    def part(self, name: str) -> "Door":
        """The same door for one service: nobody is ready before it has said what it stands on.

        Otherwise who asks in the first moment is told "ready", sends, and nobody listens yet.
        """
        self._checks[name] = lambda: "is starting"
        own = copy.copy(self)
        own.service = name
        return own

    def ready(self, name: str, check: Check) -> None:
        """`check` returns what is wrong in a sentence, or None."""
        self._checks[name] = check
        self._begun()

    @contextlib.contextmanager
    def readying(self, checks: Mapping[str, Check]) -> Iterator[None]:
        """Checks that count for as long as the block lasts."""
        self._checks |= checks
        try:
            yield
        finally:
            for name in checks:
                self._checks.pop(name, None)

    def note(self, name: str, check: Check) -> None:
        """`check` returns what a person may want to know, though nothing is wrong, or None."""
        self._notes[name] = check
        self._begun()

    def _begun(self) -> None:
        if self.service is not None:
            self._checks.pop(self.service, None)

    async def problems(self) -> dict[str, str]:
        return await self._answers(self._checks)

    async def _answers(self, checks: Mapping[str, Check]) -> dict[str, str]:
        """All at once and with one deadline: none adds to the others, nor to the time it takes.

        What is late is cancelled but not waited for: to give up a question to a database that is
        frozen takes longer than to ask it. Until it has ended it is not asked again.
        """
        asked = {name: self._ask(check) for name, check in checks.items()}
        if asked:
            await asyncio.wait(asked.values(), timeout=CHECK_WITHIN_S)
        for task in asked.values():
            # Cancelled twice, it would not even get to tell the database.
            if not task.done() and not task.cancelling():
                task.cancel()
        said = {name: _said(task) for name, task in asked.items()}
        return {name: text for name, text in said.items() if text}

    def _ask(self, check: Check) -> "asyncio.Task[str | None]":
        """The question that is open already, or a new one."""
        if check not in self._asking:
            task = asyncio.create_task(_answer(check))
            self._asking[check] = task
            task.add_done_callback(lambda _: self._asking.pop(check))
        return self._asking[check]

    async def _healthz(self) -> dict[str, str]:
        return {"status": "ok"}

    async def _version(self) -> dict[str, str]:
        return {"name": self.title, "version": self.version}

    async def _readyz(self) -> JSONResponse:
        problems, notes = await asyncio.gather(self.problems(), self._answers(self._notes))
        body = {
            "status": "not ready" if problems else "ready",
            "problems": problems,
            **({"notes": notes} if notes else {}),
        }
        return JSONResponse(body, status_code=503 if problems else 200)


async def serve(door: Door, *, host: str, port: int, tls: Tls | None = None) -> None:
    """Serve until cancelled; open requests get a moment to finish."""
    config = uvicorn.Config(
        door.app,
        http=type("_HurriedProtocol", (_Protocol,), {"within_s": door.request_within_s}),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=str(tls.cert_file) if tls and tls.serves() else None,
        ssl_keyfile=str(tls.key_file) if tls and tls.serves() else None,
    )
    server = _QuietServer(config)
    with _listening(host, port) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        finally:
            door.stopping.set()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving


class _QuietServer(uvicorn.Server):
    """Signals belong to plumbing.run, not to the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class _Protocol(H11Protocol):
    """What is no HTTP, or too slow to say what it wants, never comes to a route.

    It gets the standard error body all the same; who says nothing at all is just hung up on.
    """

    within_s = 60.0
    _hurry: asyncio.TimerHandle | None = None
    # Runs while a request is answered whose body still comes.
    _rest: asyncio.TimerHandle | None = None
    # How much is still read and dropped after such an answer, None before it.
    _dropping: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._hurry = self.loop.call_later(self.within_s, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self._dropping is None:
            super().data_received(data)
            self._watch()
            return
        self._dropping -= len(data)
        if self._dropping <= 0:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        self._wait_for_rest(needed=False)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A head that has begun has to end; what comes after it is the route's to wait for.

        What comes after the answer nobody waits for: it has to end as well.
        """
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        self._wait_for_rest(needed=answered and not self.transport.is_closing())
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._calm()
        elif self._hurry is None and self.conn.trailing_data[0]:
            self._hurry = self.loop.call_later(self.within_s, self._too_slow)

    def _calm(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _wait_for_rest(self, *, needed: bool) -> None:
        if needed and self._rest is None:
            self._rest = self.loop.call_later(self.within_s, self.transport.close)
        elif not needed and self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _too_slow(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(HttpError(TOO_SLOW, "the head of the request took too long"))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Called while h11's error is being handled, whose hint tells headers that are too long."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(
            HttpError(TOO_LONG, "the headers are too long")
            if status == TOO_LONG
            else HttpError(400, msg)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closed with something unread, the connection is reset, and the answer may be lost with it.
        self._dropping = _MOST_DROPPED
        self.loop.call_later(_LINGERS_S, self.transport.close)

    def _refuse(self, error: HttpError) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        trace = str(ids.new())
        body = json.dumps(error_body(error, trace=trace)).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            ("x-trace-id", trace),
        ]
        answer = h11.Response(
            status_code=error.status,
            headers=headers,
            reason=HTTPStatus(error.status).phrase.encode(),
        )
        for part in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")


@contextlib.contextmanager
def _listening(host: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's delay off: without, answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise OSError(
                f"cannot listen on {host}:{port} ({error.strerror}): "
                "stop what uses it or set another port"
            ) from error
        yield listener
    finally:
        listener.close()


class _Hurry:
    """A body that is not whole in time is given up: 408, and the connection ends."""

    def __init__(self, app: ASGIApp, within_s: float) -> None:
        self._app, self._within_s = app, within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        ends_at = asyncio.get_running_loop().time() + self._within_s
        more = True

        async def receive_in_time() -> Message:
            nonlocal more
            try:
                async with asyncio.timeout_at(ends_at if more else None):
                    message = await receive()
            except TimeoutError:
                raise HttpError(TOO_SLOW, "the body of the request took too long") from None
            more = more and message.get("more_body", False)
            return message

        await self._app(scope, receive_in_time, send)


class _Identify:
    """Every request has a request id and a trace id: given, or made here; echoed and logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = log.get("http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope, b"x-request-id") or str(ids.new())
        trace = _given(scope, b"x-trace-id") or str(ids.new())
        scope["farmiq.trace_id"] = trace
        scope["farmiq.ids"] = {"x-request-id": request_id, "x-trace-id": trace}
        started = time.monotonic()
        status = 500

        async def send_identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = scope["farmiq.ids"].items()
                extra = [(name.encode(), value.encode()) for name, value in named]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id, trace_id=trace):
            try:
                await self._app(scope, receive, send_identified)
            finally:
                self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        REQUESTS.labels(route=route, status=str(status)).inc()
        self._log.debug(
            "http.request",
            method=scope["method"],
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 1),
        )


def _route(scope: Scope) -> str:
    """The path of the route as it is written; only FastAPI's own kind tells it by itself."""
    if "route" in scope:
        return str(scope["route"].path)
    endpoint = scope.get("endpoint")
    paths = (one.path for one in scope["app"].routes if getattr(one, "endpoint", "") == endpoint)
    return next(paths, "none")


def _given(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name and value:
            text: str = value.decode("latin-1")
            return (
                text if len(text) <= _LONGEST_ID and text.isprintable() and text.isascii() else None
            )
    return None


def _said(task: "asyncio.Task[str | None]") -> str | None:
    if not task.done() or task.cancelled():
        return f"the check did not end within {CHECK_WITHIN_S:g} s"
    return task.result()


async def _answer(check: Check) -> str | None:
    """A check that breaks is itself what is wrong; /readyz must name it, not fail."""
    try:
        found = check()
        return await found if inspect.isawaitable(found) else found
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the answer
        return f"the check failed: {error!r}"


async def _metrics() -> Response:
    return Response(
        prometheus_client.generate_latest(), media_type=prometheus_client.CONTENT_TYPE_LATEST
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)  # noqa: S101 - registered for this type
    return error_response(request, error)


async def _on_starlette_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type
    answer = error_response(request, HttpError(error.status_code, str(error.detail)))
    answer.headers.update(error.headers or {})  # such as Allow, which a 405 must carry
    return answer


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type
    details = [
        {"field": ".".join(str(part) for part in item["loc"]), "reason": item["msg"]}
        for item in error.errors()
    ]
    return error_response(request, HttpError(400, "the request is not valid", details=details))


async def _on_gone(_: Request, error: Exception) -> Response:
    """Who sent the body went away in the middle of it, or sent no HTTP; nobody hears this."""
    log.get("http").debug("http.gone", error=repr(error))
    return Response(status_code=400)


async def _on_any_error(request: Request, error: Exception) -> Response:
    log.get("http").error("http.failed", error=repr(error), exc_info=error)
    answer = error_response(request, HttpError(500, "something went wrong on our side"))
    # This answer is given outside of _Identify, which has seen the exception pass.
    answer.headers.update(request.scope.get("farmiq.ids", {}))
    return answer
