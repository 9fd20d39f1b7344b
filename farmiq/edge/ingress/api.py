"""The HTTP API of ingress: quarantine, alerts, losses, gaps. Every route needs a key."""

import math
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse

from farmiq.edge import access, alerts, losses
from farmiq.edge.ingress import jobs, quarantine, rules, store
from farmiq.edge.ingress.quarantine import Handle, Quarantine
from farmiq.edge.ingress.store import Boot
from farmiq.messages import check, instants
from farmiq.plumbing import db, deadletters, http

MAX_ON_A_PAGE = 1000
MAX_GAPS_OF_A_DEVICE = 64
MAX_BODY_BYTES = 1024 * 1024
# A request must end while the caller waits; the command is for more.
MAX_PER_REQUEST = 5_000
_MAX_HOURS = 24.0 * 366 * 100


class Chosen(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which messages: by `ids`, or by what they have in common. `all` means every one."""

    ids: list[UUID] | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET
    topic: str | msgspec.UnsetType = msgspec.UNSET
    older_than_hours: float | msgspec.UnsetType = msgspec.UNSET
    newer_than_hours: float | msgspec.UnsetType = msgspec.UNSET
    all: bool = False
    limit: int = MAX_PER_REQUEST
    dry_run: bool = False


class Closing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An open alert, as the list of alerts names it."""

    kind: str
    subject: str


class Api:
    """The routes; `handle` is handlers.handle, which a redrive uses."""

    def __init__(self, pool: db.Pool, handle: Handle) -> None:
        self._pool, self._handle = pool, handle

    def add_to(self, app: FastAPI) -> None:
        for path, method, handler in (
            ("/api/v1/quarantine", "GET", self.quarantine),
            ("/api/v1/quarantine/redrive", "POST", self.redrive),
            ("/api/v1/quarantine/discard", "POST", self.discard),
            ("/api/v1/quarantine/{quarantine_id}", "GET", self.quarantined),
            ("/api/v1/alerts", "GET", self.alerts),
            ("/api/v1/alerts/close", "POST", self.close_alert),
            ("/api/v1/losses", "GET", self.losses),
            ("/api/v1/devices/gaps", "GET", self.gaps),
        ):
            app.add_route(path, _endpoint(handler), methods=[method])

    async def quarantine(self, request: Request) -> JSONResponse:
        await access.require(request, self._pool, "viewer")
        parameters = Parameters(request.query_params)
        filters = _filter(parameters)
        before, limit = parameters.uuid("before"), parameters.limit()
        parameters.done()
        table = quarantine.TABLE
        async with self._pool.connection(timeout=5.0) as connection:
            rows = await deadletters.ls(
                connection, table, {**filters, "before": before}, limit=limit
            )
            counts = await deadletters.counts(connection, table, filters)
            total, size = await quarantine.size(connection)
        return _json(
            {
                "rows": rows,
                "next": rows[-1]["quarantine_id"] if len(rows) == limit else None,
                "counts": counts,
                "total_rows": total,
                "total_bytes": size,
            }
        )

    async def quarantined(self, request: Request) -> JSONResponse:
        await access.require(request, self._pool, "viewer")
        parameters = Parameters(request.path_params)
        quarantine_id = parameters.uuid("quarantine_id")
        parameters.done()
        async with self._pool.connection(timeout=5.0) as connection:
            row = quarantine_id and await deadletters.show(
                connection, quarantine.TABLE, quarantine_id, payload="raw"
            )
        if not row:
            raise http.HttpError(404, f"there is no message {quarantine_id} in quarantine")
        raw = row.pop("raw")
        return _json({**row, "raw_base64": b64encode(raw).decode()})

    async def redrive(self, request: Request) -> JSONResponse:
        return await self._move(request, deadletters.redrive)

    async def discard(self, request: Request) -> JSONResponse:
        return await self._move(request, deadletters.discard)

    async def _move(
        self, request: Request, move: Callable[..., Awaitable[deadletters.Result]]
    ) -> JSONResponse:
        caller = await access.require(request, self._pool, "operator")
        chosen, order = await _chosen(request)
        by = Quarantine(self._handle, f"key {caller.name}", f"discarded by {caller.name}")
        result = await move(self._pool, by, chosen, limit=order.limit, dry_run=order.dry_run)
        return _json(result.described())

    async def alerts(self, request: Request) -> JSONResponse:
        await access.require(request, self._pool, "viewer")
        parameters = Parameters(request.query_params)
        closed = parameters.one_of("closed", ("true", "false")) == "true"
        before, limit = parameters.uuid("before"), parameters.limit()
        parameters.done()
        async with self._pool.connection(timeout=5.0) as connection:
            rows = await alerts.latest(connection, closed=closed, before=before, limit=limit)
        return _json({"alerts": rows, "next": rows[-1]["alert_id"] if len(rows) == limit else None})

    async def close_alert(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "operator")
        closing = await _body(request, _closing_decoder, Closing)
        async with db.transaction(self._pool) as tx:
            chosen = alerts.Filter(closing.kind, closing.subject, exact=True)
            closed_count = await alerts.close_chosen(tx, chosen, by=f"key {caller.name}")
        if not closed_count:
            raise http.HttpError(404, f"no open alert {closing.kind!r} of {closing.subject!r}")
        return _json({"closed": True})

    async def losses(self, request: Request) -> JSONResponse:
        await access.require(request, self._pool, "viewer")
        parameters = Parameters(request.query_params)
        before, limit = parameters.uuid("before"), parameters.limit()
        parameters.done()
        async with self._pool.connection(timeout=5.0) as connection:
            rows = await losses.latest(connection, before=before, limit=limit)
            totals = await losses.totals(connection)
        following = rows[-1]["loss_id"] if len(rows) == limit else None
        return _json({"losses": rows, "next": following, "totals": totals})

    async def gaps(self, request: Request) -> JSONResponse:
        await access.require(request, self._pool, "viewer")
        Parameters(request.query_params).done()
        async with self._pool.connection(timeout=5.0) as connection:
            boots = await store.boots(connection)
        devices = [_device(of, device_gaps) for of, device_gaps in jobs.by_device(boots)]
        return _json(
            {"devices": [device for device in devices if device["missing"]][:MAX_ON_A_PAGE]}
        )


class Parameters:
    """Parameters of a request; `done` raises all errors at once."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values, self._errors = values, list[dict[str, Any]]()

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and "\x00" in value:
            self._no(name, "contains a NUL character")
            return None
        return str(value) if value else None

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name)
        if value is not None and value not in allowed:
            self._no(name, f"choose one of {', '.join(allowed)}")
            return None
        return value

    def uuid(self, name: str) -> UUID | None:
        value = self.text(name)
        try:
            return UUID(value) if value else None
        except ValueError:
            self._no(name, "not a UUID")
            return None

    def hours(self, name: str) -> float | None:
        value = self.text(name)
        try:
            number = float(value) if value else None
        except ValueError:
            self._no(name, "not a number")
            return None
        if number is not None and not (math.isfinite(number) and 0 <= number <= _MAX_HOURS):
            self._no(name, f"not between 0 and {_MAX_HOURS:.0f}")
            return None
        return number

    def limit(self) -> int:
        value = self.text("limit") or "100"
        if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= MAX_ON_A_PAGE):
            self._no("limit", f"a number from 1 to {MAX_ON_A_PAGE}")
            return 1
        return int(value)

    def done(self) -> None:
        if self._errors:
            raise http.HttpError(400, "the request is not valid", details=self._errors)

    def _no(self, name: str, reason: str) -> None:
        self._errors.append({"field": name, "reason": reason})


def _endpoint(handler: Any) -> Any:
    async def endpoint(request: Request) -> JSONResponse:
        try:
            response: JSONResponse = await handler(request)
        except db.UNAVAILABLE as error:
            raise http.HttpError(503, "the edge's database is away", retry_after_s=5) from error
        return response

    return endpoint


_chosen_decoder = msgspec.json.Decoder(Chosen)
_closing_decoder = msgspec.json.Decoder(Closing)


async def _body(request: Request, decoder: Any, kind: Any) -> Any:
    """The body as `kind`. Raises HttpError 400 with every error, 413 if it is too large."""
    raw = await http.body(request, what="a request", max_bytes=MAX_BODY_BYTES, kind=None)
    try:
        return check.read(raw, decoder, kind)
    except check.InvalidError as invalid:
        details = [{"reason": reason} for reason in invalid.reasons]
        raise http.HttpError(400, "the request is not valid", details=details) from None


def _filter(parameters: Parameters) -> dict[str, Any]:
    return {
        "kind": parameters.one_of("kind", rules.KINDS),
        "reason": parameters.text("reason"),
        "topic": parameters.text("topic"),
        "older_than_hours": parameters.hours("older_than_hours"),
        "newer_than_hours": parameters.hours("newer_than_hours"),
    }


async def _chosen(request: Request) -> tuple[deadletters.Filter, Chosen]:
    order: Chosen = await _body(request, _chosen_decoder, Chosen)
    parameters = Parameters(_filter_values(order))
    chosen = {"ids": order.ids or None, **_filter(parameters)}
    parameters.done()
    if not 1 <= order.limit <= MAX_PER_REQUEST:
        raise http.HttpError(400, f"limit: a number from 1 to {MAX_PER_REQUEST}")
    if not order.all and all(value is None for value in chosen.values()):
        raise http.HttpError(400, 'choose some by ids or a filter, or say "all": true')
    return chosen, order


def _filter_values(chosen: Chosen) -> dict[str, str]:
    names = ("kind", "reason", "topic", "older_than_hours", "newer_than_hours")
    values = {name: getattr(chosen, name) for name in names}
    return {name: str(value) for name, value in values.items() if value is not msgspec.UNSET}


def _device(boots: list[Boot], device_gaps: list[rules.Gap]) -> dict[str, Any]:
    since = [boot.missing_since for boot in boots if boot.missing_since is not None]
    forgotten = sum(boot.forgotten for boot in boots)
    return {
        "tenant_id": boots[0].seen.tenant_id,
        "device_id": boots[0].seen.device_id,
        "highest_seq": max(boot.seen.spans[-1][1] for boot in boots),
        "missing": sum(gap.count for gap in device_gaps) + forgotten,
        "missing_since": min(since, default=None),
        "not_listed": forgotten + sum(gap.count for gap in device_gaps[:-MAX_GAPS_OF_A_DEVICE]),
        "gaps": [asdict(gap) for gap in device_gaps[-MAX_GAPS_OF_A_DEVICE:]],
    }


def _json(body: dict[str, Any]) -> JSONResponse:
    return JSONResponse(msgspec.to_builtins(body, builtin_types=(), enc_hook=_plain))


def _plain(value: Any) -> Any:
    return instants.rfc3339(value) if isinstance(value, datetime) else str(value)
