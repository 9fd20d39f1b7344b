"""People sign in at the edge with a key of its HTTP API, or with the key's name and a PIN.

browser --key, or name and PIN--> [sign_ins] --cookie token--> browser

No internet is needed. The rights are those of the key: its role, its tenant, its areas. A key that
is revoked ends its sign-ins at once.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from fastapi import Request

from farmiq.edge import api_keys, audit, pins
from farmiq.edge.api_keys import Role
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.attempts import Attempts, Bound
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import Job

COOKIE = "farmiq_edge_sign_in"
_TOKEN_BYTES = 32
TOKEN_LENGTH = 43  # of 32 bytes in URL-safe base64
_MAX_NAME = 200
_DAY_S = 24 * 3600.0
_FAILURES_AN_HOUR = 10


class RejectedError(Exception):
    """No key is this, or none has this name and PIN; it never says which of the two is wrong."""


class TooManyAttemptsError(Exception):
    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many attempts: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


def bounds_of_key(network: str) -> list[Bound]:
    """A key has 256 random bits: nobody guesses one, and no guesses of others lock it out."""
    return [Bound(f"keys {network}", 60, forgiven=False)]


def bounds_of_pin(name: str, network: str) -> list[Bound]:
    """A PIN has few digits: a hundred guesses a day of one name, from wherever, and no more."""
    return [
        Bound(f"pair {network} {name}", 5),
        Bound(f"pins {network}", 60, forgiven=False),
        Bound(f"name {name}", 100, window_s=_DAY_S, forgiven=False),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Who is signed in, with which rights. `key_tenant_id`: the only tenant; None is all."""

    token_hash: bytes = field(repr=False)
    name: str
    role: Role
    areas: Sequence[str] | None
    key_tenant_id: str | None
    chosen_tenant_id: str | None
    csrf_token: str = field(repr=False)
    remaining_s: float

    def reads(self, area: str) -> bool:
        """Whether the key is for this area of the API (`/api/v1/{area}/…`)."""
        return self.areas is None or area in self.areas

    def may(self, area: str, role: Role) -> bool:
        at_least = api_keys.ROLES.index(self.role) >= api_keys.ROLES.index(role)
        return at_least and self.reads(area)

    def require(self, request: Request, area: str, role: Role = "viewer") -> None:
        """Raises HttpError 403, or 429 for one that acts too often."""
        if not self.reads(area):
            given = ", ".join(self.areas or ()) or "nothing"
            raise HttpError(403, f"the key {self.name!r} is for {given}, not for {area}")
        if not self.may(area, role):
            raise HttpError(
                403, f"the key {self.name!r} has the role {self.role}; this needs {role}"
            )
        if role != "viewer":
            http.allow(request, f"the key {self.name!r}")


@dataclass
class SignIns:
    """Sign-ins with a limit on attempts, per process."""

    pool: db.Pool
    lasts: timedelta
    attempts: Attempts = field(default_factory=Attempts)
    # A check takes a core for a moment, and what devices send comes first.
    _one_at_a_time: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def with_key(self, key: str, *, network: str) -> str:
        """The token of a new sign-in. Raises RejectedError or TooManyAttemptsError."""
        bounds = bounds_of_key(network)
        began_s = self._begin(bounds)
        async with db.transaction(self.pool) as tx:
            rows = await db.fetch_all(
                tx,
                "select api_key_id, name from api_keys "
                "where key_sha256 = %s and revoked_at is null",
                api_keys.digest(key.strip()),
            )
            token = await self._open(tx, *rows[0], how="key") if rows else None
        if token is None:
            await self._audit_failure("", how="key")
            raise RejectedError
        self.attempts.succeed(bounds, began_s)
        return token

    async def with_pin(self, name: str, pin: str, *, network: str) -> str:
        """The token of a new sign-in. Raises RejectedError or TooManyAttemptsError."""
        wanted = name.strip()[:_MAX_NAME].replace("\0", "")
        bounds = bounds_of_pin(wanted, network)
        began_s = self._begin(bounds)
        async with db.transaction(self.pool) as tx:
            rows = await db.fetch_all(
                tx,
                "select api_key_id, name, pin_bcrypt from api_keys "
                "where name = %s and revoked_at is null",
                wanted,
            )
        api_key_id, known_as, pin_bcrypt = rows[0] if rows else (None, None, None)
        # No connection is held here: the check takes long and the pool is small.
        async with self._one_at_a_time:
            right = await asyncio.to_thread(pins.matches, pin_bcrypt, pin.strip())
        if not right:
            await self._audit_failure(known_as or "", how="pin")
            raise RejectedError
        async with db.transaction(self.pool) as tx:
            token = await self._open(tx, api_key_id, known_as, how="pin")
        self.attempts.succeed(bounds, began_s)
        return token

    async def _audit_failure(self, name: str, *, how: str) -> None:
        """A wrong try for a name, or for none that there is: at most so many of each in an hour."""
        action = "console.sign_in_failed"
        async with db.transaction(self.pool) as tx:
            lately = await db.fetch_value(
                tx,
                "select count(*) from audit_log where at > fn_now() - interval '1 hour' "
                "and action = %s and subject = %s",
                action,
                name,
            )
            if lately < _FAILURES_AN_HOUR:
                await audit.note(tx, actor=name, action=action, subject=name, how=how)

    def _begin(self, bounds: Sequence[Bound]) -> float:
        began_s = time.monotonic()
        wait_s = self.attempts.begin(bounds, began_s)
        if wait_s is not None:
            raise TooManyAttemptsError(wait_s)
        return began_s

    def purge_job(self) -> Job:
        """Removes what has expired, but signs nobody out by a clock that has jumped."""
        expired = Retention("console_sign_ins", "expires_at", 0)
        return retention.job(self.pool, expired, name="console.sign_ins")

    async def _open(self, tx: db.Connection, api_key_id: UUID, name: str, *, how: str) -> str:
        token = new_token()
        await tx.execute(
            """
            insert into console_sign_ins (token_sha256, api_key_id, csrf_token, created_at,
              expires_at)
            values (%s, %s, %s, fn_now(), fn_now() + %s)
            """,
            (_digest(token), api_key_id, new_token(), self.lasts),
        )
        await audit.note(tx, actor=name, action="console.sign_in", subject=name, how=how)
        return token

    async def signed_in(self, request: Request) -> SignIn | None:
        """Who sent this, by the browser's cookie."""
        token = request.cookies.get(COOKIE)
        if token is None or len(token) != TOKEN_LENGTH:
            return None
        async with db.transaction(self.pool) as tx:
            matching = await db.fetch_as(
                tx,
                SignIn,
                """
                select s.token_sha256 as token_hash, k.name, k.role, k.areas,
                  k.tenant_id as key_tenant_id, s.tenant_id as chosen_tenant_id, s.csrf_token,
                  extract(epoch from s.expires_at - fn_now())::float8 as remaining_s
                from console_sign_ins s join api_keys k using (api_key_id)
                where s.token_sha256 = %s and s.expires_at > fn_now() and k.revoked_at is null
                """,
                (_digest(token),),
            )
        if not matching:
            return None
        http.authenticated(request, matching[0].name)
        return matching[0]

    async def require(self, request: Request) -> SignIn:
        """As `signed_in`. Raises HttpError 401 if it is nobody."""
        sign_in = await self.signed_in(request)
        if sign_in is None:
            raise HttpError(401, "sign in first")
        return sign_in

    async def choose_tenant(self, sign_in: SignIn, tenant_id: str) -> None:
        async with db.transaction(self.pool) as tx:
            await tx.execute(
                "update console_sign_ins set tenant_id = %s where token_sha256 = %s",
                (tenant_id, sign_in.token_hash),
            )
            if tenant_id != (sign_in.key_tenant_id or sign_in.chosen_tenant_id):
                action = "console.look_at_company"
                await audit.note(tx, actor=sign_in.name, action=action, subject=tenant_id)

    async def sign_out(self, sign_in: SignIn) -> None:
        name = sign_in.name
        async with db.transaction(self.pool) as tx:
            cursor = await tx.execute(
                "delete from console_sign_ins where token_sha256 = %s", (sign_in.token_hash,)
            )
            if cursor.rowcount:
                await audit.note(tx, actor=name, action="console.sign_out", subject=name)


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
