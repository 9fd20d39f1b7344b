"""What a form of a page does: as the person's role permits, then the redirect to its result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlencode
from uuid import UUID

import psycopg
from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console import pages
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.pages import Pages
from farmiq.cloud.identity.people import Caller, ConcurrentChangeError, People
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look


@asynccontextmanager
async def acting(
    pages: Pages, request: Request, signed_in: SignIn
) -> AsyncIterator[tuple[db.Connection, Company]]:
    """A transaction with the person's rights; an error of the database becomes a response."""
    try:
        async with pages.as_person(request, signed_in) as connection:
            yield connection, await pages.company(connection, signed_in)
    except psycopg.errors.NoDataFound as error:
        raise HttpError(404, db.first_line(error)) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise HttpError(403, db.first_line(error)) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise HttpError(409, db.first_line(error)) from error


@dataclass(frozen=True)
class Acting:
    """For what the service writes after the person's role was checked."""

    pages: Pages

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form of this sign-in, without NUL, which the database rejects."""
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        return {name: value.replace("\0", " ").strip() for name, value in form.items()}

    @asynccontextmanager
    async def caller(self, request: Request, *, least: str) -> AsyncIterator[Caller]:
        """A transaction of the person, whose role must be at least this; raises HttpError."""
        people = People(self.pages.sign_ins)
        try:
            async with people.caller(request, company_of(request), least=least) as caller:
                yield caller
        except ConcurrentChangeError:
            raise HttpError(503, "others change the same; try again", retry_after_s=1) from None


def company_of(request: Request) -> UUID | None:
    """The company that the address names, if it does."""
    given = request.query_params.get("company")
    return pages.company_named(given) if given else None


def redirect(request: Request, address: str) -> Response:
    """After a form: to the page that shows the result, in the company of the form."""
    company = request.query_params.get("company")
    if company:
        path, _, mark = address.partition("#")
        query = urlencode({"company": company})
        address = f"{path}{'&' if '?' in path else '?'}{query}" + (f"#{mark}" if mark else "")
    return RedirectResponse(address, 303, headers=look.HEADERS)
