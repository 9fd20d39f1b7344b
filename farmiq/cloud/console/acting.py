"""What a form of a page does: as the person's role permits, then the redirect to its result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console.pages import Pages, company_of
from farmiq.cloud.identity.people import Caller, ConcurrentChangeError, People
from farmiq.messages.wording import worded
from farmiq.plumbing.http import HttpError
from farmiq.ui import look


async def form(pages: Pages, request: Request) -> dict[str, str]:
    """The fields of a form of this sign-in, without NUL, which the database rejects."""
    signed_in = await pages.must_be_signed_in(request)
    fields = await pages.form(request, signed_in)
    return {name: value.replace("\0", " ").strip() for name, value in fields.items()}


@asynccontextmanager
async def caller(pages: Pages, request: Request, *, least: str) -> AsyncIterator[Caller]:
    """A transaction with the rights of the person, whose role must be at least this.

    In the company that the form's page showed: read the form first. `become_service` is for writes
    that the database does not allow to people. Raises HttpError; errors of the database too.
    """
    people = People(pages.sign_ins)
    try:
        async with people.caller(request, company_of(request), least=least) as person:
            yield person
    except ConcurrentChangeError:
        reason = worded("others change the same; try again")
        raise HttpError(503, reason, retry_after_s=1) from None


def redirect(request: Request, address: str) -> Response:
    """After a form: to the page that shows the result, in the company of the form."""
    company = request.query_params.get("company") or getattr(request.state, "company", None)
    if company:
        path, _, mark = address.partition("#")
        query = urlencode({"company": company})
        address = f"{path}{'&' if '?' in path else '?'}{query}" + (f"#{mark}" if mark else "")
    return RedirectResponse(address, 303, headers=look.HEADERS)
