"""The HTTP server of a process: one address, the routes of every service in it, one error body.

Always there: /healthz (the process lives), /readyz (its parts work; names what does not),
/metrics (Prometheus), /version.
"""

import asyncio
import contextlib
import copy
import hmac
import inspect
import json
import math
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, cast

import h11
import prometheus_client
import structlog
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from farmiq.plumbing import connections, db, ids, log, metrics
from farmiq.plumbing.allowance import Allowance
from farmiq.plumbing.connections import Connection, Connections, Limits
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
# What the OpenAPI documents say of an error where the operation says nothing of its own.
ERRORS = {
    400: "VALIDATION_ERROR: not valid; `details` names everything that is wrong.",
    401: "UNAUTHENTICATED: no token, or not a good one.",
    403: "FORBIDDEN: the caller's role does not reach.",
    404: "NOT_FOUND: there is none.",
    408: "REQUEST_TIMEOUT: the body was not here in time.",
    429: "TOO_MANY_REQUESTS: the caller acts too often; wait for Retry-After.",
    503: "UNAVAILABLE: the database is away; try again after Retry-After.",
}
CHECK_WITHIN_S = 3.0
HEAD_WITHIN_S = 15.0
IDLE_TIMEOUT_S = 30
# What an engine answered to a check counts for so long.
ANSWER_HOLDS_S = 1.0
# A header longer than this is not an id; it would only fill our logs.
_MAX_ID = 128
# After an answer to what is no HTTP: so much more is read, for so long.
_MAX_DROPPED = 4 * 1024 * 1024
_LINGERS_S = 1.0
_PLACE = "farmiq.connection"

JSON = "application/json"
_CHARSETS = ("utf-8", "utf8", "us-ascii")
_MAX_NUMBER = 18
# Sent twice, one check might look at the one and another at the other.
_ONLY_ONCE = (b"authorization", b"content-type", b"content-encoding", b"content-length")
# Larger bodies that were refused are not read to their end.
_MAX_UNREAD = 64 * 1024 * 1024

REQUESTS = prometheus_client.Counter(
    "farmiq_http_requests_total", "HTTP requests answered", ["route", "status"]
)


class ErrorDetail(BaseModel):
    """One thing that is wrong: an event of a batch by its index, or a field of a request."""

    reason: str
    index: int | None = None
    event_id: str | None = None
    field: str | None = None


class Error(BaseModel):
    code: str
    message: str
    traceId: str  # noqa: N815 - the contract's spelling
    details: list[ErrorDetail] = []


class ErrorBody(BaseModel):
    """The standard error body (C-105)."""

    error: Error


class Health(BaseModel):
    status: Literal["ok"]


class Readiness(BaseModel):
    """`problems` names what does not work, in words; `notes` what is odd but right."""

    status: Literal["ready", "not ready"]
    problems: dict[str, str]
    notes: dict[str, str] = {}


class Version(BaseModel):
    name: str
    version: str


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
    if error.status == TOO_SLOW or _waits_for_continue(request):
        headers["Connection"] = "close"  # the rest of the body is not waited for
    body = error_body(error, trace=trace_id(request))
    return _Escaped(body, status_code=error.status, headers=headers)


def _waits_for_continue(request: Request) -> bool:
    """Whether the client has sent no body yet and, refused, never will."""
    return "100-continue" in request.headers.get("expect", "").lower()


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
    value: str = request.scope.get("farmiq.trace_id", "")
    return value


def authenticated(request: Request, who: str) -> None:
    """Say that `who` sent this and has proven it; their connections are closed last."""
    place: Connection | None = request.scope.get(_PLACE)
    if place is not None:
        place.authenticated, place.who = True, who


def bearer(request: Request) -> str | None:
    """The token of `Authorization: Bearer …`; None without such a header."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def network(request: Request) -> str:
    """The network that the client is in; behind a trusted proxy, as the proxy says."""
    return connections.network_of(request.client.host if request.client else "")


def allow(request: Request, who: str) -> None:
    """For routes by which a person or key acts. Raises HttpError 429 if they do so too often."""
    wait_s: float = request.app.state.allowance.take(who, now=time.monotonic())
    if wait_s:
        seconds = math.ceil(wait_s)
        raise HttpError(
            429, f"{who} acts too often; try again in {seconds} s", retry_after_s=seconds
        )


async def body(request: Request, *, what: str, max_bytes: int, kind: str | None = JSON) -> bytes:
    """The whole body. Raises HttpError 413 or 415; `what` names it in the error."""
    return b"".join(
        [part async for part in body_parts(request, what=what, max_bytes=max_bytes, kind=kind)]
    )


async def body_parts(
    request: Request, *, what: str, max_bytes: int, kind: str | None = JSON
) -> AsyncIterator[bytes]:
    """The body as it comes, at most so many bytes; nothing is read of one that says it is larger.

    Raises HttpError 413, and 415 for another content type than `kind` or another charset than
    UTF-8. With `kind` None the content type does not matter, but its charset does.
    """
    _check_content_type(request.headers.get("content-type", ""), what=what, kind=kind)
    too_large = HttpError(413, f"{what} has at most {max_bytes} bytes")
    declared = request.headers.get("content-length", "0")
    # h11 has seen that it is a number, but not that it is one we could count with.
    if len(declared) > _MAX_NUMBER or int(declared) > max_bytes:
        raise too_large
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise too_large
        yield part


def _check_content_type(given: str, *, what: str, kind: str | None) -> None:
    content_type, *parameters = (part.strip().lower() for part in given.split(";"))
    if kind is not None and content_type != kind:
        raise HttpError(415, f"send {what} as {kind}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            raise HttpError(415, f"send {what} in UTF-8, not in another charset")


@dataclass
class HttpServer:
    """Services add their routes to `app` and say with `ready` how to see whether they work."""

    title: str
    version: str
    actions_per_minute: int = 120
    # A whole request is here within so long; who trickles must not hold connections for ever.
    request_within_s: float = 60.0
    limits: Limits = field(default_factory=Limits)
    metrics_token: str | None = field(default=None, repr=False)
    app: FastAPI = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _checks: dict[str, Check] = field(default_factory=dict)
    _notes: dict[str, Check] = field(default_factory=dict)
    _open_checks: "dict[Check, _CheckRun]" = field(default_factory=dict)
    service: str | None = field(default=None, init=False)
    # Names of the checks and notes of this part, and its routes.
    names: set[str] = field(default_factory=set, init=False)
    routes: "_OwnRoutes" = field(init=False)

    @property
    def head_within_s(self) -> float:
        """A head is small; only bodies may be large and links slow."""
        return min(HEAD_WITHIN_S, self.request_within_s)

    def __post_init__(self) -> None:
        # The document is `farmiq openapi`: it needs no running service, and is the same for all.
        self.app = FastAPI(
            title=self.title,
            version=self.version,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            dependencies=[Depends(_reject_repeated_parameters)],
        )
        self.routes = _OwnRoutes(self.app.router.routes)
        self.app.state.allowance = Allowance(self.actions_per_minute)
        self.app.add_exception_handler(HttpError, _on_http_error)
        self.app.add_exception_handler(HTTPException, _on_starlette_error)
        self.app.add_exception_handler(RequestValidationError, _on_invalid_request)
        for unavailable in db.UNAVAILABLE:
            self.app.add_exception_handler(unavailable, _on_database_unavailable)
        self.app.add_exception_handler(ClientDisconnect, _on_gone)
        self.app.add_exception_handler(Exception, _on_any_error)
        self.app.add_middleware(_Hurry, within_s=self.request_within_s)
        self.app.add_middleware(_RepeatedHeaders)
        self.app.add_middleware(_Identify)
        self._add_own_routes()

    def _add_own_routes(self) -> None:
        self.app.add_api_route(
            "/healthz", self._healthz, summary="The process lives", response_description="It does."
        )
        self.app.add_api_route(
            "/readyz",
            self._readyz,
            summary="Its parts work",
            response_model=Readiness,
            response_description="They do.",
            responses={503: {"model": Readiness, "description": "Not all do."}},
        )
        self.app.add_api_route(
            "/metrics",
            self._metrics,
            summary="Metrics for Prometheus; by tenant only with API_METRICS_TOKEN as bearer token",
            response_class=PlainTextResponse,
            response_description="Metrics.",
            responses={
                401: {
                    "description": "UNAUTHENTICATED: this is not the token.",
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                }
            },
        )
        self.app.add_api_route(
            "/version", self._version, summary="Name and version", response_description="Both."
        )

    def part(self, name: str) -> "HttpServer":
        """The same server for one service, which is not ready before it has registered its checks.

        Otherwise who asks in the first moment is told "ready", sends, and nobody listens yet.
        """
        self._checks[name] = lambda: "is starting"
        own = copy.copy(self)
        own.service, own.names = name, set()
        own.app = copy.copy(self.app)
        own.app.router = copy.copy(self.app.router)
        own.app.router.routes = own.routes = _OwnRoutes(self.app.router.routes)
        return own

    def failed(self, why: str) -> None:
        """The service has ended. Until it says anew what it stands on, its routes answer 503."""
        for name in self.names:
            self._checks.pop(name, None)
            self._notes.pop(name, None)
        self.names.clear()
        if self.service is not None:
            self._checks[self.service] = lambda: why
        self.routes.suspend(f"{self.service} is being started again")

    def ready(self, name: str, check: Check) -> None:
        """`check` returns what is wrong in a sentence, or None."""
        self._checks[name] = check
        self._own(name)

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
        self._own(name)

    def _own(self, name: str) -> None:
        self.names.add(name)
        if self.service is not None:
            self._checks.pop(self.service, None)

    async def problems(self) -> dict[str, str]:
        return await self._answers(self._checks)

    async def _answers(self, checks: Mapping[str, Check]) -> dict[str, str]:
        """All at once and with one deadline: none adds to the others, nor to the time it takes.

        What is late is cancelled but not waited for: to give up a question to a database that is
        frozen takes longer than to ask it. Until it has ended it is not asked again, and what it
        answered holds for a moment: whoever asks often does not make us ask the engines as often.
        """
        answers = {name: self._start_check(check) for name, check in checks.items()}
        tasks = [answer for answer in answers.values() if isinstance(answer, asyncio.Task)]
        if tasks:
            await asyncio.wait(tasks, timeout=CHECK_WITHIN_S)
        for task in tasks:
            # Cancelled twice, it would not even get to tell the database.
            if not task.done() and not task.cancelling():
                task.cancel()
        texts = {
            name: _result(answer) if isinstance(answer, asyncio.Task) else answer
            for name, answer in answers.items()
        }
        return {name: text for name, text in texts.items() if text}

    def _start_check(self, check: Check) -> "asyncio.Task[str | None] | str | None":
        """The question that is open or was answered just now, a new one, or an answer at once."""
        known = self._open_checks.get(check)
        if known is not None and not known.is_old():
            return known.task
        try:
            answer = check()
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the answer
            return _broken(error)
        if not inspect.isawaitable(answer):
            return answer
        for old in [other for other, run in self._open_checks.items() if run.is_old()]:
            del self._open_checks[old]
        self._open_checks[check] = _CheckRun(asyncio.create_task(_answer(answer)))
        return self._open_checks[check].task

    async def _healthz(self) -> Health:
        return Health(status="ok")

    async def _metrics(self, request: Request) -> Response:
        """Anybody may see how we are; names of tenants are for who has the token."""
        given = request.headers.get("authorization")
        known = given is not None and self._is_metrics_token(given)
        if given is not None and not known:
            raise HttpError(401, "this is not the token for metrics (API_METRICS_TOKEN)")
        return Response(
            metrics.shown(names=known), media_type=prometheus_client.CONTENT_TYPE_LATEST
        )

    def _is_metrics_token(self, given: str) -> bool:
        expected = f"Bearer {self.metrics_token}".encode()
        return self.metrics_token is not None and hmac.compare_digest(given.encode(), expected)

    async def _version(self) -> Version:
        return Version(name=self.title, version=self.version)

    async def _readyz(self) -> JSONResponse:
        problems, notes = await asyncio.gather(self.problems(), self._answers(self._notes))
        body = {
            "status": "not ready" if problems else "ready",
            "problems": problems,
            **({"notes": notes} if notes else {}),
        }
        return JSONResponse(body, status_code=503 if problems else 200)


class _OwnRoutes(list[BaseRoute]):
    """The routes of one service, each of which also stands among all `served`.

    Those of a service that has failed answer 503 until it adds them again.
    """

    def __init__(self, served: list[BaseRoute]) -> None:
        super().__init__()
        self._served = served

    def append(self, route: BaseRoute) -> None:
        for old in [old for old in self if _place(old) == _place(route)]:
            self.remove(old)
            self._served[:] = [other for other in self._served if other is not old]
        super().append(route)
        self._served.append(route)

    def suspend(self, why: str) -> None:
        for route in self:
            if isinstance(route, Route):
                route.app = _answering(HttpError(503, why, retry_after_s=5))


class RawRoute(APIRoute):
    """A hot route whose handler reads the request itself; its dependencies only document it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self.app = request_response(endpoint)


def _place(route: BaseRoute) -> tuple[str, frozenset[str]]:
    return getattr(route, "path", ""), frozenset(getattr(route, "methods", None) or ())


def _answering(error: HttpError) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(Request(scope, receive), error)(scope, receive, send)

    return answer


async def serve(http_server: HttpServer, *, host: str, port: int, tls: Tls | None = None) -> None:
    """Serve until cancelled; open requests get a moment to finish."""
    config = uvicorn.Config(
        http_server.app,
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=[str(network) for network in http_server.limits.proxies],
        timeout_graceful_shutdown=2,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=str(tls.cert_file) if tls and tls.serves() else None,
        ssl_keyfile=str(tls.key_file) if tls and tls.serves() else None,
    )
    server = _Server(config, http_server)
    with connections.listening(host, port) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        finally:
            http_server.stopping.set()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving


class _Server(uvicorn.Server):
    """Accepts connections itself, with a limit; signals belong to plumbing.run."""

    _accepting: "asyncio.Task[None]"

    def __init__(self, config: uvicorn.Config, http_server: HttpServer) -> None:
        super().__init__(config)
        self._http_server = http_server
        self._connections = Connections(http_server.limits)

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        assert sockets  # noqa: S101 - serve() gives one
        self.servers = []
        self._accepting = asyncio.create_task(
            connections.accept(sockets[0], self._connections, self._begin)
        )
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    async def _begin(self, accepted: socket.socket, place: Connection) -> None:
        def protocol() -> _Protocol:
            return _Protocol(self, self._http_server, self._connections, place)

        await asyncio.get_running_loop().connect_accepted_socket(
            protocol,
            accepted,
            ssl=self.config.ssl,
            ssl_handshake_timeout=self._http_server.head_within_s if self.config.ssl else None,
        )


class _Protocol(H11Protocol):
    """What is no HTTP, or too slow to say what it wants, never comes to a route.

    It gets the standard error body all the same; who says nothing at all is just hung up on.
    """

    _hurry: asyncio.TimerHandle | None = None
    # Runs while a request is answered whose body still comes.
    _rest: asyncio.TimerHandle | None = None
    _unread = 0
    # How much is still read and dropped after such an answer, None before it.
    _left_to_drop: int | None = None

    def __init__(
        self, server: _Server, http_server: HttpServer, connections: Connections, place: Connection
    ) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._head_within_s, self._rest_within_s = (
            http_server.head_within_s,
            http_server.request_within_s,
        )
        self._connections, self._place = connections, place

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.close = transport.abort
        self._hurry = self.loop.call_later(self._head_within_s, self._too_slow)

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # the route has not begun yet, and finds it there
            cast(dict[str, Any], self.scope)[_PLACE] = self._place

    def data_received(self, data: bytes) -> None:
        if self._left_to_drop is None:
            super().data_received(data)
            self._watch()
            self._unread = self._unread + len(data) if self._rest is not None else 0
            if self._unread > _MAX_UNREAD:
                self.transport.close()
            return
        self._left_to_drop -= len(data)
        if self._left_to_drop <= 0:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.release(self._place)
        self._calm()
        self._wait_for_rest(needed=False)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note_place()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note_place()

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log it: anybody can request an upgrade."""

    def _note_place(self) -> None:
        """Whether we wait for the client: for its request, or for it to take the answer."""
        theirs, answered = self.conn.their_state, self.conn.our_state is h11.DONE
        self._place.in_request = theirs is not h11.IDLE and not answered
        waits = theirs in {h11.IDLE, h11.SEND_BODY} or answered or self.flow.write_paused
        if not waits:
            self._place.waiting_since = None
        elif self._place.waiting_since is None:
            self._place.waiting_since = self.loop.time()

    def _watch(self) -> None:
        """A head that has begun has to end; what comes after it is the route's to wait for.

        What comes after the answer nobody waits for: it has to end as well.
        """
        self._note_place()
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        self._wait_for_rest(needed=answered and not self.transport.is_closing())
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._calm()
        elif self._hurry is None and self.conn.trailing_data[0]:
            self._hurry = self.loop.call_later(self._head_within_s, self._too_slow)

    def _calm(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _wait_for_rest(self, *, needed: bool) -> None:
        if needed and self._rest is None:
            self._rest = self.loop.call_later(self._rest_within_s, self.transport.close)
        elif not needed and self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _too_slow(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(HttpError(TOO_SLOW, "the head of the request took too long"))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Called while h11's error is handled; its hint marks headers that are too long."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(
            HttpError(TOO_LONG, "the headers are too long")
            if status == TOO_LONG
            else HttpError(400, msg)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closed with something unread, the connection is reset, and the answer may be lost with it.
        self._left_to_drop = _MAX_DROPPED
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


class _RepeatedHeaders:
    """A header that may be there once only and is there twice: 400 on every route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        repeated = [name.decode() for name in _ONLY_ONCE if names.count(name) > 1]
        if scope["type"] == "http" and repeated:
            error = HttpError(400, f"the header {repeated[0]} must not be sent twice")
            await error_response(Request(scope), error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


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
        # What is true of a farm now must not come out of somebody's cache.
        is_api = scope["path"].startswith("/api/")

        async def send_identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = scope["farmiq.ids"].items()
                extra = [(name.encode(), value.encode()) for name, value in named]
                headers = message["headers"]
                if is_api and all(name != b"cache-control" for name, _ in headers):
                    extra.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*headers, *extra]}
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
    """Return the path of the route as written; only FastAPI's own routes are in the scope."""
    if "route" in scope:
        return str(scope["route"].path)
    endpoint = scope.get("endpoint")
    paths = (
        route.path for route in scope["app"].routes if getattr(route, "endpoint", "") == endpoint
    )
    return next(paths, "none")


def _given(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name and value:
            text: str = value.decode("latin-1")
            return text if len(text) <= _MAX_ID and text.isprintable() and text.isascii() else None
    return None


def _result(task: "asyncio.Task[str | None]") -> str | None:
    if not task.done() or task.cancelled():
        return f"the check did not end within {CHECK_WITHIN_S:g} s"
    return task.result()


class _CheckRun:
    """A question to an engine, and since when it is answered."""

    def __init__(self, task: "asyncio.Task[str | None]") -> None:
        self.task = task
        self._answered_at: float | None = None
        task.add_done_callback(lambda _: self._answered())

    def _answered(self) -> None:
        self._answered_at = time.monotonic()

    def is_old(self) -> bool:
        return (
            self._answered_at is not None and time.monotonic() - self._answered_at > ANSWER_HOLDS_S
        )


async def _answer(check: Awaitable[str | None]) -> str | None:
    """A check that breaks is itself what is wrong; /readyz must name it, not fail."""
    try:
        return await check
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the answer
        return _broken(error)


def _broken(error: Exception) -> str:
    return f"the check failed: {error!r}"


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
    if any(item["loc"][0] == "path" for item in error.errors()):
        # An address that cannot be one is an address of nothing.
        return error_response(request, HttpError(404, "there is none of this id or name"))
    details = [
        {"field": ".".join(str(part) for part in item["loc"][1:]), "reason": reason(item)}
        for item in error.errors()
    ]
    return error_response(request, HttpError(400, "the request is not valid", details=details))


_REASONS = {"missing": "is missing", "extra_forbidden": "is not known"}


def reason(item: Mapping[str, Any]) -> str:
    """What is wrong, of an error of pydantic."""
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "literal_error":
        return f"is none of: {item['ctx']['expected']}"
    return _REASONS.get(item["type"], str(item["msg"]))


async def _reject_repeated_parameters(request: Request) -> None:
    """A parameter that is sent twice: FastAPI would take the last one."""
    if b"&" not in request.scope["query_string"] or not request.url.path.startswith("/api/"):
        return
    names = [name for name, _ in request.query_params.multi_items()]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        details = [{"field": name, "reason": "is given more than once"} for name in repeated]
        raise HttpError(400, "the request is not valid", details=details)


async def _on_database_unavailable(request: Request, error: Exception) -> Response:
    log.get("http").warning("http.database_away", error=db.first_line(error))
    return error_response(
        request, HttpError(503, "the database is away; try again", retry_after_s=5)
    )


async def _on_gone(_: Request, error: Exception) -> Response:
    """The client left while it sent the body, or sent no HTTP; nobody reads this answer."""
    log.get("http").debug("http.gone", error=repr(error))
    return Response(status_code=400)


async def _on_any_error(request: Request, error: Exception) -> Response:
    log.get("http").error("http.failed", error=repr(error), exc_info=error)
    answer = error_response(request, HttpError(500, "something went wrong on our side"))
    # This answer is given outside of _Identify, which has seen the exception pass.
    answer.headers.update(request.scope.get("farmiq.ids", {}))
    return answer
