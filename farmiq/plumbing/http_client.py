"""HTTP requests with a deadline: an answer that drips, or never stops, counts as none.

httpx applies its timeout to each part of an exchange; here the whole exchange has one too.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from farmiq.plumbing import tls

# Connecting, waiting for the answer and reading it: each may take the client's timeout.
PARTS = 3
DEFAULT_PART_S = 30.0
# The time for the bytes that are sent is added at this rate; a slower link does not count.
SLOWEST_BYTES_PER_S = 10_000
MAX_ANSWER = 2 * 1024 * 1024
# What a request without an answer can raise; an address or a header that comes from somebody else
# may be invalid.
FAILED = (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, TimeoutError)


def why(error: Exception) -> str:
    """Return the kind and the text of an error, for people."""
    return tls.advice(error) or ": ".join(filter(None, (type(error).__name__, str(error))))


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; its body is empty if it was longer than MAX_ANSWER."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


async def send(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    content: bytes,
    headers: Mapping[str, str],
) -> Answer:
    """Raises one of FAILED, of which TimeoutError if the whole takes too long."""
    part_s = client.timeout.read or DEFAULT_PART_S
    timeout_s = part_s * PARTS + len(content) / SLOWEST_BYTES_PER_S
    async with (
        asyncio.timeout(timeout_s),
        client.stream(method, url, content=content, headers=dict(headers)) as response,
    ):
        return Answer(response.status_code, response.headers, await _read(response))


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_ANSWER:
            return b""
    return bytes(body)
