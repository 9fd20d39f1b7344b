"""Who calls and what they may: a sign-in of the console, its cookie or `Authorization: Bearer …`.

What people read, row level security decides. What they write is checked in the same transaction,
and then written as the service into the company that the database says they look at.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID

import psycopg
from fastapi import Request

from farmiq.cloud.camera.accounts import store
from farmiq.cloud.identity import session
from farmiq.cloud.identity.accounts import ROLES
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import db, http
from farmiq.plumbing.http import HttpError

TRIES = 5
# What the database says of an order that it does not carry out, and what we answer.
_MET = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_NOT_THERE = (psycopg.errors.NoDataFound, psycopg.errors.InsufficientPrivilege)
_NOT_NOW = (psycopg.errors.UniqueViolation, psycopg.errors.ObjectNotInPrerequisiteState)
_WRONG = (psycopg.errors.ForeignKeyViolation, psycopg.errors.CheckViolation, psycopg.DataError)
# Two who want the same are told by the name of what they would have twice.
_TAKEN = {
    "pilot_programs_name_idx": "a program of this company has that name",
    "sites_name_idx": "a site of this company has that name",
    "devices_name_idx": "a camera of this company has that name",
    "devices_company_mac_idx": "a camera of this company that is not retired has that MAC address",
}


class Met(Exception):  # noqa: N818 - an answer, not a mistake
    """Two transactions wanted the same, and the database ended this one; nothing is written."""


Endpoint = Callable[..., Awaitable[Any]]


def again(endpoint: Endpoint) -> Endpoint:
    """Tries once more, some times, what met another transaction."""

    @wraps(endpoint)
    async def tried(**named: Any) -> Any:
        for _ in range(TRIES):
            try:
                return await endpoint(**named)
            except Met:
                continue
        raise HttpError(503, "others change the same; try again", retry_after_s=1)

    return tried


@dataclass(frozen=True, slots=True)
class Caller:
    """A transaction in a person's name; `company_id` is the one they look at."""

    connection: db.Connection
    company_id: UUID
    email: str
    is_super_admin: bool

    async def become_service(self) -> db.Connection:
        """For what the database does not let people write themselves."""
        await self.connection.execute("reset role")
        return self.connection


@dataclass
class People:
    pool: db.Pool
    sign_ins: SignIns

    @asynccontextmanager
    async def caller(
        self, request: Request, company: UUID | None, *, least: str = "viewer"
    ) -> AsyncIterator[Caller]:
        """Raises HttpError 401, 403, 404, 503, and 429 for who acts too often; or Met."""
        try:
            found = await self.sign_ins.signed_in(request)
            if found is None:
                raise HttpError(401, "sign in first")
            if least != "viewer":
                http.allow(request, found.email)
            async with session.as_person(self.pool, found.token, company_id=company) as connection:
                company_id = await store.company(connection)
                if least != "viewer":
                    await _check_role(connection, found.user_id, company_id, least=least)
                yield Caller(connection, company_id, found.email, found.is_super_admin)
        except session.SignedOutError:
            raise HttpError(401, "sign in first") from None
        except (session.NotYourCompanyError, session.NoSuchCompanyError):
            raise HttpError(404, "there is no such company") from None
        except (*db.UNAVAILABLE, psycopg.Error) as error:
            raise _refusal(error) from error


async def _check_role(
    connection: db.Connection, user_id: UUID, company_id: UUID, *, least: str
) -> None:
    """A super admin may all, in whichever company; their own membership is in one of them."""
    await connection.execute("reset role")
    role = await store.role(connection, user_id, company_id)
    await connection.execute("set local role authenticated")
    if role is None or ROLES.index(role) < ROLES.index(least):
        above = " or ".join(ROLES[ROLES.index(least) :])
        raise HttpError(403, f"this is for people whose role is {above}")


def _refusal(error: Exception) -> Exception:
    """What comes too late goes first: to psycopg it is as operational as a database away."""
    said = db.first_line(error)
    if isinstance(error, _MET):
        return Met(said)
    if isinstance(error, _NOT_THERE):
        return HttpError(404, said)
    if isinstance(error, _NOT_NOW):
        return HttpError(409, _TAKEN.get(error.diag.constraint_name or "", said))
    if isinstance(error, _WRONG):
        wrong = [{"field": "body", "reason": said}]
        return HttpError(400, "the request is not valid", details=wrong)
    if isinstance(error, db.UNAVAILABLE):
        return HttpError(503, "the database is away; try again", retry_after_s=5)
    return error
