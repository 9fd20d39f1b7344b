"""What a handler learns of a request: who sent it, how often, and its body within limits."""

import math
import time
from collections.abc import AsyncIterator

from fastapi import Request

from farmiq.plumbing import connections
from farmiq.plumbing.connections import Connection
from farmiq.plumbing.http.errors import HttpError

JSON = "application/json"
# Where the scope of a request has the place of its connection.
PLACE = "farmiq.connection"
_CHARSETS = ("utf-8", "utf8", "us-ascii")
_MAX_NUMBER = 18


def authenticated(request: Request, who: str) -> None:
    """Say that `who` sent this and has proven it; their connections are closed last."""
    place: Connection | None = request.scope.get(PLACE)
    if place is not None:
        place.authenticated, place.who = True, who


def bearer(request: Request) -> str | None:
    """The token of `Authorization: Bearer …`; None without such a header."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def network(request: Request) -> str:
    """The network that the client is in; behind a trusted proxy, as the proxy says."""
    return connections.network_of(request.client.host if request.client else "")


def allow(request: Request, who: str) -> None:
    """For routes by which a person or key acts. Raises HttpError 429 if they do so too often."""
    wait_s: float = request.app.state.allowance.take(who, now=time.monotonic())
    if wait_s:
        seconds = math.ceil(wait_s)
        raise HttpError(
            429, f"{who} acts too often; try again in {seconds} s", retry_after_s=seconds
        )


async def body(request: Request, *, what: str, max_bytes: int, kind: str | None = JSON) -> bytes:
    """The whole body. Raises HttpError 413 or 415; `what` names it in the error."""
    return b"".join(
        [part async for part in body_parts(request, what=what, max_bytes=max_bytes, kind=kind)]
    )


async def body_parts(
    request: Request, *, what: str, max_bytes: int, kind: str | None = JSON
) -> AsyncIterator[bytes]:
    """The body as it comes, at most so many bytes; nothing is read of one that says it is larger.

    Raises HttpError 413, and 415 for another content type than `kind` or another charset than
    UTF-8. With `kind` None the content type does not matter, but its charset does.
    """
    _check_content_type(request.headers.get("content-type", ""), what=what, kind=kind)
    too_large = HttpError(413, f"{what} has at most {max_bytes} bytes")
    declared = request.headers.get("content-length", "0")
    # h11 has seen that it is a number, but not that it is one we could count with.
    if len(declared) > _MAX_NUMBER or int(declared) > max_bytes:
        raise too_large
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise too_large
        yield part


def _check_content_type(given: str, *, what: str, kind: str | None) -> None:
    content_type, *parameters = (part.strip().lower() for part in given.split(";"))
    if kind is not None and content_type != kind:
        raise HttpError(415, f"send {what} as {kind}")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            raise HttpError(415, f"send {what} in UTF-8, not in another charset")


async def reject_repeated_parameters(request: Request) -> None:
    """A parameter that is sent twice: FastAPI would take the last one."""
    if b"&" not in request.scope["query_string"] or not request.url.path.startswith("/api/"):
        return
    names = [name for name, _ in request.query_params.multi_items()]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        details = [{"field": name, "reason": "is given more than once"} for name in repeated]
        raise HttpError(400, "the request is not valid", details=details)
