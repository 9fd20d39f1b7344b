"""What people do to their own account: password, second factor, sessions, language."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from farmiq.cloud.identity import passwords, second_factor, store
from farmiq.cloud.identity.sign_in import (
    NoKeyError,
    Opened,
    RejectedError,
    SignIns,
    TooManyAttemptsError,
    bound_to,
)
from farmiq.cloud.identity.store import Client, SignIn
from farmiq.messages.wording import worded
from farmiq.plumbing import attempts, db

ISSUER = "FarmIQ"
MAX_SESSIONS = 100


class AlreadyOnError(Exception):
    """The person has a second factor already."""


class NoSetupError(Exception):
    """There is no second factor that waits for its first code."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A secret that waits for its first code: as text, and as an app reads it from a QR code."""

    secret: str
    address: str


@dataclass(frozen=True, slots=True)
class Overview:
    sessions: list[store.Session]
    second_factor: store.SecondFactor | None
    # From which role on the company wants one.
    rule: str | None


@dataclass(frozen=True)
class Account:
    sign_ins: SignIns

    async def overview(self, person: SignIn) -> Overview:
        async with db.transaction(self.sign_ins.pool) as tx:
            user = await store.user(tx, person.user_id)
            return Overview(
                await store.sessions(tx, person.user_id, limit=MAX_SESSIONS),
                await store.second_factor(tx, person.user_id),
                await store.second_factor_rule(tx, user.company_id) if user else None,
            )

    async def change_password(
        self, person: SignIn, current: str, new: str, *, client: Client
    ) -> Opened:
        """Every session ends; this browser gets a new one.

        Raises RejectedError if the current password is another one, ValueError if the new one
        cannot be one, TooManyAttemptsError or TooBusyError.
        """
        if new == current:
            raise ValueError(worded("the new password is the old one: choose another one"))
        async with self._with_password(person, current, client=client) as user:
            new_hash = await asyncio.to_thread(passwords.hashed, new)
        async with db.transaction(self.sign_ins.pool) as tx:
            await self._still(tx, user)
            await store.set_password(tx, user.user_id, new_hash, must_change=False)
            method = await store.method(tx, person.token_hash)
            ended = await store.delete_sign_ins(tx, user.user_id)
            await store.audit(
                tx, user.user_id, actor=user.email, action="password",
                detail=f"{ended - 1} other sessions ended",
            )  # fmt: skip
            changed = await store.user(tx, user.user_id) or user
            return await self.sign_ins.open(tx, changed, client=client, method=method)

    async def begin_second_factor(self, person: SignIn, current: str, *, client: Client) -> None:
        """Make a secret; `setup` shows it until a first code confirms it.

        Raises RejectedError for a wrong password, AlreadyOnError, NoKeyError,
        TooManyAttemptsError or TooBusyError.
        """
        sealer = self.sign_ins.sealer
        if sealer is None:
            raise NoKeyError("FARMIQ_SECRETS_KEY_FILE is not set")
        async with self._with_password(person, current, client=client) as user:
            if user.has_second_factor:
                raise AlreadyOnError
        secret = secrets.token_bytes(second_factor.SECRET_BYTES)
        sealed = sealer.seal(secret, bound_to=bound_to(user.user_id))
        async with db.transaction(self.sign_ins.pool) as tx:
            await self._still(tx, user)
            await store.begin_second_factor(tx, user.user_id, sealed)

    async def setup(self, person: SignIn) -> Setup | None:
        """The secret that waits for its first code. Raises NoKeyError."""
        async with db.transaction(self.sign_ins.pool) as tx:
            factor = await store.second_factor(tx, person.user_id)
        if factor is None or factor.confirmed_at is not None:
            return None
        secret = self.sign_ins.secret(factor)
        address = second_factor.address(secret, email=person.email, issuer=ISSUER)
        return Setup(second_factor.secret_text(secret), address)

    async def confirm_second_factor(
        self, person: SignIn, code: str, *, client: Client
    ) -> tuple[Opened, list[str]]:
        """Turn it on: every session ends, this browser gets a new one. Also the recovery codes.

        Raises NoSetupError, RejectedError, NoKeyError or TooManyAttemptsError.
        """
        async with self._code(person, client) as tx:
            factor = await store.second_factor(tx, person.user_id)
            user = await store.user(tx, person.user_id)
            if user is None or factor is None or factor.confirmed_at is not None:
                raise NoSetupError
            step = second_factor.accepted_step(
                self.sign_ins.secret(factor), code, at_s=time.time(), last_step=0
            )
            if step is None:
                raise RejectedError
            codes, hashes = _recovery_codes(person.user_id)
            await store.confirm_second_factor(tx, person.user_id, step=step, recovery_hashes=hashes)
            await store.delete_sign_ins(tx, person.user_id)
            await store.audit(tx, person.user_id, actor=person.email, action="second_factor_on")
            opened = await self.sign_ins.open(tx, user, client=client, method="code")
            return opened, codes

    async def renew_recovery_codes(self, person: SignIn, code: str, *, client: Client) -> list[str]:
        """Ten new codes; the old ones are good no more.

        Raises RejectedError, NoKeyError or TooManyAttemptsError.
        """
        async with self._code(person, client) as tx:
            await self.sign_ins.check_code(tx, person.user_id, code)
            codes, hashes = _recovery_codes(person.user_id)
            await store.set_recovery_hashes(tx, person.user_id, hashes)
            await store.audit(tx, person.user_id, actor=person.email, action="recovery_codes")
            return codes

    async def remove_second_factor(self, person: SignIn, code: str, *, client: Client) -> None:
        """Raises RejectedError, NoKeyError or TooManyAttemptsError."""
        async with self._code(person, client) as tx:
            await self.sign_ins.check_code(tx, person.user_id, code)
            await store.delete_second_factor(tx, person.user_id)
            await store.audit(tx, person.user_id, actor=person.email, action="second_factor_off")

    async def end_session(self, person: SignIn, session_id: UUID) -> bool:
        """Whether there was such a session of this person."""
        async with db.transaction(self.sign_ins.pool) as tx:
            ended = await store.delete_sign_ins(tx, person.user_id, only=session_id)
            if ended:
                await store.audit(tx, person.user_id, actor=person.email, action="end_session")
            return ended > 0

    async def end_other_sessions(self, person: SignIn) -> int:
        async with db.transaction(self.sign_ins.pool) as tx:
            ended = await store.delete_sign_ins(tx, person.user_id, but=person.session_id)
            if ended:
                await store.audit(
                    tx, person.user_id, actor=person.email, action="end_other_sessions",
                    detail=f"{ended} ended",
                )  # fmt: skip
            return ended

    async def set_language(self, person: SignIn, language: str | None) -> None:
        async with db.transaction(self.sign_ins.pool) as tx:
            await store.set_language(tx, person.user_id, language)
            await store.audit(
                tx, person.user_id, actor=person.email, action="language", detail=language or ""
            )

    async def set_second_factor_rule(
        self, person: SignIn, company_id: UUID, role: str | None
    ) -> None:
        """The caller has checked that the person is an admin of this company."""
        async with db.transaction(self.sign_ins.pool) as tx:
            await store.set_second_factor_rule(tx, company_id, role)
            await store.audit(
                tx, person.user_id, actor=person.email, action="second_factor_rule",
                detail=f"{role or 'nobody'} in {company_id}",
            )  # fmt: skip

    @asynccontextmanager
    async def _with_password(
        self, person: SignIn, current: str, *, client: Client
    ) -> AsyncIterator[store.User]:
        """The person, who has given their current password; a slot of checks is held inside."""
        checks, counted = self.sign_ins.checks, self.sign_ins.attempts
        bounds, began_s = attempts.bounds_of_password(str(person.user_id)), time.monotonic()
        wait_s = counted.begin(bounds, began_s)
        if wait_s is not None:
            raise TooManyAttemptsError(wait_s)
        async with db.transaction(self.sign_ins.pool) as tx:
            user = await store.user(tx, person.user_id)
        if user is None:
            raise RejectedError
        async with checks.slot(client.network, known=True):
            if not await checks.matches(user.password_hash, current):
                raise RejectedError
            counted.succeed(bounds, began_s)
            yield user

    @asynccontextmanager
    async def _code(self, person: SignIn, client: Client) -> AsyncIterator[db.Connection]:
        """A transaction in which the person gives a code: an attempt that counts."""
        async with (
            self.sign_ins.code_attempt(person.user_id, client.network),
            db.transaction(self.sign_ins.pool) as tx,
        ):
            yield tx

    async def _still(self, tx: db.Connection, user: store.User) -> None:
        """Locks the person. Raises RejectedError if their password has changed meanwhile."""
        await store.person(tx, user.user_id, company_id=user.company_id)
        now = await store.user(tx, user.user_id)
        if now is None or now.password_hash != user.password_hash:
            raise RejectedError


def _recovery_codes(user_id: UUID) -> tuple[list[str], list[bytes]]:
    random = secrets.token_bytes(second_factor.RECOVERY_RANDOM_BYTES)
    codes = second_factor.recovery_codes(random)
    return codes, [second_factor.recovery_hash(user_id, code) for code in codes]
