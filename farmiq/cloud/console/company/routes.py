"""The routes to sign in and out, and to switch the company."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console import pages
from farmiq.cloud.console.company import cookies
from farmiq.cloud.console.company.cookies import Cookies
from farmiq.cloud.identity import session, sign_in, store
from farmiq.cloud.identity.checks import TooBusyError
from farmiq.cloud.identity.sign_in import Opened
from farmiq.plumbing import http
from farmiq.ui import forms, look
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

# The CSRF token of the sign-in form, for which there is no sign-in yet.
FORM_COOKIE = "farmiq_form"
FORM_LASTS_S = 3600
# Proves that the password was right, until the code is given.
TICKET_COOKIE = "farmiq_ticket"
CODE = "/sign-in/code"

REJECTED = marked("E-mail and password do not match. Check both and try again.")
EXPIRED = marked("This form was open for too long. Please sign in again.")
BUSY = marked("Too many people are signing in. Try again in a few seconds.")
TOO_MANY = marked("Too many attempts. Try again in %(minutes)s min.")
WRONG_CODE = marked("This code is not right, or was used before. Wait for the next one.")
NO_KEY = marked(
    "This server cannot check second factors: its key is missing. Tell whoever runs FarmIQ."
)


@dataclass(frozen=True)
class CompanyPages:
    pages: pages.Pages
    cookies: Cookies

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/sign-in", self.sign_in_form, "GET"),
            ("/sign-in", self.sign_in, "POST"),
            (CODE, self.code_form, "GET"),
            (CODE, self.code, "POST"),
            ("/sign-out", self.sign_out, "POST"),
            ("/company", self.switch_company, "POST"),
        )

    async def sign_in_form(self, request: Request) -> Response:
        wanted = request.query_params.get("next", "")
        if await self.pages.sign_ins.signed_in(request):
            return RedirectResponse(look.own_address(wanted), 303, headers=look.HEADERS)
        return self._form(request, {"next": wanted})

    async def sign_in(self, request: Request) -> Response:
        form = await forms.read(request)
        if not forms.came_from_us(form, request.cookies.get(FORM_COOKIE)):
            return self._form(request, form, error=http.HttpError(403, _(EXPIRED)))
        try:
            outcome = await self.pages.sign_ins.sign_in(
                form.get("email", ""),
                form.get("password", ""),
                client=sign_in.client(request),
                browser=request.cookies.get(cookies.BROWSER),
                before=request.cookies.get(sign_in.COOKIE),
            )
        except sign_in.RejectedError:
            return self._form(request, form, error=http.HttpError(401, _(REJECTED)))
        except (sign_in.TooManyAttemptsError, TooBusyError, sign_in.NoKeyError) as error:
            return self._form(request, form, error=_not_now(error))
        wanted = look.own_address(form.get("next"))
        if isinstance(outcome, sign_in.CodeNeeded):
            query = "" if wanted == "/" else f"?{urlencode({'next': wanted})}"
            answer = RedirectResponse(f"{CODE}{query}", 303, headers=look.HEADERS)
            lasts_s = sign_in.TICKET_LASTS_S
            self.cookies.set(
                answer, TICKET_COOKIE, outcome.ticket, path="/sign-in", lasts_s=lasts_s
            )
            return answer
        return await self._opened(outcome, wanted)

    async def code_form(self, request: Request) -> Response:
        wanted = request.query_params.get("next", "")
        if not request.cookies.get(TICKET_COOKIE):
            return RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        return self._form(request, {"next": wanted}, template="sign_in_code.html")

    async def code(self, request: Request) -> Response:
        form = await forms.read(request)
        ticket = request.cookies.get(TICKET_COOKIE, "")
        if not forms.came_from_us(form, request.cookies.get(FORM_COOKIE)):
            return self._form(request, form, error=http.HttpError(403, _(EXPIRED)))
        try:
            opened = await self.pages.sign_ins.sign_in_with_code(
                ticket,
                form.get("code", ""),
                client=sign_in.client(request),
                before=request.cookies.get(sign_in.COOKIE),
            )
        except sign_in.TicketError:
            return self._form(request, form, error=http.HttpError(403, _(EXPIRED)))
        except sign_in.RejectedError:
            error = http.HttpError(401, _(WRONG_CODE))
            return self._form(request, form, error=error, template="sign_in_code.html")
        except (sign_in.TooManyAttemptsError, sign_in.NoKeyError) as failure:
            error = _not_now(failure)
            return self._form(request, form, error=error, template="sign_in_code.html")
        return await self._opened(opened, look.own_address(form.get("next")))

    async def _opened(self, opened: Opened, wanted: str) -> Response:
        """The way to the wanted page, with the cookies and in the language of the person."""
        answer = RedirectResponse(wanted, 303, headers=look.HEADERS)
        for name in (FORM_COOKIE, TICKET_COOKIE):
            answer.delete_cookie(name, path="/sign-in")
        self.cookies.open(answer, opened)
        person = await self.pages.sign_ins.find(opened.token)
        if person is not None and person.language is not None:
            self.cookies.language(answer, person.language)
        return answer

    async def sign_out(self, request: Request) -> Response:
        signed_in = await self.pages.sign_ins.signed_in(request)
        answer = RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        if signed_in is not None:
            await self.pages.form(request, signed_in)
            await self.pages.sign_ins.sign_out(signed_in)
        answer.delete_cookie(sign_in.COOKIE, path="/")
        return answer

    async def switch_company(self, request: Request) -> Response:
        """A super admin looks at another company, in this sign-in only."""
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        try:
            await self.pages.sign_ins.choose_company(
                signed_in, pages.company_named(form.get("company_id", ""))
            )
        except session.NotYourCompanyError:
            raise http.HttpError(403, "you may look at your own company only") from None
        except session.NoSuchCompanyError:
            raise sign_in.no_such_company() from None
        except session.SignedOutError:
            raise sign_in.not_signed_in() from None
        return RedirectResponse("/", 303, headers=look.HEADERS)

    def _form(
        self,
        request: Request,
        given: Mapping[str, str],
        *,
        error: http.HttpError | None = None,
        template: str = "sign_in.html",
    ) -> Response:
        """The form with the values entered before; with an error, its text and status."""
        if error and not look.is_browser(request):
            raise error
        token = request.cookies.get(FORM_COOKIE) or store.new_token()
        answer = look.page(
            template,
            status=error.status if error else 200,
            csrf=token,
            email=given.get("email", ""),
            wanted=look.own_address(given.get("next")),
            problem=error.message if error else "",
        )
        if error and error.retry_after_s:
            answer.headers["Retry-After"] = str(error.retry_after_s)
        self.cookies.set(answer, FORM_COOKIE, token, path="/sign-in", lasts_s=FORM_LASTS_S)
        return answer


def _not_now(error: Exception) -> http.HttpError:
    """Why nobody can be let in at this moment."""
    if isinstance(error, sign_in.TooManyAttemptsError):
        minutes = -(-error.retry_after_s // 60)
        text = _(TOO_MANY) % {"minutes": minutes}
        return http.HttpError(429, text, retry_after_s=error.retry_after_s)
    if isinstance(error, TooBusyError):
        return http.HttpError(429, _(BUSY), retry_after_s=error.retry_after_s)
    return http.HttpError(503, _(NO_KEY))
