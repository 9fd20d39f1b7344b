"""The routes of dead letters. An admin sees and moves those of their company, a super admin all.

People authenticate by a sign-in of the console: its cookie, or its token as a bearer token.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from aio_pika.abc import AbstractConnection
from fastapi import Depends, Query, Request
from fastapi.responses import StreamingResponse

from farmiq import api
from farmiq.api import BodyOf, JsonBody, route
from farmiq.cloud.deadletter import handlers, store
from farmiq.cloud.deadletter.handlers import Order
from farmiq.cloud.deadletter.rules import QUEUES, BusDeadLetter, BusFilter
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.tls import Tls

ROOT = "/api/v1/dead-letters"
MAX_BODY_BYTES = 256 * 1024
MAX_SHOWN = 500
SLOWEST_PER_S = 0.1
NO_FILTER = {
    "field": "body",
    "reason": 'say which letters: queue, reason, event_type, event_ids, or "all": true',
}


class DeadLetterFilter(api.Filter):
    queue: Annotated[str, api.one_of(QUEUES)] | None = None
    reason: str | None = None
    event_type: str | None = None
    event_id: str | None = None


class DeadLetterOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which letters, how many at most, how fast; with `dry_run` nothing happens to them.

    Which: by queue, reason, event_type or event_ids, or `all` of them.
    """

    queue: Annotated[str, msgspec.Meta(extra_json_schema={"enum": [*QUEUES]})] | None = None
    reason: str | None = None
    event_type: str | None = None
    event_ids: Annotated[list[str], msgspec.Meta(max_length=1000)] = msgspec.field(
        default_factory=list
    )
    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    rate_per_s: Annotated[float, msgspec.Meta(ge=SLOWEST_PER_S, le=5000)] = 100.0
    dry_run: bool = False


class DeadLetterGroup(api.Model):
    """Letters of one queue that died of the same reason, but for what is particular to each."""

    queue: str
    reason: str
    count: int
    oldest: str | None
    newest: str | None
    event_types: list[str]


class DeadLetterGroups(api.Model):
    groups: list[DeadLetterGroup]


class DeadLetters(api.Model):
    letters: list[BusDeadLetter]


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant_id` is None for a super admin, who may see the letters of all."""

    email: str
    tenant_id: str | None


class Admin:
    """A dependency: an admin of a company, or a super admin. The handler is a method of Api."""

    security = ("signIn", "signInToken")
    errors = {  # noqa: RUF012 - nobody writes to it
        401: "UNAUTHENTICATED: nobody is signed in.",
        403: "FORBIDDEN: neither an admin of the company nor a super admin.",
        429: http.ERRORS[429],
        503: "UNAVAILABLE: the database or the bus is away.",
    }

    async def __call__(self, request: Request) -> Caller:
        """Raises HttpError 401, 403, or 429 for too many requests.

        Listing counts too: it holds all letters while it reads them.
        """
        own: Api = request.scope["endpoint"].__self__
        sign_in = await own.sign_ins.require(request)
        tenant_id = None
        if not sign_in.is_super_admin:
            async with db.transaction(own.pool) as tx:
                tenant_id = await store.administered(tx, sign_in.user_id, sign_in.company_id)
            if tenant_id is None:
                raise HttpError(403, "dead letters are for admins of the company and super admins")
        http.allow(request, sign_in.email)
        return Caller(sign_in.email, tenant_id)


AnAdmin = Annotated[Caller, Depends(Admin())]
# JSON only: a browser sends it for another site only after a preflight request (CORS).
OrderBody = Annotated[
    JsonBody[DeadLetterOrder],
    Depends(
        BodyOf(
            DeadLetterOrder,
            what="an order",
            max_bytes=MAX_BODY_BYTES,
            message="the order is not valid",
        )
    ),
]
MOVED: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {
        200: {
            "description": "A line per letter with its outcome, and a summary as the last line.",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
        409: "CONFLICT: letters are being moved already.",
    },
}


@dataclass
class Api(api.Routes):
    url: str
    pool: db.Pool
    sign_ins: SignIns
    tls: Tls | None = None
    # Two moves at the same time would take letters from each other.
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @route("GET", ROOT, DeadLetterGroups)
    async def groups(self, caller: AnAdmin, query: Annotated[DeadLetterFilter, Query()]) -> Any:
        """Dead letters by queue and reason."""
        async with self._all_letters() as opened:
            groups = await handlers.groups(opened, _filter(caller, query))
        return {"groups": [group.described() for group in groups]}

    @route("GET", f"{ROOT}/messages", DeadLetters)
    async def messages(self, caller: AnAdmin, query: Annotated[DeadLetterFilter, Query()]) -> Any:
        """The first dead letters that are meant, oldest first.

        Without their bodies.
        """
        letters: list[BusDeadLetter] = []
        async with self._all_letters() as opened:
            async for letter, _ in handlers.browse(opened, _filter(caller, query)):
                letters.append(letter)
                if len(letters) >= MAX_SHOWN:
                    break
        return {"letters": letters}

    @route("POST", f"{ROOT}/redrive", operation_id="redriveDeadLetters", **MOVED)
    async def redrive(self, caller: AnAdmin, body: OrderBody) -> StreamingResponse:
        """Send dead letters back to the queues they came from."""
        return await self._move(caller, await body.read(), "redrive")

    @route("POST", f"{ROOT}/discard", operation_id="discardDeadLetters", **MOVED)
    async def discard(self, caller: AnAdmin, body: OrderBody) -> StreamingResponse:
        """Take dead letters away for good."""
        return await self._move(caller, await body.read(), "discard")

    async def _move(self, caller: Caller, body: DeadLetterOrder, action: str) -> StreamingResponse:
        if body.queue is not None and body.queue not in QUEUES:
            raise api.invalid(("queue", f"one of {', '.join(QUEUES)}"))
        chosen = BusFilter(
            queue=body.queue,
            reason=body.reason,
            event_type=body.event_type,
            tenant_id=caller.tenant_id,
            event_ids=frozenset(body.event_ids),
        )
        if not (body.all or chosen.is_given):
            raise HttpError(400, "the order does not say which letters", details=[NO_FILTER])
        order = Order(
            action, chosen, caller.email, body.limit, body.rate_per_s, dry_run=body.dry_run
        )
        if self._busy.locked():
            raise HttpError(409, "letters are being moved already; try again when that is done")
        # Opened before the response starts: if the bus is down, the caller gets a plain 503.
        stack = AsyncExitStack()
        await stack.enter_async_context(self._busy)
        try:
            opened = await stack.enter_async_context(self._connection())
        except BaseException:
            await stack.aclose()
            raise
        lines = self._lines(opened, order, stack)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _lines(
        self, opened: AbstractConnection, order: Order, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        """A line per letter, and a last one with the counts, or with the error."""
        counts: dict[str, int] = {}
        async with stack:
            try:
                async for outcome in handlers.move(opened, self.pool, order):
                    counts[outcome.done] = counts.get(outcome.done, 0) + 1
                    yield _line(outcome.described())
            except (*amqp.UNAVAILABLE, *db.UNAVAILABLE) as error:
                yield _line({"summary": counts, "error": db.first_line(error)})
                return
        yield _line({"summary": counts})

    @asynccontextmanager
    async def _all_letters(self) -> AsyncIterator[AbstractConnection]:
        """A connection while nobody else holds letters: those would be missing from a list."""
        async with (
            store.exclusive(self.pool, wait_s=handlers.MAX_WAIT_S),
            self._connection() as opened,
        ):
            yield opened

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AbstractConnection]:
        try:
            async with amqp.connection(self.url, name="dead-letters", tls=self.tls) as opened:
                yield opened
        except amqp.UNAVAILABLE as error:
            why = f"the message bus is away: {amqp.why(error)}"
            raise HttpError(503, why, retry_after_s=5) from error


def _filter(caller: Caller, query: DeadLetterFilter) -> BusFilter:
    return BusFilter(
        queue=query.queue,
        reason=query.reason,
        event_type=query.event_type,
        tenant_id=caller.tenant_id,
        event_ids=frozenset(filter(None, [query.event_id])),
    )


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
