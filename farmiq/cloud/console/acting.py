"""What pages do after a form: a transaction as the person, and the redirect to its result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import psycopg
from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.pages import Pages
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look


@asynccontextmanager
async def acting(
    pages: Pages, request: Request, signed_in: SignIn
) -> AsyncIterator[tuple[db.Connection, Company]]:
    """A transaction for an action; an error that the database raises becomes a response."""
    try:
        async with pages.as_person(request, signed_in) as connection:
            yield connection, await pages.company(connection, signed_in)
    except psycopg.errors.NoDataFound as error:
        raise HttpError(404, db.first_line(error)) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise HttpError(403, db.first_line(error)) from error
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        raise HttpError(409, db.first_line(error)) from error


def redirect(request: Request, address: str) -> Response:
    """To the page that shows the result, in the company of the form."""
    company = request.query_params.get("company")
    if company:
        path, _, mark = address.partition("#")
        query = urlencode({"company": company})
        address = f"{path}{'&' if '?' in path else '?'}{query}{'#' if mark else ''}{mark}"
    return RedirectResponse(address, 303, headers=look.HEADERS)
