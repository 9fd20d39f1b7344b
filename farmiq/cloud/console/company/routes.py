"""The routes to sign in and out, and to switch the company."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.cloud.console import pages
from farmiq.cloud.identity import session, sign_in, store
from farmiq.cloud.identity.checks import TooBusyError
from farmiq.plumbing import http
from farmiq.ui import forms, look

# The CSRF token of the sign-in form, for which there is no sign-in yet.
FORM_COOKIE = "farmiq_form"
FORM_LASTS_S = 3600
# Proves that a browser has signed in before; it gives no access.
BROWSER_COOKIE = "farmiq_browser"
BROWSER_LASTS_S = 180 * 24 * 3600

REJECTED = "E-mail and password do not match. Check both and try again."
EXPIRED = "This form was open for too long. Please sign in again."
BUSY = "Too many people are signing in. Try again in a few seconds."
TOO_MANY = "Too many attempts. Try again in {minutes} min."


@dataclass(frozen=True)
class CompanyPages:
    pages: pages.Pages
    cookie_secure: bool

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/sign-in", self.sign_in_form, "GET"),
            ("/sign-in", self.sign_in, "POST"),
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
            return self._form(request, form, error=http.HttpError(403, EXPIRED))
        try:
            opened = await self.pages.sign_ins.sign_in(
                form.get("email", ""),
                form.get("password", ""),
                network=http.network(request),
                browser=request.cookies.get(BROWSER_COOKIE),
            )
        except sign_in.RejectedError:
            return self._form(request, form, error=http.HttpError(401, REJECTED))
        except sign_in.TooManyAttemptsError as error:
            return self._form(request, form, error=_too_many(error.retry_after_s))
        except TooBusyError as error:
            busy = http.HttpError(429, BUSY, retry_after_s=error.retry_after_s)
            return self._form(request, form, error=busy)
        answer = RedirectResponse(look.own_address(form.get("next")), 303, headers=look.HEADERS)
        answer.delete_cookie(FORM_COOKIE, path="/sign-in")
        lasts_s = int(self.pages.sign_ins.lasts.total_seconds())
        self._set_cookie(answer, sign_in.COOKIE, opened.token, path="/", lasts_s=lasts_s)
        self._set_cookie(
            answer, BROWSER_COOKIE, opened.browser, path="/sign-in", lasts_s=BROWSER_LASTS_S
        )
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
        self, request: Request, given: Mapping[str, str], *, error: http.HttpError | None = None
    ) -> Response:
        """The form with the values entered before; with an error, its text and status."""
        if error and not look.is_browser(request):
            raise error
        token = request.cookies.get(FORM_COOKIE) or store.new_token()
        answer = look.page(
            "sign_in.html",
            status=error.status if error else 200,
            csrf=token,
            email=given.get("email", ""),
            wanted=look.own_address(given.get("next")),
            problem=error.message if error else "",
        )
        if error and error.retry_after_s:
            answer.headers["Retry-After"] = str(error.retry_after_s)
        self._set_cookie(answer, FORM_COOKIE, token, path="/sign-in", lasts_s=FORM_LASTS_S)
        return answer

    def _set_cookie(
        self, answer: Response, name: str, value: str, *, path: str, lasts_s: int
    ) -> None:
        answer.set_cookie(
            name,
            value,
            max_age=lasts_s,
            path=path,
            httponly=True,
            samesite="lax",
            secure=self.cookie_secure,
        )


def _too_many(retry_after_s: int) -> http.HttpError:
    minutes = -(-retry_after_s // 60)
    return http.HttpError(429, TOO_MANY.format(minutes=minutes), retry_after_s=retry_after_s)
