"""What every request passes through: its ids, headers that stand twice, a deadline for its body."""

import asyncio
import time

import prometheus_client
import structlog
from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farmiq.plumbing import ids, log
from farmiq.plumbing.http.errors import TOO_SLOW, HttpError, error_response

# A header longer than this is not an id; it would only fill our logs.
_MAX_ID = 128
# Sent twice, one check might look at the one and another at the other.
_ONLY_ONCE = (b"authorization", b"content-type", b"content-encoding", b"content-length")

REQUESTS = prometheus_client.Counter(
    "farmiq_http_requests_total", "HTTP requests answered", ["route", "status"]
)


CONTRACT = b"x-farmiq-contract"


def add_middleware(app: FastAPI, *, body_within_s: float, contract: int) -> None:
    app.add_middleware(_Hurry, within_s=body_within_s)
    app.add_middleware(_RepeatedHeaders)
    app.add_middleware(_Identify, contract=contract)


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
    """Every request has a request id and a trace id: given, or made here; echoed and logged.

    Every answer of the API says the number of our contract (D-581).
    """

    def __init__(self, app: ASGIApp, contract: int) -> None:
        self._app, self._contract = app, str(contract).encode()
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
                if is_api:
                    extra.append((CONTRACT, self._contract))
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
