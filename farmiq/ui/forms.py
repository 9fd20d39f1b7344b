"""Forms: a small urlencoded body, and the CSRF token."""

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs

from fastapi import Request

from farmiq.plumbing import http

MAX_BYTES = 64 * 1024
MAX_FIELDS = 64
FORM = "application/x-www-form-urlencoded"


async def read(request: Request) -> dict[str, str]:
    """The first value of each field. Raises HttpError 413, 415 or 400."""
    return parse(await http.body(request, what="a form", max_bytes=MAX_BYTES, kind=FORM))


def parse(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise http.HttpError(400, f"the form cannot be read: {error}") from error
    return {name: values[0] for name, values in fields.items()}


def came_from_us(form: Mapping[str, str], token: str | None) -> bool:
    """Whether the form has the CSRF token of this browser."""
    return bool(token) and hmac.compare_digest(form.get("csrf", "").encode(), str(token).encode())
