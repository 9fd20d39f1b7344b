"""Requests to addresses that somebody else gave us: nothing inside our own network is reached.

A name is resolved once, every address of it is checked, and the connection goes to the address that
was checked: a name that points elsewhere a moment later changes nothing. Redirects are not
followed, proxies of the environment are not used, and what is answered is read to a small bound.
"""

import asyncio
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2

from farmiq.plumbing import addresses, http_client
from farmiq.plumbing.addresses import Address, Allowed

DEADLINE_S = 20.0
RESOLVE_S = 5.0
MAX_ANSWER = 16 * 1024
# Names of one owner that are resolved at once: a thread that hangs outlives RESOLVE_S.
PER_OWNER = 4
# An owner has threads of its own while any of its names is being resolved: nobody waits for
# another's resolver that hangs.
_resolving: dict[str, ThreadPoolExecutor] = {}
_names: Counter[str] = Counter()
_lock = threading.Lock()


class ForbiddenHostError(Exception):
    """The address leads to where we may not send; the text is for whoever set it."""


class NoAnswerError(Exception):
    """No answer: the host is unknown or away, or took too long."""


@dataclass(frozen=True, slots=True)
class Target:
    """A host, and the address of it that was checked."""

    host: str
    address: Address
    is_inside: bool


async def resolve(host: str, port: int, *, allowed: Allowed, owner: str = "") -> Target:
    """The address to connect to. Raises ForbiddenHostError or NoAnswerError.

    `owner` is whose address it is: their names wait for each other, and for nobody else's.
    """
    try:
        async with asyncio.timeout(RESOLVE_S):
            resolved = await asyncio.wrap_future(_resolve(owner, host, port))
    except TimeoutError:
        raise NoAnswerError(f"the name {host} could not be resolved in time") from None
    except (OSError, UnicodeError):
        raise NoAnswerError(f"the name {host} is not known") from None
    if not resolved:
        raise NoAnswerError(f"the name {host} has no address")
    inside = [address for address in resolved if not addresses.is_public(address)]
    if not all(allowed.allows(host, address) for address in inside):
        # One private address is enough: which of them is used must not be a matter of luck.
        raise ForbiddenHostError(
            f"{host} is inside a private network; whoever runs FarmIQ can allow it "
            "(FARMIQ_ALERT_PRIVATE_HOSTS)"
        )
    return Target(host, resolved[0], bool(inside))


def _resolve(owner: str, host: str, port: int) -> "Future[list[Address]]":
    with _lock:
        _names[owner] += 1
        if owner not in _resolving:
            _resolving[owner] = ThreadPoolExecutor(PER_OWNER, thread_name_prefix="resolve")
        pool = _resolving[owner]

    def ended(_: "Future[list[Address]]") -> None:
        with _lock:
            _names[owner] -= 1
            if not _names[owner]:
                del _names[owner]
                _resolving.pop(owner).shutdown(wait=False)

    future = pool.submit(addresses_of, host, port)
    future.add_done_callback(ended)
    return future


def addresses_of(host: str, port: int) -> list[Address]:
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(row[4][0])) for row in rows]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    # The first MAX_ANSWER bytes.
    body: bytes


async def post(
    url: str,
    *,
    content: bytes,
    headers: Mapping[str, str],
    allowed: Allowed,
    context: ssl.SSLContext | None = None,
    deadline_s: float = DEADLINE_S,
    owner: str = "",
) -> Answer:
    """Post to an address that `owner` gave us.

    Raises ForbiddenHostError if we may not, NoAnswerError if no answer came, ValueError if it is no
    address at all.
    """
    addresses.check(url)
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(deadline_s):
            target = await resolve(str(parts.hostname), port, allowed=allowed, owner=owner)
            if parts.scheme == "http" and not target.is_inside:
                raise ForbiddenHostError("messages leave our network over https:// only")
            return await _post(url, target, port, content, headers, context)
    except http_client.FAILED as error:
        raise NoAnswerError(f"no answer from {parts.hostname}: {_why(error)}") from None


def _why(error: Exception) -> str:
    # The text of other errors may quote the address, which may be a secret.
    return "it took too long" if isinstance(error, TimeoutError) else type(error).__name__


async def _post(  # noqa: PLR0917 - the parts of one request
    url: str,
    target: Target,
    port: int,
    content: bytes,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
) -> Answer:
    parts = urlsplit(url)
    literal = f"[{target.address}]" if target.address.version == 6 else str(target.address)  # noqa: PLR2004
    to = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
    named = {"Host": parts.netloc, "Accept-Encoding": "identity", "User-Agent": "FarmIQ"}
    async with (
        httpx2.AsyncClient(
            verify=context or _default_context(), trust_env=False, follow_redirects=False
        ) as client,
        client.stream(
            "POST",
            to,
            content=content,
            headers={**headers, **named},
            # Certificates are checked for the name, not for the address that we connect to.
            extensions={"sni_hostname": target.host},
        ) as response,
    ):
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) >= MAX_ANSWER:
                break
        return Answer(response.status_code, response.headers, bytes(body[:MAX_ANSWER]))


@lru_cache(maxsize=1)
def _default_context() -> ssl.SSLContext:
    return ssl.create_default_context()
