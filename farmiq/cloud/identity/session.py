"""A transaction with a person's rights: row level security decides what it sees (C-76).

The database itself finds the person by the token of the sign-in; the service cannot name one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg

from farmiq.plumbing import db


class SignedOutError(Exception):
    """The sign-in has ended meanwhile."""


class NotYourCompanyError(Exception):
    """A regular user asked for another company than their own."""


class NoSuchCompanyError(Exception):
    """A super admin asked for a company that is not there."""


@asynccontextmanager
async def as_person(
    pool: db.Pool, token: str, *, company_id: UUID | None = None
) -> AsyncIterator[db.Connection]:
    """In the company that the sign-in has chosen, or in the one given if the person may see it.

    Raises SignedOutError, NotYourCompanyError or NoSuchCompanyError.
    """
    async with db.transaction(pool) as connection:
        await connection.execute("set local role authenticated")
        try:
            await connection.execute("select begin_session(%s)", (token,))
        except psycopg.errors.InvalidAuthorizationSpecification as error:
            raise SignedOutError(db.first_line(error)) from error
        if company_id is not None:
            await choose(connection, company_id)
        yield connection


async def choose(connection: db.Connection, company_id: UUID) -> None:
    """Set the company for the rest of this transaction.

    Raises NotYourCompanyError or NoSuchCompanyError.
    """
    try:
        await connection.execute(
            "select set_active_company_context(company_id => %s)", (company_id,)
        )
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotYourCompanyError(db.first_line(error)) from error
    except psycopg.errors.NoDataFound as error:
        raise NoSuchCompanyError(db.first_line(error)) from error
