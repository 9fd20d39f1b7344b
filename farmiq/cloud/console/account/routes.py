"""The routes of one's own account.

What asks for a password or a code shows the page again if it is wrong; all else redirects.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import segno
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console import pages
from farmiq.cloud.console.account.view import CodesView, SessionRow, SetupView, View
from farmiq.cloud.console.company import cookies
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.account import Account, AlreadyOnError, NoSetupError
from farmiq.cloud.identity.checks import TooBusyError
from farmiq.cloud.identity.store import RANKS, SignIn
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError
from farmiq.ui import i18n, look, sentences
from farmiq.ui.i18n import gettext as _

ROOT = "/settings/account"
SETUP = f"{ROOT}/second-factor/setup"
_WRONG = 422


@dataclass(frozen=True)
class AccountPages:
    pages: pages.Pages
    cookies: cookies.Cookies

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.account, "GET"),
            (f"{ROOT}/password", self.password, "POST"),
            (f"{ROOT}/second-factor", self.begin, "POST"),
            (SETUP, self.setup, "GET"),
            (SETUP, self.confirm, "POST"),
            (f"{ROOT}/second-factor/codes", self.codes, "POST"),
            (f"{ROOT}/second-factor/remove", self.remove, "POST"),
            (f"{ROOT}/sessions/{{session_id}}/end", self.end_session, "POST"),
            (f"{ROOT}/sessions/end-others", self.end_others, "POST"),
            (f"{ROOT}/language", self.language, "POST"),
            (f"{ROOT}/second-factor-rule", self.rule, "POST"),
        )

    @property
    def _account(self) -> Account:
        return Account(self.pages.sign_ins)

    async def account(self, request: Request) -> Response:
        signed_in = await self._person(request)
        return await self._page(request, signed_in, done=request.query_params.get("done", ""))

    async def password(self, request: Request) -> Response:
        signed_in, form = await self._form(request)
        if form.get("new", "") != form.get("again", ""):
            errors = {"again": _("This is not the same as above.")}
            return await self._page(request, signed_in, errors=errors)
        try:
            opened = await self._account.change_password(
                signed_in, form.get("current", ""), form.get("new", ""),
                client=sign_in.client(request),
            )  # fmt: skip
        except sign_in.RejectedError:
            errors = {"current": _("This is not your password.")}
            return await self._page(request, signed_in, errors=errors)
        except ValueError as error:
            return await self._page(request, signed_in, errors={"new": _sentence(error)})
        except (sign_in.TooManyAttemptsError, TooBusyError) as error:
            return await self._later(request, signed_in, error.retry_after_s)
        answer = _to(f"{ROOT}?done=password")
        self.cookies.open(answer, opened)
        return answer

    async def begin(self, request: Request) -> Response:
        """Make a secret for an app; the next page shows it."""
        signed_in, form = await self._form(request)
        try:
            await self._account.begin_second_factor(
                signed_in, form.get("password", ""), client=sign_in.client(request)
            )
        except sign_in.RejectedError:
            errors = {"password": _("This is not your password.")}
            return await self._page(request, signed_in, errors=errors)
        except (sign_in.TooManyAttemptsError, TooBusyError) as error:
            return await self._later(request, signed_in, error.retry_after_s)
        except AlreadyOnError:
            return _to(ROOT)
        except sign_in.NoKeyError:
            raise _no_key() from None
        return _to(SETUP)

    async def setup(self, request: Request) -> Response:
        return await self._setup(request, await self._person(request))

    async def confirm(self, request: Request) -> Response:
        """The first code turns it on. The recovery codes are on this answer only."""
        signed_in, form = await self._form(request)
        try:
            opened, codes = await self._account.confirm_second_factor(
                signed_in, form.get("code", ""), client=sign_in.client(request)
            )
        except sign_in.RejectedError:
            error = _("This code is not right. Take the one that the app shows now.")
            return await self._setup(request, signed_in, error=error)
        except sign_in.TooManyAttemptsError as error:
            return await self._later(request, signed_in, error.retry_after_s)
        except NoSetupError:
            return _to(ROOT)
        except sign_in.NoKeyError:
            raise _no_key() from None
        renewed = await self.pages.sign_ins.find(opened.token)
        answer = await self._codes(request, renewed or signed_in, codes)
        self.cookies.open(answer, opened)
        return answer

    async def codes(self, request: Request) -> Response:
        signed_in, form = await self._form(request)
        try:
            codes = await self._account.renew_recovery_codes(
                signed_in, form.get("code", ""), client=sign_in.client(request)
            )
        except (sign_in.RejectedError, sign_in.TooManyAttemptsError, sign_in.NoKeyError) as error:
            return await self._wrong_code(request, signed_in, error, field="renew-code")
        return await self._codes(request, signed_in, codes)

    async def remove(self, request: Request) -> Response:
        signed_in, form = await self._form(request)
        try:
            await self._account.remove_second_factor(
                signed_in, form.get("code", ""), client=sign_in.client(request)
            )
        except (sign_in.RejectedError, sign_in.TooManyAttemptsError, sign_in.NoKeyError) as error:
            return await self._wrong_code(request, signed_in, error, field="remove-code")
        return _to(f"{ROOT}?done=second-factor-off")

    async def end_session(self, request: Request) -> Response:
        signed_in, _form = await self._form(request)
        try:
            session_id = UUID(request.path_params["session_id"])
        except ValueError:
            raise HttpError(404, "there is no such session") from None
        if not await self._account.end_session(signed_in, session_id):
            raise HttpError(404, "there is no such session: it may have ended by itself")
        return _to("/sign-in" if session_id == signed_in.session_id else f"{ROOT}?done=session")

    async def end_others(self, request: Request) -> Response:
        signed_in, _form = await self._form(request)
        await self._account.end_other_sessions(signed_in)
        return _to(f"{ROOT}?done=sessions")

    async def language(self, request: Request) -> Response:
        """A cookie too: the sign-in page is in the person's language already."""
        signed_in, form = await self._form(request)
        wanted = form.get("language", "")
        if wanted and wanted not in i18n.LANGUAGES:
            errors = {"language": _("Choose a language of the list.")}
            return await self._page(request, signed_in, errors=errors)
        await self._account.set_language(signed_in, wanted or None)
        answer = _to(f"{ROOT}?done=language")
        if wanted:
            self.cookies.language(answer, wanted)
        else:
            answer.delete_cookie(i18n.COOKIE, path="/")
        return answer

    async def rule(self, request: Request) -> Response:
        """An admin says who of the company needs a second factor."""
        signed_in, form = await self._form(request)
        role = form.get("role", "") or None
        async with self.pages.visit(request, signed_in) as (_connection, company, _now):
            pages.require(company, "admin")
        if role is not None and (role not in RANKS or not company.may(role)):
            errors = {"role": _("Choose a role of the list.")}
            return await self._page(request, signed_in, errors=errors)
        await self._account.set_second_factor_rule(signed_in, company.company_id, role)
        return _to(f"{ROOT}?done=rule")

    async def _person(self, request: Request) -> SignIn:
        """Also somebody who has to set a password or second factor before anything else."""
        return await self.pages.sign_ins.require(request, even_if_incomplete=True)

    async def _form(self, request: Request) -> tuple[SignIn, dict[str, str]]:
        signed_in = await self._person(request)
        http.allow(request, signed_in.email)
        return signed_in, await self.pages.form(request, signed_in)

    async def _page(
        self,
        request: Request,
        signed_in: SignIn,
        *,
        done: str = "",
        errors: Mapping[str, str] | None = None,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        overview = await self._account.overview(signed_in)
        shown = View(
            company=company,
            now=now,
            sessions=[
                SessionRow(session, session.session_id == signed_in.session_id)
                for session in overview.sessions
            ],
            factor=overview.second_factor,
            has_key=self.pages.sign_ins.sealer is not None,
            rule=overview.rule,
            language=signed_in.language,
            required_step=signed_in.required_step,
            done=done,
            problem=problem,
            errors=errors or {},
        )
        if errors:
            status = _WRONG
        return await self.pages.page("account.html", signed_in, shown, status=status)

    async def _setup(self, request: Request, signed_in: SignIn, *, error: str = "") -> Response:
        try:
            setup = await self._account.setup(signed_in)
        except sign_in.NoKeyError:
            raise _no_key() from None
        if setup is None:
            return _to(ROOT)
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        shown = SetupView(
            company=company, now=now, setup=setup, qr=qr_code(setup.address), error=error
        )
        status = _WRONG if error else 200
        return await self.pages.page("second_factor.html", signed_in, shown, status=status)

    async def _codes(self, request: Request, signed_in: SignIn, codes: list[str]) -> Response:
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        shown = CodesView(company=company, now=now, codes=codes)
        return await self.pages.page("recovery_codes.html", signed_in, shown)

    async def _wrong_code(
        self, request: Request, signed_in: SignIn, error: Exception, *, field: str
    ) -> Response:
        if isinstance(error, sign_in.NoKeyError):
            raise _no_key() from None
        if isinstance(error, sign_in.TooManyAttemptsError):
            return await self._later(request, signed_in, error.retry_after_s)
        errors = {field: _("This code is not right, or was used before.")}
        return await self._page(request, signed_in, errors=errors)

    async def _later(self, request: Request, signed_in: SignIn, retry_after_s: int) -> Response:
        minutes = -(-retry_after_s // 60)
        problem = _("Too many attempts. Try again in %(minutes)s min.") % {"minutes": minutes}
        answer = await self._page(request, signed_in, problem=problem, status=429)
        answer.headers["Retry-After"] = str(retry_after_s)
        return answer


def qr_code(text: str) -> str:
    """An SVG without inline styles, which the page's own policy would refuse."""
    drawn = io.BytesIO()
    segno.make(text, error="m").save(
        drawn, kind="svg", scale=4, border=4, xmldecl=False, svgns=False, nl=False,
        dark="#000", light="#fff", svgclass="qr", lineclass=None, title=None,
    )  # fmt: skip
    return drawn.getvalue().decode()


def _sentence(error: Exception) -> str:
    return f"{sentences.shown(str(error))}."


def _no_key() -> HttpError:
    return HttpError(
        409, "this server has no key for second factors: whoever runs it has to set "
        "FARMIQ_SECRETS_KEY_FILE",
    )  # fmt: skip


def _to(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303, headers=look.HEADERS)
