"""People sign in to the console and out of it.

browser --e-mail, password--> [sign_in] --cookie token--> browser; sign_ins has the token's hash

A browser that has signed in also gets a cookie that proves this. It gives no access, but attempts
of this browser are counted separately, so that attempts of others cannot lock the person out.
"""

import hmac
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from fastapi import Depends, Request

from farmiq import api
from farmiq.cloud.identity import session, store
from farmiq.cloud.identity.checks import Checks, TooBusyError
from farmiq.plumbing import attempts, db, http
from farmiq.plumbing.attempts import Attempts, Bound
from farmiq.plumbing.http import HttpError

COOKIE = "farmiq_sign_in"
# How people authenticate at the API, for the OpenAPI document.
SIGN_IN = Depends(
    api.Documented(
        "signIn",
        "signInToken",
        errors={401: "UNAUTHENTICATED: nobody is signed in.", 503: http.ERRORS[503]},
    )
)
_BROWSER_ID_BYTES = 16
_MAX_COOKIE = 128


class RejectedError(Exception):
    """No person has this e-mail and this password; it never says which of the two is wrong."""


class TooManyAttemptsError(Exception):
    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many attempts: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Opened:
    """The cookies of the browser: `token` is the sign-in, `browser` proves that there was one."""

    token: str = field(repr=False)
    browser: str = field(repr=False)


@dataclass
class SignIns:
    """Sign-ins with a limit on attempts, per process."""

    pool: db.Pool
    lasts: timedelta
    attempts: Attempts = field(default_factory=Attempts)
    checks: Checks = field(default_factory=Checks)

    async def sign_in(
        self, email: str, password: str, *, network: str, browser: str | None
    ) -> Opened:
        """`network` is where the request comes from, `browser` its cookie of an earlier sign-in.

        Raises RejectedError, TooManyAttemptsError or TooBusyError.
        """
        name = store.normal_email(email)
        began_s = time.monotonic()
        # An unknown browser waits for a slot before the database is used.
        user = await self._user(name) if browser else None
        known = browser_id(user, browser)
        bounds = self._begin(name, network, known, began_s)
        is_known = known is not None and bounds == attempts.bounds_of_browser(known)
        queue = bounds[0].key if is_known else network
        try:
            async with self.checks.slot(queue, known=is_known):
                user = user or await self._user(name)
                # No connection is held here: the check takes long and the pool is small.
                matches = await self.checks.matches(user.password_hash if user else None, password)
        except TooBusyError:
            self.attempts.withdraw(bounds, began_s)
            raise
        if user is None or not matches:
            raise RejectedError
        self.attempts.succeed(bounds, began_s)
        return Opened(await self._open(user), browser_cookie(user))

    async def _user(self, email: str) -> store.User | None:
        async with db.transaction(self.pool) as connection:
            return await store.find_user(connection, email)

    def _begin(self, email: str, network: str, known: str | None, now_s: float) -> list[Bound]:
        """Count the attempt for a known browser; if unknown or over its limit, for the network."""
        if known is not None:
            own = attempts.bounds_of_browser(known)
            if self.attempts.begin(own, now_s) is None:
                return own
        bounds = attempts.bounds_of_network(email, network)
        wait_s = self.attempts.begin(bounds, now_s)
        if wait_s is not None:
            raise TooManyAttemptsError(wait_s)
        return bounds

    async def signed_in(self, request: Request) -> store.SignIn | None:
        """Who sent this: by a token (`Authorization: Bearer …`), else by the browser's cookie."""
        token = http.bearer(request)
        sign_in = await self.find(request.cookies.get(COOKIE) if token is None else token)
        if sign_in is not None:
            http.authenticated(request, sign_in.email)
        return sign_in

    async def require(self, request: Request) -> store.SignIn:
        """As `signed_in`. Raises HttpError 401 if it is nobody."""
        sign_in = await self.signed_in(request)
        if sign_in is None:
            raise not_signed_in()
        return sign_in

    @asynccontextmanager
    async def as_person(
        self, sign_in: store.SignIn, *, company_id: UUID | None = None
    ) -> AsyncIterator[db.Connection]:
        """A transaction with this person's rights, for HTTP. Raises HttpError 401 or 404."""
        try:
            async with session.as_person(
                self.pool, sign_in.token, company_id=company_id
            ) as connection:
                yield connection
        except session.SignedOutError:
            raise not_signed_in() from None
        # Only a super admin may learn whether a company exists.
        except (session.NotYourCompanyError, session.NoSuchCompanyError):
            raise no_such_company() from None

    async def find(self, token: str | None) -> store.SignIn | None:
        if token is None or len(token) != store.TOKEN_LENGTH:
            return None
        async with db.transaction(self.pool) as connection:
            return await store.find_sign_in(connection, token)

    async def choose_company(self, sign_in: store.SignIn, company_id: UUID) -> None:
        """Store the company that this sign-in looks at.

        Raises NotYourCompanyError or NoSuchCompanyError.
        """
        async with session.as_person(self.pool, sign_in.token) as connection:
            await session.choose(connection, company_id)
        async with db.transaction(self.pool) as connection:
            await store.store_company(connection, sign_in.token_hash, company_id=company_id)

    async def sign_out(self, sign_in: store.SignIn) -> None:
        async with db.transaction(self.pool) as connection:
            await store.delete_sign_in(connection, sign_in.token_hash)

    async def _open(self, user: store.User) -> str:
        token = store.new_token()
        async with db.transaction(self.pool) as connection:
            await store.delete_expired(connection)
            await store.insert_sign_in(
                connection,
                user,
                token_hash=store.hash_token(token),
                csrf_token=store.new_token(),
                lasts=self.lasts,
            )
        return token


def not_signed_in() -> HttpError:
    return HttpError(401, "sign in first")


def no_such_company() -> HttpError:
    return HttpError(404, "there is no such company")


def browser_cookie(user: store.User) -> str:
    """Proof of a sign-in of this person; signed with the password hash, so it ends with it."""
    browser = secrets.token_urlsafe(_BROWSER_ID_BYTES)
    return f"{browser}.{_signature(user, browser)}"


def browser_id(user: store.User | None, cookie: str | None) -> str | None:
    """The id of the browser, if this person signed in from it with the current password."""
    if user is None or cookie is None or len(cookie) > _MAX_COOKIE or not cookie.isascii():
        return None
    browser, _, signature = cookie.partition(".")
    return browser if hmac.compare_digest(signature, _signature(user, browser)) else None


def _signature(user: store.User, browser: str) -> str:
    signed = f"farmiq browser {user.user_id} {browser}".encode()
    return hmac.new(user.password_hash.encode(), signed, "sha256").hexdigest()
