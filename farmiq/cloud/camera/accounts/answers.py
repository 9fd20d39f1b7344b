"""Bodies that come and answers that go: read once, written without what JSON cannot say."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import Request, Response
from fastapi.responses import JSONResponse

from farmiq.asked import Wrong, uuid
from farmiq.plumbing.http import HttpError

T = TypeVar("T")

MOST_BYTES = 16 * 1024
NO_STORE = {"Cache-Control": "no-store"}


def answer(body: Mapping[str, Any], *, status: int = 200) -> Response:
    return JSONResponse(plain(body), status_code=status, headers=NO_STORE)


def plain(value: Any) -> Any:
    """Times in UTC, numbers as JSON has them; what is no number is null."""
    match value:
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case Decimal() | float():
            number = float(value)
            return number if math.isfinite(number) else None
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date() | UUID():
            return str(value)
    return value


async def raw(request: Request) -> bytes:
    """The body, before anything is opened: who sends slowly holds nothing but their connection.

    Raises HttpError 413 or 415.
    """
    # A form of another site cannot be sent as JSON without the browser asking us first.
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != "application/json":
        raise HttpError(415, "send the body as application/json")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise HttpError(413, f"a body has at most {MOST_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def decoded(body: bytes, kind: type[T]) -> T:
    """Raises HttpError 400."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad([("body", str(error)[:500])]) from None


def bad(wrong: Sequence[tuple[str, str]]) -> HttpError:
    return HttpError(400, "the request is not valid", details=Wrong(wrong).details)


def path_id(request: Request, name: str) -> UUID:
    """What is no id at all is simply not there; who asks has to be known first."""
    try:
        return uuid(request.path_params[name])
    except ValueError:
        return UUID(int=0)
