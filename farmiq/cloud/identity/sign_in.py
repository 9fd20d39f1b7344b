"""People sign in to the console and out of it.

browser --e-mail, password--> [sign_in] --cookie token--> browser; sign_ins has the token's hash

With a second factor the password gives a ticket for ten minutes, and only the code a sign-in:

browser --ticket, code--> [sign_in] --cookie token--> browser

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
from farmiq.cloud.identity import second_factor, session, store
from farmiq.cloud.identity.checks import Checks, TooBusyError
from farmiq.plumbing import attempts, db, http, retention
from farmiq.plumbing.attempts import Attempts, Bound
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.schedule import Job
from farmiq.plumbing.sealing import Sealer, SealError

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
_MAX_USER_AGENT = 300
_TICKET = "farmiq sign-in ticket"
TICKET_LASTS_S = 600


class RejectedError(Exception):
    """No person has this e-mail and this password; it never says which of the two is wrong."""


class TicketError(Exception):
    """The password was given too long ago, or it has changed since: sign in from the start."""


class NoKeyError(Exception):
    """The server cannot read second factors: FARMIQ_SECRETS_KEY_FILE is missing or another one."""


class TooManyAttemptsError(Exception):
    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many attempts: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Opened:
    """The cookies of the browser: `token` is the sign-in, `browser` proves that there was one."""

    token: str = field(repr=False)
    browser: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CodeNeeded:
    """The password was right; `ticket` proves that for ten minutes."""

    ticket: str = field(repr=False)


@dataclass
class SignIns:
    """Sign-ins with a limit on attempts, per process.

    Without `sealer` nobody who has a second factor gets in.
    """

    pool: db.Pool
    lasts: timedelta
    sealer: Sealer | None = None
    attempts: Attempts = field(default_factory=Attempts)
    checks: Checks = field(default_factory=Checks)

    async def sign_in(
        self,
        email: str,
        password: str,
        *,
        client: store.Client,
        browser: str | None,
        before: str | None = None,
    ) -> Opened | CodeNeeded:
        """`browser` is the cookie of an earlier sign-in, `before` one that this one replaces.

        Raises RejectedError, TooManyAttemptsError, TooBusyError or NoKeyError.
        """
        name, network = store.normal_email(email), client.network
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
            await self._audit_failure(user.user_id if user else None, "password", network)
            raise RejectedError
        self.attempts.succeed(bounds, began_s)
        if user.has_second_factor:
            return CodeNeeded(self._ticket(user))
        async with db.transaction(self.pool) as tx:
            return await self._open(tx, user, client=client, method="password", before=before)

    async def sign_in_with_code(
        self, ticket: str, given: str, *, client: store.Client, before: str | None = None
    ) -> Opened:
        """`given` is a code of the app, or a recovery code.

        Raises TicketError, RejectedError, TooManyAttemptsError or NoKeyError.
        """
        user = await self._user_of(ticket)
        try:
            async with (
                self.code_attempt(user.user_id, client.network),
                db.transaction(self.pool) as tx,
            ):
                method = await self.check_code(tx, user.user_id, given)
                return await self._open(tx, user, client=client, method=method, before=before)
        except RejectedError:
            await self._audit_failure(user.user_id, "code", client.network)
            raise

    async def _open(
        self,
        tx: db.Connection,
        user: store.User,
        *,
        client: store.Client,
        method: store.Method,
        before: str | None,
    ) -> Opened:
        await store.audit(
            tx, user.user_id, actor=user.email, action="sign_in",
            detail=f"{method} {client.network}",
        )  # fmt: skip
        return await self.open(tx, user, client=client, method=method, before=before)

    async def _audit_failure(self, user_id: UUID | None, what: str, network: str) -> None:
        async with db.transaction(self.pool) as tx:
            await store.audit_failure(tx, user_id, detail=f"{what} {network}")

    @asynccontextmanager
    async def code_attempt(self, user_id: UUID, network: str) -> AsyncIterator[None]:
        """Count an attempt to give a code; it is forgiven unless RejectedError comes out.

        Raises TooManyAttemptsError.
        """
        began_s = time.monotonic()
        bounds = attempts.bounds_of_code(str(user_id), network)
        wait_s = self.attempts.begin(bounds, began_s)
        if wait_s is not None:
            raise TooManyAttemptsError(wait_s)
        try:
            yield
        except RejectedError:
            raise
        except BaseException:
            self.attempts.withdraw(bounds, began_s)
            raise
        self.attempts.succeed(bounds, began_s)

    async def check_code(self, tx: db.Connection, user_id: UUID, given: str) -> store.Method:
        """Use up a code of the app or a recovery code; says which it was.

        Raises RejectedError if it is neither, or was used before; NoKeyError.
        """
        factor = await store.second_factor(tx, user_id)
        if factor is None or factor.confirmed_at is None:
            raise RejectedError
        step = second_factor.accepted_step(
            self.secret(factor), given, at_s=time.time(), last_step=factor.last_step
        )
        if step is not None:
            await store.use_step(tx, user_id, step)
            return "code"
        code_hash = second_factor.recovery_hash(user_id, given)
        if not await store.use_recovery_code(tx, user_id, code_hash):
            raise RejectedError
        user = await store.user(tx, user_id)
        await store.audit(
            tx,
            user_id,
            actor=user.email if user else "",
            action="recovery_code_used",
            detail=f"{factor.codes_left - 1} left",
        )
        return "recovery_code"

    def secret(self, factor: store.SecondFactor) -> bytes:
        """The secret that the person's app has. Raises NoKeyError."""
        if self.sealer is None:
            raise NoKeyError("FARMIQ_SECRETS_KEY_FILE is not set")
        try:
            return self.sealer.open(factor.secret, bound_to=bound_to(factor.user_id))
        except SealError as error:
            raise NoKeyError(str(error)) from error

    def _ticket(self, user: store.User) -> str:
        if self.sealer is None:
            raise NoKeyError("FARMIQ_SECRETS_KEY_FILE is not set")
        ends_at_s = int(time.time()) + TICKET_LASTS_S
        signed = f"{_TICKET} {user.user_id} {ends_at_s} {_ticket_of(user)}"
        return self.sealer.token(signed.encode())

    async def _user_of(self, ticket: str) -> store.User:
        if self.sealer is None:
            raise NoKeyError("FARMIQ_SECRETS_KEY_FILE is not set")
        try:
            content = self.sealer.content(ticket).decode()
            begin, user_id, ends_at_s, proof = content.rsplit(" ", 3)
            is_over = begin != _TICKET or int(ends_at_s) < time.time()
            wanted = UUID(user_id)
        except (SealError, ValueError):
            raise TicketError from None
        async with db.transaction(self.pool) as connection:
            user = await store.user(connection, wanted)
        if is_over or user is None or not hmac.compare_digest(proof, _ticket_of(user)):
            raise TicketError
        return user

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
        sign_in = await self.find(
            request.cookies.get(COOKIE) if token is None else token, client=client(request)
        )
        if sign_in is not None:
            http.authenticated(request, sign_in.email)
        return sign_in

    async def require(self, request: Request, *, even_if_incomplete: bool = False) -> store.SignIn:
        """As `signed_in`. Raises HttpError 401 if it is nobody.

        Raises HttpError 403 for somebody who has to set a password or a second factor first.
        """
        sign_in = await self.signed_in(request)
        if sign_in is None:
            raise not_signed_in()
        if sign_in.required_step is not None and not even_if_incomplete:
            raise IncompleteError(sign_in.required_step)
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

    async def find(
        self, token: str | None, *, client: store.Client | None = None
    ) -> store.SignIn | None:
        if token is None or len(token) != store.TOKEN_LENGTH:
            return None
        async with db.transaction(self.pool) as connection:
            return await store.find_sign_in(connection, token, client=client)

    async def choose_company(self, sign_in: store.SignIn, company_id: UUID) -> None:
        """Store the company that this sign-in looks at.

        Raises NotYourCompanyError or NoSuchCompanyError.
        """
        async with session.as_person(self.pool, sign_in.token) as connection:
            await session.choose(connection, company_id)
        async with db.transaction(self.pool) as connection:
            await store.store_company(connection, sign_in, company_id=company_id)

    def purge_job(self) -> Job:
        """Removes what has expired, but signs nobody out by a clock that has jumped."""
        return retention.job(self.pool, Retention("sign_ins", "expires_at", 0), name="sign_ins")

    async def sign_out(self, sign_in: store.SignIn) -> None:
        async with db.transaction(self.pool) as tx:
            if await store.delete_sign_in(tx, sign_in.token_hash):
                await store.audit(tx, sign_in.user_id, actor=sign_in.email, action="sign_out")

    async def open(
        self,
        tx: db.Connection,
        user: store.User,
        *,
        client: store.Client,
        method: store.Method,
        before: str | None = None,
    ) -> Opened:
        """A new sign-in under a new token; the one with the token `before` ends."""
        token = store.new_token()
        if before is not None:
            await store.delete_sign_in(tx, store.hash_token(before))
        await store.insert_sign_in(
            tx,
            user,
            token_hash=store.hash_token(token),
            csrf_token=store.new_token(),
            lasts=self.lasts,
            client=client,
            method=method,
        )
        return Opened(token, browser_cookie(user))


def client(request: Request) -> store.Client:
    """Where a request comes from, and the browser as it names itself."""
    agent = request.headers.get("user-agent", "")[:_MAX_USER_AGENT]
    return store.Client(http.network(request), "".join(filter(str.isprintable, agent)))


def bound_to(user_id: UUID) -> str:
    """What the secret of a second factor is sealed for."""
    return f"second factor {user_id}"


class IncompleteError(HttpError):
    """Signed in, but the company or an admin wants something of the person first."""

    location = "/settings/account"

    def __init__(self, step: store.Step) -> None:
        what = "choose a password of your own" if step == "password" else "set up a second factor"
        super().__init__(403, f"{what} first, on the page {self.location}")


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


def _ticket_of(user: store.User) -> str:
    """Ends with the password, and cannot be used for another person."""
    signed = f"farmiq ticket {user.user_id}".encode()
    return hmac.new(user.password_hash.encode(), signed, "sha256").hexdigest()


def _signature(user: store.User, browser: str) -> str:
    signed = f"farmiq browser {user.user_id} {browser}".encode()
    return hmac.new(user.password_hash.encode(), signed, "sha256").hexdigest()
