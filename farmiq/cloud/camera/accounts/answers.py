"""Bodies that come and answers that go: read once, written without what JSON cannot say."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from fastapi import Request, Response

from farmiq.asked import Wrong, uuid
from farmiq.messages import check
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError

T = TypeVar("T", bound=msgspec.Struct)

MOST_BYTES = 16 * 1024
MOST_REASONS = 50
_MISSING = re.compile(r"missing required field `(\w+)`")
NO_STORE = {"Cache-Control": "no-store"}


def answer(body: Mapping[str, Any], *, status: int = 200) -> Response:
    """What is msgspec.Raw goes out as it stands."""
    content = msgspec.json.encode(plain(body))
    return Response(content, status, headers=NO_STORE, media_type="application/json")


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

    It is kept for who reads it again. Raises HttpError 413 or 415.
    """
    kept: bytes | None = getattr(request.state, "raw", None)
    if kept is not None:
        return kept
    # A form of another site cannot be sent as JSON without the browser asking us first.
    request.state.raw = await http.body(request, what="a body", most=MOST_BYTES)
    return bytes(request.state.raw)


def decoded(body: bytes, kind: type[T]) -> T:
    """Raises HttpError 400 with all that is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except check.REFUSED as error:
        found = [*check.problems(body, kind), *_unknown(body, kind)] or [str(error)]
        raise bad([_placed(reason) for reason in found[:MOST_REASONS]]) from None


def _unknown(body: bytes, kind: type[T]) -> list[str]:
    value, _ = check.look(body)
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    odd = [name for name in value if name not in known] if isinstance(value, dict) else []
    there = ", ".join(known) or "none"
    return [f"is not known; there are: {there} - at `$.{name[:64]}`" for name in odd]


def _placed(reason: str) -> tuple[str, str]:
    """The field and what is wrong with it; `body` is the whole."""
    said, _, place = reason.partition(" - at `$")
    if missing := _MISSING.fullmatch(said):
        return missing[1], "is missing"
    return place.removesuffix("`").removeprefix(".") or "body", said[:500]


def bad(wrong: Sequence[tuple[str, str]]) -> HttpError:
    return HttpError(400, "the request is not valid", details=Wrong(wrong).details)


def path_id(request: Request, name: str) -> UUID:
    """What is no id at all is simply not there; who asks has to be known first."""
    try:
        return uuid(request.path_params[name])
    except ValueError:
        return UUID(int=0)
