"""Who may call the edge's HTTP API, by `Authorization: Bearer …`: a key with a role, or a device.

A viewer reads, an operator also acts (redrive, commands, feed), an admin also changes who may.
`farmiq key add` makes a key and prints it once; the database keeps its hash alone. A device's token
comes with its credentials (`farmiq device add`) and lets it upload its own images, nothing else.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

from fastapi import Request

from farmiq.plumbing import db, http

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
_PREFIX = "fiq_"
_DEVICE_PREFIX = "fiqd_"


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class DeviceCaller:
    """A registered device, where it stands."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None

    @property
    def name(self) -> str:
        return f"{self.tenant_id}/{self.device_id}"


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def new_device_token() -> str:
    return _DEVICE_PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


async def require(request: Request, pool: db.Pool, role: Role) -> Caller:
    """Whoever calls, if they may. Raises HttpError 401, 403, or 503 if nobody can be asked.

    Who acts (any role but viewer is asked for) may do so only so often: HttpError 429.
    """
    rows = await _found(
        request,
        pool,
        "select name, role from api_keys where key_sha256 = %s and revoked_at is null",
        missing="send a key: Authorization: Bearer … (farmiq key add makes one)",
    )
    if not rows:
        raise http.HttpError(401, "this key is not known, or was revoked")
    caller = Caller(*rows[0])
    if ROLES.index(caller.role) < ROLES.index(role):
        raise http.HttpError(
            403, f"the key {caller.name!r} has the role {caller.role}; this needs {role}"
        )
    if role != "viewer":
        http.allow(request, f"the key {caller.name!r}")
    return caller


async def require_device(request: Request, pool: db.Pool) -> DeviceCaller:
    """The device that calls. Raises HttpError 401, or 503 if nobody can be asked.

    It is asked of the table each time: a revoked or rotated device's token ends at once.
    """
    rows = await _found(
        request,
        pool,
        "select tenant_id, farm_id, barn_id, device_id, station_id from devices "
        "where token_sha256 = %s and revoked_at is null",
        missing="send the device's token: Authorization: Bearer … (farmiq device add | rotate)",
    )
    if not rows:
        raise http.HttpError(
            401, "this token is no device's, or the device was revoked or rotated since"
        )
    return DeviceCaller(*rows[0])


async def _found(
    request: Request, pool: db.Pool, question: LiteralString, *, missing: str
) -> list[tuple[Any, ...]]:
    """The rows of whoever has this bearer token; `question` takes its hash."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        raise http.HttpError(401, missing)
    try:
        async with pool.connection(timeout=5.0) as connection:
            rows = await db.fetch_all(connection, question, digest(key.strip()))
    except db.UNAVAILABLE as error:
        raise http.HttpError(503, "the edge's database is away", retry_after_s=5) from error
    if rows:
        http.authenticated(request)
    return rows
