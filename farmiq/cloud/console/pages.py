"""The routes of the console: sign in and out, switch company, Latest readings as HTML and JSON."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from farmiq import api
from farmiq.cloud.console import forms, live, look
from farmiq.cloud.console.company import queries as company_queries
from farmiq.cloud.console.company.view import SelectableCompany
from farmiq.cloud.console.telemetry import queries
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.identity import session, sign_in
from farmiq.cloud.identity.checks import TooBusyError
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db, http

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


class LatestReading(api.Model):
    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float | None
    unit: str
    occurred_at: api.At
    stored_at: api.At
    clock_suspect: bool
    reading_count: int
    aggregation_window: str | None
    age_s: float
    expected_interval_s: float
    state: str


class LatestReadings(api.Model):
    company: str
    timezone: str
    as_of: api.At
    summary: str
    problems: int
    readings: list[LatestReading]


@dataclass(frozen=True)
class Pages:
    pool: db.Pool
    sign_ins: sign_in.SignIns
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
            ("/company", self.switch_company, "POST"),
            ("/static/{digest}/{name:path}", self.static, "GET"),
        ):
            app.add_api_route(
                path, look.with_error_pages(endpoint), methods=[method], include_in_schema=False
            )
        app.add_api_route(
            "/api/v1/telemetry/latest",
            look.with_error_pages(self.latest_json),
            summary="The newest reading of every sensor",
            response_model=LatestReadings,
            response_description="The readings of the person's company.",
            dependencies=[sign_in.SIGN_IN],
        )
        app.router.default = look.not_found(app.router.default)

    async def latest(self, request: Request) -> Response:
        signed_in = await self.must_be_signed_in(request)
        view = await self._view(request, signed_in)
        return await asyncio.to_thread(
            look.page,
            "latest.html",
            view=view,
            csrf=signed_in.csrf_token,
            choices=await self.choices(signed_in),
        )

    async def fragment(self, request: Request) -> Response:
        view = await self._view(request, await self.must_be_signed_in(request))
        page = await asyncio.to_thread(look.page, "fragment.html", view=view)
        return await asyncio.to_thread(compressed, request, page)

    async def latest_json(self, request: Request, response: Response) -> Any:
        view = await self._view(request, await self.must_be_signed_in(request))
        response.headers["Cache-Control"] = "no-store"
        return readings.as_json(view)

    async def live(self, request: Request) -> Response:
        signed_in = await self.must_be_signed_in(request)
        if self.hub.is_full(signed_in.token_hash):
            raise http.HttpError(429, "too many live pages are open: close some", retry_after_s=10)
        async with self.as_person(request, signed_in) as connection:
            company = await company_queries.company(connection, email=signed_in.email)
        if company is None:
            raise not_signed_in()
        about = request.query_params.get("about", live.TELEMETRY)
        if about not in live.CHANNELS:
            raise http.HttpError(400, f"about is one of: {', '.join(live.CHANNELS)}")
        source = live.stream(
            self.hub,
            about=about,
            company_id=str(company.company_id),
            sign_in=signed_in.token_hash,
            lasts_s=signed_in.remaining_s,
        )
        # The extra header makes a proxy pass messages on at once.
        headers = {**look.HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(source, media_type="text/event-stream", headers=headers)

    async def sign_in_form(self, request: Request) -> Response:
        wanted = request.query_params.get("next", "")
        if await self.who(request):
            return RedirectResponse(look.own_address(wanted), 303, headers=look.HEADERS)
        return self._form(request, {"next": wanted})

    async def sign_in(self, request: Request) -> Response:
        form = await forms.read(request)
        if not forms.came_from_us(form, request.cookies.get(FORM_COOKIE)):
            return self._form(request, form, error=http.HttpError(403, EXPIRED))
        try:
            opened = await self.sign_ins.sign_in(
                form.get("email", ""),
                form.get("password", ""),
                network=http.network(request),
                browser=request.cookies.get(BROWSER_COOKIE),
            )
        except sign_in.RejectedError:
            return self._form(request, form, error=http.HttpError(401, REJECTED))
        except sign_in.TooManyAttemptsError as error:
            return self._form(request, form, error=too_many(error.retry_after_s))
        except TooBusyError as error:
            busy = http.HttpError(429, BUSY, retry_after_s=error.retry_after_s)
            return self._form(request, form, error=busy)
        answer = RedirectResponse(look.own_address(form.get("next")), 303, headers=look.HEADERS)
        answer.delete_cookie(FORM_COOKIE, path="/sign-in")
        lasts_s = int(self.sign_ins.lasts.total_seconds())
        self._set_cookie(answer, sign_in.COOKIE, opened.token, path="/", lasts_s=lasts_s)
        self._set_cookie(
            answer, BROWSER_COOKIE, opened.browser, path="/sign-in", lasts_s=BROWSER_LASTS_S
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        signed_in = await self.who(request)
        answer = RedirectResponse("/sign-in", 303, headers=look.HEADERS)
        if signed_in is not None:
            if not forms.came_from_us(await forms.read(request), signed_in.csrf_token):
                raise http.HttpError(403, "this form is not of your sign-in: load the page again")
            await self.sign_ins.sign_out(signed_in)
        answer.delete_cookie(sign_in.COOKIE, path="/")
        return answer

    async def switch_company(self, request: Request) -> Response:
        """A super admin looks at another company, in this sign-in only."""
        signed_in = await self.must_be_signed_in(request)
        form = await forms.read(request)
        if not forms.came_from_us(form, signed_in.csrf_token):
            raise http.HttpError(403, "this form is not of your sign-in: load the page again")
        try:
            await self.sign_ins.choose_company(signed_in, company_named(form.get("company_id", "")))
        except session.NotYourCompanyError:
            raise http.HttpError(403, "you may look at your own company only") from None
        except session.NoSuchCompanyError:
            raise no_such_company() from None
        except session.SignedOutError:
            raise not_signed_in() from None
        return RedirectResponse("/", 303, headers=look.HEADERS)

    async def static(self, request: Request) -> Response:
        asset = look.files.get(request.path_params["name"])
        if asset is None or asset.address != request.url.path:
            raise http.HttpError(404, "there is no such file")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        answer = Response(asset.content, media_type=asset.media_type, headers=headers)
        return compressed(request, answer)

    async def who(self, request: Request) -> SignIn | None:
        """By the cookie of a browser, or by a bearer token."""
        return await self.sign_ins.signed_in(request)

    async def must_be_signed_in(self, request: Request) -> SignIn:
        signed_in = await self.who(request)
        if signed_in is None:
            raise not_signed_in()
        return signed_in

    @asynccontextmanager
    async def as_person(self, request: Request, signed_in: SignIn) -> AsyncIterator[db.Connection]:
        """In the company of the URL, else in the one that the sign-in has chosen.

        So a page stays in its company when another tab switches.
        """
        given = request.query_params.get("company")
        wanted = company_named(given) if given else None
        try:
            async with session.as_person(
                self.pool, signed_in.token, company_id=wanted
            ) as connection:
                yield connection
        except session.SignedOutError:
            raise not_signed_in() from None
        # Only a super admin may learn whether a company exists.
        except (session.NotYourCompanyError, session.NoSuchCompanyError):
            raise no_such_company() from None

    async def choices(self, signed_in: SignIn) -> list[SelectableCompany]:
        if not signed_in.is_super_admin:
            return []
        async with session.as_person(self.pool, signed_in.token) as connection:
            return await company_queries.choices(connection)

    async def _view(self, request: Request, signed_in: SignIn) -> readings.View:
        async with self.as_person(request, signed_in) as connection:
            company = await company_queries.company(connection, email=signed_in.email)
            rows = await queries.latest(connection)
        if company is None:
            raise not_signed_in()
        # In a thread, like rendering: a large farm must not delay other requests.
        return await asyncio.to_thread(readings.view, company, rows, now=datetime.now(UTC))

    def _form(
        self, request: Request, given: Mapping[str, str], *, error: http.HttpError | None = None
    ) -> Response:
        """The form with the values entered before; with an error, its text and status."""
        if error and not look.is_browser(request):
            raise error
        token = request.cookies.get(FORM_COOKIE) or sign_in.new_token()
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


def company_named(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise no_such_company() from None


def no_such_company() -> http.HttpError:
    return http.HttpError(404, "there is no such company")


def not_signed_in() -> http.HttpError:
    return http.HttpError(401, "sign in first")


def too_many(retry_after_s: int) -> http.HttpError:
    minutes = -(-retry_after_s // 60)
    return http.HttpError(429, TOO_MANY.format(minutes=minutes), retry_after_s=retry_after_s)


def compressed(request: Request, answer: Response) -> Response:
    """Compressed with gzip if the browser accepts it: 200 devices shrink to a tenth."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        answer.body = gzip.compress(answer.body, compresslevel=4, mtime=0)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers["Content-Length"] = str(len(answer.body))
    answer.headers["Vary"] = "Accept-Encoding"
    return answer
