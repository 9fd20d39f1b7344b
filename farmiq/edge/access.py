"""Who may call the edge's HTTP API: a key with a role, sent as `Authorization: Bearer …`.

A viewer reads, an operator also acts (redrive, commands, feed), an admin also changes who may.
`farmiq key add` makes a key and prints it once; the database keeps its hash alone.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from fastapi import Request

from farmiq.plumbing import db, http

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
_PREFIX = "fiq_"


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


async def require(request: Request, pool: db.Pool, role: Role) -> Caller:
    """Whoever calls, if they may. Raises HttpError 401, 403, or 503 if nobody can be asked.

    Who acts (any role but viewer is asked for) may do so only so often: HttpError 429.
    """
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        raise http.HttpError(401, "send a key: Authorization: Bearer … (farmiq key add makes one)")
    try:
        async with pool.connection(timeout=5.0) as connection:
            rows = await db.fetch_all(
                connection,
                "select name, role from api_keys where key_sha256 = %s and revoked_at is null",
                digest(key.strip()),
            )
    except db.UNAVAILABLE as error:
        raise http.HttpError(503, "the edge's database is away", retry_after_s=5) from error
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
