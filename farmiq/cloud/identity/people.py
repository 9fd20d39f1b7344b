"""Who calls, by a sign-in of the console: its cookie or `Authorization: Bearer …`.

Row level security decides what people read. What they write is checked in the same transaction,
and then written as the service into their active company.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, Any, ClassVar, NamedTuple
from uuid import UUID

import psycopg
from fastapi import Depends, Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import Handler
from farmiq.cloud.identity import store
from farmiq.cloud.identity.sign_in import SIGN_IN, SignIns
from farmiq.messages.wording import worded
from farmiq.plumbing import db, http
from farmiq.plumbing.http import HttpError

ATTEMPTS = 5
NO_COMPANY = {404: "NOT_FOUND: there is no such company, or not for you."}
MISSING = "NOT_FOUND: there is none, or not in the company that is looked at."
FORBIDDEN = {403: "FORBIDDEN: the person's role does not reach.", 429: http.ERRORS[429]}
# Errors of the database, by the answer to them.
_CONFLICT = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_NOT_FOUND = (psycopg.errors.NoDataFound, psycopg.errors.InsufficientPrivilege)
_NOT_POSSIBLE = (psycopg.errors.UniqueViolation, psycopg.errors.ObjectNotInPrerequisiteState)
_INVALID = (psycopg.errors.ForeignKeyViolation, psycopg.errors.CheckViolation, psycopg.DataError)

Company = Annotated[
    UUID | None, Field(description="For super admins: another company than the one they chose.")
]


class CompanyFilter(api.Filter):
    company: Company = None


class Visit(NamedTuple):
    """A request, and the company that it is about if it names one."""

    request: Request
    company: UUID | None


async def _visit(request: Request, query: Annotated[CompanyFilter, Query()]) -> Visit:
    return Visit(request, query.company)


AVisit = Annotated[Visit, Depends(_visit)]


class ConcurrentChangeError(Exception):
    """The database ended this transaction because of another one; nothing is written."""


Endpoint = Callable[..., Awaitable[Any]]


def with_retries(endpoint: Endpoint) -> Endpoint:
    """Repeats a request that met a concurrent change."""

    @wraps(endpoint)
    async def repeated(**arguments: Any) -> Any:
        for _ in range(ATTEMPTS):
            try:
                return await endpoint(**arguments)
            except ConcurrentChangeError:
                continue
        raise HttpError(503, worded("others change the same; try again"), retry_after_s=1)

    return repeated


@dataclass(frozen=True, slots=True)
class Caller:
    """A transaction as a person, with their active company."""

    connection: db.Connection
    company_id: UUID
    tenant_id: str
    email: str
    is_super_admin: bool

    async def become_service(self) -> db.Connection:
        """For writes that the database does not allow to people."""
        await self.connection.execute("reset role")
        return self.connection


@dataclass
class People:
    """`not_unique` is what a caller reads if a unique constraint of this name is violated."""

    sign_ins: SignIns
    not_unique: Mapping[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def caller(
        self, request: Request, company: UUID | None, *, least: str = "viewer"
    ) -> AsyncIterator[Caller]:
        """Raises HttpError 401, 403, 404, 429 or 503, or ConcurrentChangeError."""
        try:
            person = await self.sign_ins.require(request)
            if least != "viewer":
                http.allow(request, person.email)
            async with self.sign_ins.as_person(person, company_id=company) as connection:
                company_id, tenant_id = await store.active_company(connection)
                if least != "viewer":
                    await _check_role(connection, person.user_id, company_id, least=least)
                yield Caller(connection, company_id, tenant_id, person.email, person.is_super_admin)
        except (*db.UNAVAILABLE, psycopg.Error) as error:
            raise self._error_response(error) from error

    def _error_response(self, error: Exception) -> Exception:
        """Conflicts come first: psycopg's class of them is also one of unavailable databases."""
        reason = db.first_line(error)
        if isinstance(error, _CONFLICT):
            return ConcurrentChangeError(reason)
        if isinstance(error, _NOT_FOUND):
            return HttpError(404, reason)
        if isinstance(error, _NOT_POSSIBLE):
            return HttpError(409, self.not_unique.get(error.diag.constraint_name or "", reason))
        if isinstance(error, _INVALID):
            details = [{"field": "body", "reason": reason}]
            return HttpError(400, "the request is not valid", details=details)
        if isinstance(error, db.UNAVAILABLE):
            return HttpError(503, "the database is away; try again", retry_after_s=5)
        return error


def route(
    method: str, path: str, model: Any = None, **options: Any
) -> Callable[[Handler], Handler]:
    """A route for people who are signed in; `options` as of api.route."""
    return api.route(method, path, model, dependencies=[SIGN_IN], **options)


@dataclass
class PeopleRoutes(api.Routes):
    """The HTTP API of a service whose handlers ask `people` who calls."""

    not_unique: ClassVar[Mapping[str, str]] = {}

    sign_ins: SignIns

    def __post_init__(self) -> None:
        self.people = People(self.sign_ins, self.not_unique)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_retries(handler)


async def _check_role(
    connection: db.Connection, user_id: UUID, company_id: UUID, *, least: str
) -> None:
    """A super admin may do everything in every company."""
    await connection.execute("reset role")
    role = await store.role(connection, user_id, company_id)
    await connection.execute("set local role authenticated")
    if role is None or not store.is_at_least(role, least):
        roles = " or ".join(store.RANKS[store.RANKS.index(least) : -1])
        raise HttpError(403, worded("this is for people whose role is %(roles)s", roles=roles))
