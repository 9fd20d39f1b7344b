"""How responses look: templates, the headers of every page, and error pages."""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from farmiq.plumbing import db, http, log
from farmiq.ui import i18n, sentences, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

PROBLEMS = {
    403: (marked("This is not open to you"), ""),
    404: (
        marked("There is no such page"),
        marked("The address may be mistyped, or what stood here has moved."),
    ),
    429: (marked("Too many requests"), marked("Wait a little, then try again.")),
    503: (
        marked("The database does not answer"),
        marked("Readings that arrive meanwhile are kept. Try again in a moment."),
    ),
}
OTHER_PROBLEM = (marked("Something went wrong"), "")
_SIGN_IN, _SERVER_ERROR = 401, 500
MAX_ADDRESS_CHARS = 1000
# One slash and no backslash: browsers treat `//host` and `/\\host` as another site, and ignore
# control characters.
_OWN_ADDRESS = re.compile(r"/(?![/\\])[!-\[\]-~]*")

Endpoint = Callable[..., Awaitable[Any]]

HERE = Path(__file__).parent
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file, under an address with the hash of its content: cached for ever."""

    address: str
    media_type: str
    content: bytes


def _assets(folder: Path) -> dict[str, Asset]:
    """By the path below the folder."""
    assets = {}
    for file in folder.rglob("*"):
        if file.suffix in _MEDIA_TYPES:
            name, content = file.relative_to(folder).as_posix(), file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            assets[name] = Asset(f"/static/{digest}/{name}", _MEDIA_TYPES[file.suffix], content)
    return assets


# Read once.
files = _assets(HERE / "static")

_loader = jinja2.FileSystemLoader([HERE / "templates", HERE / "entry"])
_templates = jinja2.Environment(
    loader=_loader,
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.i18n"],
)
_templates.install_gettext_callables(  # type: ignore[attr-defined] # of the extension
    i18n.gettext, i18n.ngettext, newstyle=True
)
_templates.globals["language"] = i18n.language
# A page that is rendered without its site has no way to others, nor forms to keep.
_templates.globals["nav"] = ()
_templates.globals["forms"] = ()
_templates.globals["asset"] = lambda name: files[name].address
_templates.filters["number"] = words.number
_templates.filters["count"] = words.count
_templates.filters["cut"] = words.cut
_templates.filters["ago"] = lambda at, now: words.ago((now - at).total_seconds())
_templates.filters["day"] = words.day
_templates.filters["duration"] = words.duration
_templates.filters["local"] = words.local
_templates.filters["utc"] = words.utc
_templates.filters["percent"] = words.percent
_templates.filters["translated"] = sentences.translated
_templates.filters["sentence"] = sentences.shown


def add_templates(*folders: Path) -> None:
    """Find templates and styles in these folders too; names are unique over all areas of a site."""
    for folder in folders:
        if str(folder) not in _loader.searchpath:
            _loader.searchpath.append(str(folder))
            files.update(_assets(folder))


def render(template: str, **values: Any) -> str:
    return _templates.get_template(template).render(**values)


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(template, **values), status_code=status, headers=HEADERS)


def part(template: str, macro: str, *values: Any) -> str:
    """The part of a page that a live update replaces: a macro that the page includes too."""
    return str(getattr(_templates.get_template(template).module, macro)(*values))


async def fragment(request: Request, template: str, macro: str, *values: Any) -> Response:
    def answer() -> Response:
        return compressed(request, HTMLResponse(part(template, macro, *values), headers=HEADERS))

    # In a thread: a large farm must not delay other requests.
    return await asyncio.to_thread(answer)


def compressed(request: Request, answer: Response) -> Response:
    """Compressed with gzip if the browser accepts it: 200 devices shrink to a tenth."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        answer.body = gzip.compress(answer.body, compresslevel=4, mtime=0)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers["Content-Length"] = str(len(answer.body))
    answer.headers["Vary"] = "Accept-Encoding"
    return answer


def manifest() -> dict[str, Any]:
    """What a phone needs to put the console on its first screen."""
    return {
        "name": "FarmIQ",
        "short_name": "FarmIQ",
        "start_url": "/",
        "display": "standalone",
        "background_color": "#f6f5f1",
        "theme_color": "#1f7a4d",
        "icons": [
            {"src": files["icon-192.png"].address, "sizes": "192x192", "type": "image/png"},
            {"src": files["icon-512.png"].address, "sizes": "512x512", "type": "image/png"},
        ],
    }


def add_files(app: FastAPI) -> None:
    """What every page needs: hashed files, the manifest, the service worker, its offline page."""

    async def static(request: Request) -> Response:
        asset = files.get(request.path_params["name"])
        if asset is None or asset.address != request.url.path:
            raise http.HttpError(404, "there is no such file")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        }
        answer = Response(asset.content, media_type=asset.media_type, headers=headers)
        return compressed(request, answer)

    async def web_manifest(request: Request) -> Response:  # noqa: ARG001 - as every page
        return JSONResponse(manifest(), media_type="application/manifest+json", headers=HEADERS)

    async def service_worker(request: Request) -> Response:  # noqa: ARG001 - as every page
        # At the root: a worker sees only pages below its own address.
        asset = files["service-worker.js"]
        return Response(asset.content, media_type=asset.media_type, headers=HEADERS)

    async def offline(request: Request) -> Response:  # noqa: ARG001 - as every page
        return page(
            "problem.html",
            headline=_("No link to the server"),
            advice=_(
                "This page was not kept on this device. What was written down here is kept, "
                "and sent when the link is back."
            ),
            trace_id="",
        )

    add_pages(
        app,
        ("/offline", offline, "GET"),
        ("/static/{digest}/{name:path}", static, "GET"),
        ("/manifest.webmanifest", web_manifest, "GET"),
        ("/service-worker.js", service_worker, "GET"),
    )


def add_pages(app: FastAPI, *routes: tuple[str, Endpoint, str]) -> None:
    """`routes`: (path, endpoint, method)."""
    for path, endpoint, method in routes:
        app.add_api_route(
            path, with_error_pages(endpoint), methods=[method], include_in_schema=False
        )


def set_cookie(
    answer: Response, name: str, value: str, *, path: str, lasts_s: int, is_secure: bool
) -> None:
    """A cookie that no script reads and that no POST of another site carries."""
    answer.set_cookie(
        name, value, max_age=lasts_s, path=path, httponly=True, samesite="lax", secure=is_secure
    )


def is_browser(request: Request) -> bool:
    """Browsers accept HTML; programs and our own script get the standard error bodies."""
    return "text/html" in request.headers.get("accept", "")


def language_of(request: Request) -> str:
    """The choice of the person is in a cookie."""
    return i18n.preferred(
        chosen=request.cookies.get(i18n.COOKIE, ""),
        accepted=request.headers.get("accept-language", ""),
    )


def own_address(wanted: str | None) -> str:
    """The page to show after signing in; "/" for any address that could be of another site."""
    if not wanted or len(wanted) > MAX_ADDRESS_CHARS or not _OWN_ADDRESS.fullmatch(wanted):
        return "/"
    return "/" if wanted.partition("?")[0] in ("/sign-in", "/sign-out") else wanted


def to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in form, which then redirects to the requested page."""
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    wanted = own_address(address) if request.method == "GET" else "/"
    query = "" if wanted == "/" else f"?{urlencode({'next': wanted})}"
    return RedirectResponse(f"/sign-in{query}", 303, headers=HEADERS)


def with_error_pages(endpoint: Endpoint) -> Endpoint:
    """The endpoint; its errors are pages for browsers and the standard body for others."""

    @wraps(endpoint)
    async def answer(*arguments: Any, **named: Any) -> Any:
        request: Request = named["request"] if "request" in named else arguments[0]
        # Programs compare texts: what they get is English, whatever their machine's language is.
        is_program = request.url.path.startswith("/api/")
        with i18n.use("en" if is_program else language_of(request)):
            response = await _answer_of(endpoint, request, arguments, named)
        # A whole page; parts of it are compressed where they are made.
        if isinstance(response, HTMLResponse) and "Content-Encoding" not in response.headers:
            return await asyncio.to_thread(compressed, request, response)
        return response

    return answer


async def _answer_of(
    endpoint: Endpoint, request: Request, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    try:
        return await endpoint(*arguments, **named)
    except db.UNAVAILABLE as error:
        log.get("console").warning("console.no_database", error=db.first_line(error))
        return _error(request, http.HttpError(503, PROBLEMS[503][0], retry_after_s=5))
    except http.HttpError as error:
        return _error(request, error)
    except Exception as error:
        if not is_browser(request):
            raise
        log.get("console").error("console.failed", error=repr(error), exc_info=error)
        failure = http.HttpError(_SERVER_ERROR, "something went wrong on our side")
        return problem_page(request, failure)


def not_found(otherwise: ASGIApp) -> ASGIApp:
    """The app for unknown routes: a page for browsers, else `otherwise`."""

    async def unknown(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_browser(request := Request(scope)):
            with i18n.use(language_of(request)):
                answer = problem_page(request, http.HttpError(404, "Not Found"))
            await answer(scope, receive, send)
        else:
            await otherwise(scope, receive, send)

    return unknown


def problem_page(request: Request, error: http.HttpError) -> Response:
    headline, advice = PROBLEMS.get(error.status, OTHER_PROBLEM)
    response = page(
        "problem.html",
        status=error.status,
        headline=_(headline),
        advice=_(advice) if advice else f"{sentences.shown(error.message)}.",
        trace_id=http.trace_id(request) if error.status >= _SERVER_ERROR else "",
    )
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _error(request: Request, error: http.HttpError) -> Response:
    if is_browser(request):
        if error.location is not None:
            return RedirectResponse(error.location, 303, headers=HEADERS)
        return to_sign_in(request) if error.status == _SIGN_IN else problem_page(request, error)
    return http.error_response(request, error)
