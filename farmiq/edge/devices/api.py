"""HTTP: devices for programs. A viewer reads, an operator commands, an admin registers."""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from farmiq.edge import access
from farmiq.edge.devices import desk, entry, liveness, store
from farmiq.messages import instants
from farmiq.plumbing import db, http

ROUTE = "/api/v1/devices"
MOST_ON_A_PAGE = 500
MOST_BODY_BYTES = 128 * 1024
DEFAULT_TTL_S = 60

Handler = Callable[[Request], Awaitable[JSONResponse]]


def add_to(app: FastAPI, pool: db.Pool) -> None:
    desk_ = Routes(pool)
    one = ROUTE + "/{tenant_id}/{device_id}"
    command = ROUTE + "/{tenant_id}/{device_id}/commands/{command_id}"
    app.add_route(ROUTE, _answered(desk_.ls), methods=["GET"])
    app.add_route(ROUTE, _answered(desk_.add), methods=["POST"])
    app.add_route(one, _answered(desk_.show), methods=["GET"])
    app.add_route(f"{one}/revoke", _answered(desk_.revoke), methods=["POST"])
    app.add_route(f"{one}/rotate", _answered(desk_.rotate), methods=["POST"])
    app.add_route(f"{one}/commands", _answered(desk_.command), methods=["POST"])
    app.add_route(command, _answered(desk_.show_command), methods=["GET"])


class Routes:
    def __init__(self, pool: db.Pool) -> None:
        self._pool = pool

    async def ls(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "viewer", by_tenant=True)
        asked = _query(request)
        asked["tenant_id"] = caller.tenant(asked["tenant_id"])
        async with db.transaction(self._pool) as tx:
            rows = await store.page(tx, **{**asked, "limit": asked["limit"] + 1})
        shown = rows[: asked["limit"]]
        more = len(rows) > len(shown)
        return _json({"devices": shown, "next": _cursor(shown[-1]) if more else None})

    async def show(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "viewer", by_tenant=True)
        key = _key(request, caller)
        async with db.transaction(self._pool) as tx:
            found = await store.one(tx, key)
            commands = await store.commands_of(tx, key, limit=20)
        if found is None:
            raise http.HttpError(404, f"no device {key[1]!r} of tenant {key[0]!r} is known")
        return _json({**found, "commands": commands})

    async def add(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "admin", by_tenant=True)
        device = entry.read(await _body(request))
        caller.tenant(device.tenant_id)
        async with db.transaction(self._pool) as tx:
            made = await desk.add(tx, device, actor=caller.name)
        return _json(made.as_json(), status=201)

    async def revoke(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "admin", by_tenant=True)
        async with db.transaction(self._pool) as tx:
            await desk.revoke(tx, _key(request, caller), actor=caller.name)
        return _json({"revoked": True})

    async def rotate(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "admin", by_tenant=True)
        async with db.transaction(self._pool) as tx:
            made = await desk.rotate(tx, _key(request, caller), actor=caller.name)
        return _json(made.as_json())

    async def command(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "operator", by_tenant=True)
        said = _command(await _body(request))
        async with db.transaction(self._pool) as tx:
            command_id = await desk.command(tx, _key(request, caller), actor=caller.name, **said)
            queued = await store.command(tx, command_id)
        return _json(queued, status=202)

    async def show_command(self, request: Request) -> JSONResponse:
        caller = await access.require(request, self._pool, "viewer", by_tenant=True)
        key, command_id = _key(request, caller), _uuid(request.path_params["command_id"])
        async with db.transaction(self._pool) as tx:
            found = await store.command(tx, command_id)
        if found is None or (found["tenant_id"], found["device_id"]) != key:
            raise http.HttpError(404, f"device {key[1]!r} has no command {command_id}")
        return _json(found)


def _answered(handler: Handler) -> Handler:
    """What the desk says, as an HTTP answer; a database that is away is 503."""

    async def answer(request: Request) -> JSONResponse:
        try:
            return await handler(request)
        except entry.Wrong as wrong:
            details = [{"field": field, "reason": why} for field, why in wrong.reasons]
            raise http.HttpError(400, "the request is not valid", details=details) from None
        except desk.NotThere as error:
            raise http.HttpError(404, str(error)) from None
        except desk.Taken as error:
            raise http.HttpError(409, str(error)) from None
        except db.UNAVAILABLE as error:
            raise http.HttpError(503, "the edge's database is away", retry_after_s=5) from error

    return answer


def _key(request: Request, caller: access.Caller) -> store.Key:
    key = request.path_params["tenant_id"], request.path_params["device_id"]
    caller.tenant(key[0])
    if not all(entry.is_id(part) for part in key):
        raise http.HttpError(404, "no device can have this name")
    return key


def _query(request: Request) -> dict[str, Any]:
    said = request.query_params
    wrong = [
        (name, "is not a parameter of this route")
        for name in said
        if name not in ("tenant_id", "barn_id", "state", "limit", "after")
    ]
    limit = said.get("limit", "100")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_ON_A_PAGE):
        wrong.append(("limit", f"is not a number from 1 to {MOST_ON_A_PAGE}"))
    wrong += [
        (name, "is not an id")
        for name in ("tenant_id", "barn_id")
        if name in said and not entry.is_id(said[name])
    ]
    if said.get("state", "online") not in liveness.SHOWN:
        wrong.append(("state", f"is none of {', '.join(liveness.SHOWN)}"))
    after = _after(said.get("after"))
    if after is None:
        wrong.append(("after", "is not what an earlier page gave as `next`"))
    if wrong or after is None:
        raise entry.Wrong(wrong)
    filters = {name: said.get(name) for name in ("tenant_id", "barn_id", "state")}
    return {"after": after, "limit": int(limit), **filters}


def _cursor(row: dict[str, Any]) -> str:
    said = json.dumps([row["tenant_id"], row["device_id"]]).encode()
    return base64.urlsafe_b64encode(said).decode()


def _after(cursor: str | None) -> store.Key | None:
    if not cursor:
        return "", ""
    try:
        tenant_id, device_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        return None
    fits = all(isinstance(one, str) and entry.is_id(one) for one in (tenant_id, device_id))
    return (tenant_id, device_id) if fits else None


async def _body(request: Request) -> dict[str, Any]:
    raw = await http.body(request, what="a request", most=MOST_BODY_BYTES)
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        raise http.HttpError(400, "the body is not JSON") from None
    if not isinstance(said, dict):
        raise http.HttpError(400, "the body is not a JSON object")
    return said


def _command(said: dict[str, Any]) -> dict[str, Any]:
    wrong = [
        (name, "is not a field of a command")
        for name in said
        if name not in ("name", "args", "ttl_s")
    ]
    name, args, ttl_s = said.get("name"), said.get("args", {}), said.get("ttl_s", DEFAULT_TTL_S)
    if not isinstance(name, str):
        wrong.append(("name", "is missing, or no text"))
    if not isinstance(args, dict):
        wrong.append(("args", "is not an object"))
    if not isinstance(ttl_s, int) or isinstance(ttl_s, bool):
        wrong.append(("ttl_s", "is not a whole number"))
    if wrong:
        raise entry.Wrong(wrong)
    return {"name": name, "args": args, "ttl_s": ttl_s}


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise http.HttpError(404, "no command can have this id") from None


def _json(body: Any, *, status: int = 200) -> JSONResponse:
    return JSONResponse(json.loads(json.dumps(body, default=_plain)), status_code=status)


def _plain(value: Any) -> str:
    return instants.rfc3339(value) if isinstance(value, datetime) else str(value)
