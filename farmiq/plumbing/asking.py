"""Asking over HTTP with an end: an answer that drips, or never stops, is none.

httpx waits its timeout for every part of an exchange; here the whole has a most as well.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

# Connecting, waiting for the answer and reading it, each as long as the client waits for a part.
PARTS = 3
DEFAULT_PART_S = 30.0
# A link slower than this is none; what is sent has that much time beside.
SLOWEST_BYTES_PER_S = 10_000
MAX_ANSWER = 2 * 1024 * 1024
# Whatever a question can end in that got no answer; an address or a header that somebody else
# gave us may be none.
FAILED = (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, TimeoutError)


def why(error: Exception) -> str:
    """What a question ended in, for people: its kind, and what it says, if it says something."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; without a body if that was longer than any we expect."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """What the body says as JSON; None if it does not."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


async def ask(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    content: bytes,
    headers: Mapping[str, str],
) -> Said:
    """Raises one of FAILED, of which TimeoutError if the whole takes too long."""
    part_s = client.timeout.read or DEFAULT_PART_S
    most_s = part_s * PARTS + len(content) / SLOWEST_BYTES_PER_S
    async with (
        asyncio.timeout(most_s),
        client.stream(method, url, content=content, headers=dict(headers)) as response,
    ):
        return Said(response.status_code, response.headers, await _read(response))


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_ANSWER:
            return b""
    return bytes(body)
