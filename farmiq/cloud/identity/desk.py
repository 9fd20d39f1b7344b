"""The desk where people sign in and out of the console.

browser --e-mail, password--> [desk] --cookie token--> browser; sign_ins keeps the token's hash
"""

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from farmiq.cloud.identity import passwords, session, store
from farmiq.cloud.identity.attempts import Attempts
from farmiq.plumbing import db

_TOKEN_BYTES = 32
_TOKEN_LENGTH = 43  # of 32 bytes in URL-safe base64
_LONGEST_EMAIL = 254


class Refused(Exception):  # noqa: N818 - an answer, not a mistake
    """No person of this e-mail and this password. It never says which of the two was wrong."""


class TooManyAttempts(Exception):  # noqa: N818 - an answer, not a mistake
    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many attempts: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass
class Desk:
    """Slows down guessing per process; hashes few passwords at a time, each takes 64 MiB."""

    pool: db.Pool
    lasts: timedelta
    attempts: Attempts = field(default_factory=Attempts)
    _hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))

    async def sign_in(self, email: str, password: str) -> str:
        """The token for the cookie. Raises Refused or TooManyAttempts."""
        name = normal_email(email)
        wait_s = self.attempts.begin(name, time.monotonic())
        if wait_s is not None:
            raise TooManyAttempts(wait_s)
        user = await self._proven(name, password)
        self.attempts.forget(name)
        return await self._open(user)

    async def find(self, token: str | None) -> store.SignIn | None:
        if token is None or len(token) != _TOKEN_LENGTH:
            return None
        async with db.transaction(self.pool) as connection:
            return await store.find_sign_in(connection, token, token_hash=token_hash(token))

    async def look_at(self, found: store.SignIn, company_id: UUID) -> None:
        """Keep the company that this sign-in looks at. Raises NotYours or NoSuchCompany."""
        async with session.as_person(self.pool, found.token) as connection:
            await session.choose(connection, company_id)
        async with db.transaction(self.pool) as connection:
            await store.keep_choice(connection, found.token_hash, company_id=company_id)

    async def sign_out(self, found: store.SignIn) -> None:
        async with db.transaction(self.pool) as connection:
            await store.forget_sign_in(connection, found.token_hash)

    async def _proven(self, email: str, password: str) -> store.User:
        async with db.transaction(self.pool) as connection:
            user = await store.find_user(connection, email)
        # No connection is held meanwhile: hashing takes long and the pool is small.
        async with self._hashing:
            known = await asyncio.to_thread(
                passwords.matches, user.password_hash if user else None, password
            )
        if user is None or not known:
            raise Refused
        return user

    async def _open(self, user: store.User) -> str:
        token = new_token()
        async with db.transaction(self.pool) as connection:
            await store.forget_expired(connection)
            await store.keep_sign_in(
                connection,
                user,
                token_hash=token_hash(token),
                csrf_token=new_token(),
                lasts=self.lasts,
            )
        return token


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def normal_email(email: str) -> str:
    """As users.email holds it; what cannot be an e-mail becomes one that nobody has."""
    trimmed = email.strip().lower()
    return "" if len(trimmed) > _LONGEST_EMAIL or "\0" in trimmed else trimmed
