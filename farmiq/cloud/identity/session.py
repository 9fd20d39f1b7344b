"""A transaction in a person's name: what it sees, row level security decides (C-76).

Who the person is, the database finds out itself, from the token of the sign-in; we cannot tell it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import psycopg

from farmiq.plumbing import db


class SignedOut(Exception):  # noqa: N818 - an answer, not a mistake
    """The sign-in ended between one look and the next."""


class NotYours(Exception):  # noqa: N818 - an answer, not a mistake
    """A regular user asked for another company than their own."""


class NoSuchCompany(Exception):  # noqa: N818 - an answer, not a mistake
    """A super admin asked for a company that is not there."""


@asynccontextmanager
async def as_person(
    pool: db.Pool, token: str, *, company_id: UUID | None = None
) -> AsyncIterator[db.Connection]:
    """In the company that the sign-in has chosen, or in the one given if the person may see it.

    Raises SignedOut, NotYours or NoSuchCompany.
    """
    async with db.transaction(pool) as connection:
        await connection.execute("set local role authenticated")
        try:
            await connection.execute("select begin_session(%s)", (token,))
        except psycopg.errors.InvalidAuthorizationSpecification as error:
            raise SignedOut(db.first_line(error)) from error
        if company_id is not None:
            await choose(connection, company_id)
        yield connection


async def choose(connection: db.Connection, company_id: UUID) -> None:
    """The company of the rest of this transaction. Raises NotYours or NoSuchCompany."""
    try:
        await connection.execute(
            "select set_active_company_context(company_id => %s)", (company_id,)
        )
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotYours(db.first_line(error)) from error
    except psycopg.errors.NoDataFound as error:
        raise NoSuchCompany(db.first_line(error)) from error
