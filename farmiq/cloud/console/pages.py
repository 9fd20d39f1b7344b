"""The routes of the console: sign in, sign out, Latest readings, its fragment and JSON twin."""

import asyncio
import gzip
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse, StreamingResponse

from farmiq.cloud.console import forms, live, look, readings, store
from farmiq.cloud.identity import desk
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db, http

SIGN_IN_COOKIE = "farmiq_sign_in"
# Holds the token of the sign-in form: there is no sign-in yet that could hold it.
FORM_COOKIE = "farmiq_form"
FORM_LASTS_S = 3600

REFUSED = "E-mail and password do not match. Check both and try again."
EXPIRED = "This form was open for too long. Please sign in again."
TOO_MANY = "Too many attempts. Try again in {minutes} min."


@dataclass(frozen=True)
class Pages:
    pool: db.Pool
    desk: desk.Desk
    hub: live.Hub
    cookie_secure: bool

    def add_to(self, app: FastAPI) -> None:
        for path, endpoint, method in (
            ("/", self.latest, "GET"),
            ("/readings", self.fragment, "GET"),
            ("/live", self.live, "GET"),
            ("/sign-in", self.sign_in_form, "GET"),
            ("/sign-in", self.sign_in, "POST"),
            ("/sign-out", self.sign_out, "POST"),
            ("/static/{digest}/{name:path}", self.static, "GET"),
        ):
            app.add_api_route(
                path, look.with_error_pages(endpoint), methods=[method], include_in_schema=False
            )
        app.add_api_route(
            "/api/v1/telemetry/latest",
            look.with_error_pages(self.latest_json),
            methods=["GET"],
            summary="The newest reading of every sensor",
        )
        app.router.default = look.not_found(app.router.default)

    async def latest(self, request: Request) -> Response:
        signed_in = await self._who(request)
        if signed_in is None:
            return RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        found = await self._view(signed_in)
        return await asyncio.to_thread(
            look.page, "latest.html", view=found, csrf=signed_in.csrf_token
        )

    async def fragment(self, request: Request) -> Response:
        found = await self._view(await self._must_be_signed_in(request))
        page = await asyncio.to_thread(look.page, "fragment.html", view=found)
        return await asyncio.to_thread(packed, request, page)

    async def latest_json(self, request: Request) -> Response:
        found = await self._view(await self._must_be_signed_in(request))
        return JSONResponse(readings.as_json(found), headers={"Cache-Control": "no-store"})

    async def live(self, request: Request) -> Response:
        signed_in = await self._must_be_signed_in(request)
        if self.hub.is_full(signed_in.token_hash):
            raise http.HttpError(429, "too many live pages are open: close some", retry_after_s=10)
        async with store.as_person(self.pool, signed_in.company_id) as connection:
            company = await store.company(connection, signed_in.user_id)
        if company is None:
            raise not_signed_in()
        source = live.stream(
            self.hub,
            tenant_id=company.tenant_id,
            sign_in=signed_in.token_hash,
            lasts_s=signed_in.remaining_s,
        )
        # The extra header asks a proxy in between not to hold messages back.
        headers = {**look.HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(source, media_type="text/event-stream", headers=headers)

    async def sign_in_form(self, request: Request) -> Response:
        if await self._who(request):
            return RedirectResponse("/", 303, headers=look.HEADERS)
        return self._form(request)

    async def sign_in(self, request: Request) -> Response:
        form = await forms.read(request)
        email = form.get("email", "")
        if not forms.came_from_us(form, request.cookies.get(FORM_COOKIE)):
            return self._form(request, email=email, error=http.HttpError(403, EXPIRED))
        try:
            token = await self.desk.sign_in(email, form.get("password", ""))
        except desk.Refused:
            return self._form(request, email=email, error=http.HttpError(401, REFUSED))
        except desk.TooManyAttempts as error:
            return self._form(request, email=email, error=too_many(error.retry_after_s))
        answer = RedirectResponse("/", 303, headers=look.HEADERS)
        answer.delete_cookie(FORM_COOKIE, path="/sign-in")
        lasts_s = int(self.desk.lasts.total_seconds())
        self._set_cookie(answer, SIGN_IN_COOKIE, token, path="/", lasts_s=lasts_s)
        return answer

    async def sign_out(self, request: Request) -> Response:
        signed_in = await self._who(request)
        answer = RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        if signed_in is not None:
            if not forms.came_from_us(await forms.read(request), signed_in.csrf_token):
                raise http.HttpError(403, "this form is not of your sign-in: load the page again")
            await self.desk.sign_out(signed_in)
        answer.delete_cookie(SIGN_IN_COOKIE, path="/")
        return answer

    async def static(self, request: Request) -> Response:
        found = look.files.get(request.path_params["name"])
        if found is None or found.address != request.url.path:
            raise http.HttpError(404, "there is no such file")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        answer = Response(found.content, media_type=found.media_type, headers=headers)
        return packed(request, answer)

    async def _who(self, request: Request) -> SignIn | None:
        return await self.desk.find(request.cookies.get(SIGN_IN_COOKIE))

    async def _must_be_signed_in(self, request: Request) -> SignIn:
        signed_in = await self._who(request)
        if signed_in is None:
            raise not_signed_in()
        return signed_in

    async def _view(self, signed_in: SignIn) -> readings.View:
        async with store.as_person(self.pool, signed_in.company_id) as connection:
            company = await store.company(connection, signed_in.user_id)
            found = await store.latest(connection)
        if company is None:
            raise not_signed_in()
        # In a thread, like rendering: a large farm must not hold up everybody else's requests.
        return await asyncio.to_thread(readings.view, company, found, now=datetime.now(UTC))

    def _form(
        self, request: Request, *, email: str = "", error: http.HttpError | None = None
    ) -> Response:
        """The sign-in form; with an error, what was wrong and the status that says so."""
        if error and not look.is_browser(request):
            raise error
        token = request.cookies.get(FORM_COOKIE) or desk.new_token()
        answer = look.page(
            "sign_in.html",
            status=error.status if error else 200,
            csrf=token,
            email=email,
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


def not_signed_in() -> http.HttpError:
    return http.HttpError(401, "sign in first")


def too_many(retry_after_s: int) -> http.HttpError:
    minutes = -(-retry_after_s // 60)
    return http.HttpError(429, TOO_MANY.format(minutes=minutes), retry_after_s=retry_after_s)


def packed(request: Request, answer: Response) -> Response:
    """Gzipped where the browser takes it: the table of 200 devices shrinks to a tenth."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        answer.body = gzip.compress(answer.body, compresslevel=4, mtime=0)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers["Content-Length"] = str(len(answer.body))
    answer.headers["Vary"] = "Accept-Encoding"
    return answer
