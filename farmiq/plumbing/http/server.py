"""The HTTP server of a process: one address, the routes of every service in it, one error body.

Always there: /healthz (the process lives), /readyz (its parts work; names what does not),
/metrics (Prometheus), /version.
"""

import asyncio
import contextlib
import copy
import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import prometheus_client
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute, Route, request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from farmiq.plumbing import metrics
from farmiq.plumbing.allowance import Allowance
from farmiq.plumbing.connections import Limits
from farmiq.plumbing.http.checks import Check, CheckRuns
from farmiq.plumbing.http.errors import HttpError, error_response, handle_errors
from farmiq.plumbing.http.middleware import add_middleware
from farmiq.plumbing.http.requests import JSON, reject_repeated_parameters

HEAD_WITHIN_S = 15.0


class Health(BaseModel):
    status: Literal["ok"]


class Readiness(BaseModel):
    """`problems` names what does not work, in words; `notes` what is odd but right."""

    status: Literal["ready", "not ready"]
    problems: dict[str, str]
    notes: dict[str, str] = {}


class Version(BaseModel):
    """`contract` grows when messages between sites gain something."""

    name: str
    version: str
    contract: int


@dataclass
class HttpServer:
    """Services add their routes to `app` and say with `ready` how to see whether they work."""

    title: str
    version: str
    contract: int = 0
    actions_per_minute: int = 120
    # A whole request is here within so long; who trickles must not hold connections for ever.
    request_within_s: float = 60.0
    limits: Limits = field(default_factory=Limits)
    metrics_token: str | None = field(default=None, repr=False)
    app: FastAPI = field(init=False)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    checks: dict[str, Check] = field(default_factory=dict)
    _notes: dict[str, Check] = field(default_factory=dict)
    _runs: CheckRuns = field(default_factory=CheckRuns)
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
            dependencies=[Depends(reject_repeated_parameters)],
        )
        self.routes = _OwnRoutes(self.app.router.routes)
        self.app.state.allowance = Allowance(self.actions_per_minute)
        # Parts have routers of their own and one state: a console puts its page there.
        self.app.state.unknown = self.app.router.not_found
        self.app.router.default = self._unknown
        handle_errors(self.app)
        add_middleware(self.app, body_within_s=self.request_within_s, contract=self.contract)
        self._add_own_routes()

    async def _unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app.state.unknown(scope, receive, send)

    def _add_own_routes(self) -> None:
        self.app.add_api_route("/healthz", self._healthz)
        self.app.add_api_route(
            "/readyz",
            self._readyz,
            response_model=Readiness,
            responses={503: {"model": Readiness, "description": "Not all do."}},
        )
        self.app.add_api_route(
            "/metrics",
            self._metrics,
            response_class=PlainTextResponse,
            responses={
                401: {
                    "description": "UNAUTHENTICATED: this is not the token.",
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                }
            },
        )
        self.app.add_api_route("/version", self._version)

    def part(self, name: str) -> "HttpServer":
        """The same server for one service, which is not ready before it has registered its checks.

        Otherwise a client would see "ready" in the first moment and send before anything listens.
        """
        self.checks[name] = lambda: "is starting"
        own = copy.copy(self)
        own.service, own.names = name, set()
        own.app = copy.copy(self.app)
        own.app.router = copy.copy(self.app.router)
        own.app.router.routes = own.routes = _OwnRoutes(self.app.router.routes)
        return own

    def failed(self, why: str) -> None:
        """The service has ended. Until it says anew what it stands on, its routes answer 503."""
        for name in self.names:
            self.checks.pop(name, None)
            self._notes.pop(name, None)
        self.names.clear()
        if self.service is not None:
            self.checks[self.service] = lambda: why
        self.routes.suspend(f"{self.service} is being started again")

    def ready(self, name: str, check: Check) -> None:
        """`check` returns what is wrong in a sentence, or None."""
        self.checks[name] = check
        self._own(name)

    @contextlib.contextmanager
    def readying(self, checks: Mapping[str, Check]) -> Iterator[None]:
        """Checks that count for as long as the block lasts."""
        self.checks |= checks
        try:
            yield
        finally:
            for name in checks:
                self.checks.pop(name, None)

    def note(self, name: str, check: Check) -> None:
        """`check` returns what a person may want to know, though nothing is wrong, or None."""
        self._notes[name] = check
        self._own(name)

    def _own(self, name: str) -> None:
        self.names.add(name)
        if self.service is not None:
            self.checks.pop(self.service, None)

    async def problems(self) -> dict[str, str]:
        return await self._runs.answers(self.checks)

    async def notes(self) -> dict[str, str]:
        return await self._runs.answers(self._notes)

    async def _healthz(self) -> Health:
        """The process lives."""
        return Health(status="ok")

    async def _metrics(self, request: Request) -> Response:
        """Metrics for Prometheus; by tenant only with API_METRICS_TOKEN as bearer token."""
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
        """Name and version."""
        return Version(name=self.title, version=self.version, contract=self.contract)

    async def _readyz(self) -> JSONResponse:
        """Its parts work."""
        problems, notes = await asyncio.gather(self.problems(), self.notes())
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
