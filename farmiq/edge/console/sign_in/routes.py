"""The routes to sign in and out, and to switch the tenant."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.edge.console import sign_ins
from farmiq.edge.console.pages import Pages, tenants
from farmiq.edge.console.sign_ins import RejectedError, TooManyAttemptsError, new_token
from farmiq.plumbing import db, http
from farmiq.plumbing.http import HttpError
from farmiq.ui import forms, look
from farmiq.ui.i18n import gettext as _

# The CSRF token of the sign-in form, for which there is no sign-in yet.
FORM_COOKIE = "farmiq_edge_form"
FORM_LASTS_S = 3600


@dataclass(frozen=True)
class SignInPages:
    pages: Pages
    cookie_secure: bool

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/sign-in", self.sign_in_form, "GET"),
            ("/sign-in", self.sign_in, "POST"),
            ("/sign-out", self.sign_out, "POST"),
            ("/company", self.switch_tenant, "POST"),
        )

    async def sign_in_form(self, request: Request) -> Response:
        wanted = request.query_params.get("next", "")
        if await self.pages.sign_ins.signed_in(request):
            return RedirectResponse(look.own_address(wanted), 303, headers=look.HEADERS)
        return self._form(request, {"next": wanted})

    async def sign_in(self, request: Request) -> Response:
        form = await forms.read(request)
        if not forms.came_from_us(form, request.cookies.get(FORM_COOKIE)):
            expired = _("This form was open for too long. Please sign in again.")
            return self._form(request, form, error=HttpError(403, expired))
        network = http.network(request)
        try:
            if key := form.get("key", "").strip():
                token = await self.pages.sign_ins.with_key(key, network=network)
            else:
                token = await self.pages.sign_ins.with_pin(
                    form.get("name", ""), form.get("pin", ""), network=network
                )
        except RejectedError:
            rejected = _("Name and PIN do not match, or the key is not known. Try again.")
            return self._form(request, form, error=HttpError(401, rejected))
        except TooManyAttemptsError as error:
            return self._form(request, form, error=_too_many(error.retry_after_s))
        answer = RedirectResponse(look.own_address(form.get("next")), 303, headers=look.HEADERS)
        answer.delete_cookie(FORM_COOKIE, path="/sign-in")
        lasts_s = int(self.pages.sign_ins.lasts.total_seconds())
        self._set_cookie(answer, sign_ins.COOKIE, token, path="/", lasts_s=lasts_s)
        return answer

    async def sign_out(self, request: Request) -> Response:
        signed_in = await self.pages.sign_ins.signed_in(request)
        answer = RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        if signed_in is not None:
            await self.pages.form(request, signed_in)
            await self.pages.sign_ins.sign_out(signed_in)
        answer.delete_cookie(sign_ins.COOKIE, path="/")
        return answer

    async def switch_tenant(self, request: Request) -> Response:
        """A key of all tenants looks at another one, in this sign-in only."""
        signed_in = await self.pages.sign_ins.require(request)
        form = await self.pages.form(request, signed_in)
        wanted = form.get("company_id", "")
        if signed_in.key_tenant_id not in (None, wanted):
            raise HttpError(404, "there is no such tenant")
        async with db.transaction(self.pages.pool) as connection:
            known = await tenants(connection)
        if wanted not in known:
            raise HttpError(404, "there is no such tenant")
        await self.pages.sign_ins.choose_tenant(signed_in, wanted)
        return RedirectResponse("/", 303, headers=look.HEADERS)

    def _form(
        self, request: Request, given: Mapping[str, str], *, error: HttpError | None = None
    ) -> Response:
        """The form with the name entered before; with an error, its text and status."""
        if error and not look.is_browser(request):
            raise error
        token = request.cookies.get(FORM_COOKIE) or new_token()
        answer = look.page(
            "edge_sign_in.html",
            status=error.status if error else 200,
            csrf=token,
            name=given.get("name", ""),
            with_key=bool(given.get("key")),
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
        look.set_cookie(
            answer, name, value, path=path, lasts_s=lasts_s, is_secure=self.cookie_secure
        )


def _too_many(retry_after_s: int) -> HttpError:
    minutes = -(-retry_after_s // 60)
    text = _("Too many attempts. Try again in %(minutes)s min, or sign in with the key.")
    return HttpError(429, text % {"minutes": minutes}, retry_after_s=retry_after_s)
