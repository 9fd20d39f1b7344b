"""The routes of people: list, add, change a role, reset a password or second factor, remove."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import psycopg
from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.settings.people import queries, view
from farmiq.cloud.console.settings.people.view import OneTimePassword, View
from farmiq.cloud.edges import registry
from farmiq.cloud.identity import passwords
from farmiq.cloud.identity.checks import TooBusyError
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.wording import worded
from farmiq.plumbing import db, http
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words
from farmiq.ui.i18n import gettext as _

ROOT = "/settings/people"
LEAST = "admin"
_GROUPS, _GROUP = 4, 5
_NOT_POSSIBLE = (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.UniqueViolation)


@dataclass(frozen=True)
class PeoplePages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.people, "GET"),
            (ROOT, self.add, "POST"),
            (f"{ROOT}/{{user_id}}/role", self.role, "POST"),
            (f"{ROOT}/{{user_id}}/password", self.password, "POST"),
            (f"{ROOT}/{{user_id}}/second-factor", self.second_factor, "POST"),
            (f"{ROOT}/{{user_id}}/remove", self.remove, "POST"),
        )

    async def people(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self._page(request, signed_in)

    async def add(self, request: Request) -> Response:
        """The password is on this answer only, so it is no redirect."""
        signed_in, form = await self._form(request)
        errors = view.read_person(form)
        if errors:
            return await self._page(request, signed_in, given=form, errors=errors)
        email = form["email"].strip().lower()
        made = OneTimePassword(email, new_password())
        secret = await hashed(self.pages, signed_in, made.password)

        async def insert(connection: db.Connection) -> None:
            await queries.add(connection, email, form["role"], secret)

        try:
            await self._change(request, signed_in, insert)
        except psycopg.errors.UniqueViolation as error:
            errors = {"email": view.reason(db.first_line(error))}
            return await self._page(request, signed_in, given=form, errors=errors)
        return await self._page(request, signed_in, made=made)

    async def role(self, request: Request) -> Response:
        signed_in, form = await self._form(request)
        user_id, role = _user_id(request), form.get("role", "")
        if role not in view.ROLES:
            return await self._page(request, signed_in, problem=_("Choose a role."))

        async def change(connection: db.Connection) -> None:
            await queries.change_role(connection, user_id, role)

        return await self._changed(request, signed_in, change)

    async def password(self, request: Request) -> Response:
        """As `add`: the new password is on this answer only."""
        signed_in, _form = await self._form(request)
        user_id, password = _user_id(request), new_password()
        secret = await hashed(self.pages, signed_in, password)
        emails: list[str] = []

        async def reset(connection: db.Connection) -> None:
            await queries.reset_password(connection, user_id, secret)
            person = await queries.find(connection, user_id)
            emails.extend([person.email] if person else [])

        try:
            await self._change(request, signed_in, reset)
        except _NOT_POSSIBLE as error:
            problem = view.reason(db.first_line(error))
            return await self._page(request, signed_in, problem=problem)
        return await self._page(request, signed_in, made=OneTimePassword(emails[0], password))

    async def second_factor(self, request: Request) -> Response:
        """Remove a second factor that was lost."""
        signed_in, _form = await self._form(request)
        user_id = _user_id(request)

        async def reset(connection: db.Connection) -> None:
            await queries.reset_second_factor(connection, user_id)

        return await self._changed(request, signed_in, reset)

    async def remove(self, request: Request) -> Response:
        signed_in, _form = await self._form(request)
        user_id = _user_id(request)

        async def remove(connection: db.Connection) -> None:
            await queries.remove(connection, user_id)

        return await self._changed(request, signed_in, remove)

    async def _form(self, request: Request) -> tuple[SignIn, dict[str, str]]:
        """The form of an admin. Raises HttpError 403 for others, before anything is looked at."""
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        async with self.pages.visit(request, signed_in) as (_connection, company, _now):
            pages.require(company, LEAST)
        http.allow(request, signed_in.email)
        return signed_in, form

    async def _change(
        self,
        request: Request,
        signed_in: SignIn,
        change: Callable[[db.Connection], Awaitable[None]],
    ) -> None:
        """Raises what the database has against it, HttpError 403 or 404."""
        try:
            async with self.pages.as_person(request, signed_in) as connection:
                await change(connection)
        except psycopg.errors.NoDataFound:
            raise HttpError(404, "there is no such person") from None
        except psycopg.errors.InsufficientPrivilege as error:
            raise HttpError(403, db.first_line(error)) from None

    async def _changed(
        self,
        request: Request,
        signed_in: SignIn,
        change: Callable[[db.Connection], Awaitable[None]],
    ) -> Response:
        try:
            await self._change(request, signed_in, change)
        except _NOT_POSSIBLE as error:
            problem = view.reason(db.first_line(error))
            return await self._page(request, signed_in, problem=problem)
        return acting.redirect(request, ROOT)

    async def _page(
        self,
        request: Request,
        signed_in: SignIn,
        *,
        given: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
        made: OneTimePassword | None = None,
        problem: str = "",
    ) -> Response:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, LEAST)
            everybody = await queries.people(connection)
        shown = View(
            company=company,
            people=everybody,
            now=now,
            where=words.zone(company.timezone),
            given=given or {},
            errors=errors or {},
            made=made,
            problem=problem,
        )
        status = 422 if errors or problem else 200
        return await self.pages.page("people.html", signed_in, shown, status=status)


async def hashed(console: pages.Pages, signed_in: SignIn, password: str) -> str:
    """In a thread and in turn: a hash takes 64 MiB and a core."""
    try:
        async with console.sign_ins.checks.slot(signed_in.email, known=True):
            return await asyncio.to_thread(passwords.hashed, password)
    except TooBusyError as error:
        busy = worded("too many passwords are being checked: try again")
        raise HttpError(429, busy, retry_after_s=error.retry_after_s) from None


def new_password() -> str:
    """In groups, of letters that nobody takes for others: it is read aloud or typed once."""
    return "-".join(
        "".join(secrets.choice(registry.CODE_LETTERS) for _letter in range(_GROUP))
        for _group in range(_GROUPS)
    )


def _user_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["user_id"])
    except ValueError:
        raise HttpError(404, "there is no such person") from None
