"""The routes of dead letters. An admin sees and moves those of their company, a super admin all.

People authenticate by a sign-in of the console: its cookie, or its token as a bearer token.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
from aio_pika.abc import AbstractConnection
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from farmiq.cloud.deadletter import handlers, store
from farmiq.cloud.deadletter.handlers import Order
from farmiq.cloud.deadletter.rules import QUEUES, BusFilter
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
NO_STORE = {"Cache-Control": "no-store"}


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


_decoder = msgspec.json.Decoder(DeadLetterOrder)


@dataclass(frozen=True, slots=True)
class Caller:
    """`tenant_id` is None for a super admin, who may see the letters of all."""

    email: str
    tenant_id: str | None


@dataclass
class Api:
    url: str
    pool: db.Pool
    sign_ins: SignIns
    tls: Tls | None = None
    # Two moves at the same time would take letters from each other.
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add_to(self, app: FastAPI) -> None:
        for path, endpoint, method in (
            (ROOT, self.groups, "GET"),
            (f"{ROOT}/messages", self.messages, "GET"),
            (f"{ROOT}/redrive", self.redrive, "POST"),
            (f"{ROOT}/discard", self.discard, "POST"),
        ):
            app.add_route(path, endpoint, methods=[method])

    async def groups(self, request: Request) -> Response:
        chosen = await self._filter(request)
        async with self._connection() as opened:
            groups = await handlers.groups(opened, chosen)
        return JSONResponse({"groups": [group.described() for group in groups]}, headers=NO_STORE)

    async def messages(self, request: Request) -> Response:
        """The first letters, without their bodies."""
        chosen = await self._filter(request)
        letters: list[dict[str, Any]] = []
        async with self._connection() as opened:
            async for letter, _ in handlers.browse(opened, chosen):
                letters.append(letter.described())
                if len(letters) >= MAX_SHOWN:
                    break
        return JSONResponse({"letters": letters}, headers=NO_STORE)

    async def redrive(self, request: Request) -> Response:
        return await self._move(request, "redrive")

    async def discard(self, request: Request) -> Response:
        return await self._move(request, "discard")

    async def _move(self, request: Request, action: str) -> Response:
        caller = await self._caller(request)
        body = await _order(request)
        chosen = BusFilter(
            queue=_queue(body.queue),
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
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=NO_STORE)

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

    async def _filter(self, request: Request) -> BusFilter:
        caller = await self._caller(request)
        query = request.query_params
        chosen = BusFilter(
            queue=_queue(query.get("queue")),
            reason=query.get("reason"),
            event_type=query.get("event_type"),
            event_ids=frozenset(query.getlist("event_id")),
        )
        return replace(chosen, tenant_id=caller.tenant_id)

    async def _caller(self, request: Request) -> Caller:
        """Raises HttpError 401, 403, 503 if the database is down, or 429 for too many requests.

        Listing counts too: it holds all letters while it reads them.
        """
        caller = await self._person(request)
        http.allow(request, caller.email)
        return caller

    async def _person(self, request: Request) -> Caller:
        try:
            sign_in = await self.sign_ins.signed_in(request)
            if sign_in is None:
                raise HttpError(401, "sign in first")
            if sign_in.is_super_admin:
                return Caller(sign_in.email, None)
            async with db.transaction(self.pool) as tx:
                tenant_id = await store.administered(tx, sign_in.user_id, sign_in.company_id)
        except db.UNAVAILABLE as error:
            raise HttpError(503, "the database is away", retry_after_s=5) from error
        if tenant_id is None:
            raise HttpError(403, "dead letters are for admins of the company and super admins")
        return Caller(sign_in.email, tenant_id)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AbstractConnection]:
        try:
            async with amqp.connection(self.url, name="dead-letters", tls=self.tls) as opened:
                yield opened
        except amqp.UNAVAILABLE as error:
            why = f"the message bus is away: {amqp.why(error)}"
            raise HttpError(503, why, retry_after_s=5) from error


def _queue(queue: str | None) -> str | None:
    if queue is not None and queue not in QUEUES:
        raise HttpError(
            400,
            "there is no such queue of dead letters",
            details=[{"field": "queue", "reason": f"one of {', '.join(QUEUES)}"}],
        )
    return queue


async def _order(request: Request) -> DeadLetterOrder:
    # JSON only: a browser sends it for another site only after a preflight request (CORS).
    raw = await http.body(request, what="an order", max_bytes=MAX_BODY_BYTES)
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        reason = str(error)[:500]
        raise HttpError(
            400, "the order is not valid", details=[{"field": "body", "reason": reason}]
        ) from None


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"
