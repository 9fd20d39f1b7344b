"""Open connections of a listening socket: bounded in all and per address, fair when full.

socket --accept--> [connections] --a place, or 503--> protocol

A full table closes the connection that has kept us waiting longest. Those that never proved who
they are go first, so idle strangers cannot lock out anybody who works; then those of whoever holds
more than a share of all places, so nobody can do it with one token either. Only a connection for
which we work is safe.
"""

import asyncio
import contextlib
import errno
import functools
import ipaddress
import resource
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field

import prometheus_client

from farmiq.plumbing import log

# Descriptors for everything in the process that is no HTTP connection: databases, files, brokers.
OTHER_DESCRIPTORS = 512
BACKLOG = 1024
# Closes who takes no more of an answer, and who vanished without a word.
STALLED_MS = 60_000
# Of all places one who is known may hold this part before others do not have to make room for them.
SHARE = 4
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_ACCEPT_S = 0.1
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\nContent-Length: 72\r\n\r\n"
    b'{"error":{"code":"UNAVAILABLE","message":"too many open connections"}}\r\n'
)

OPEN = prometheus_client.Gauge("farmiq_http_connections", "Open HTTP connections")
FULL = prometheus_client.Counter(
    "farmiq_http_connections_full_total",
    "Connections closed for a newer one, or refused, by the limit that was reached",
    ["limit", "outcome"],
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (
    ipaddress.ip_network("127.0.0.1/32"),
    ipaddress.ip_network("::1/128"),
)


@dataclass(frozen=True)
class Limits:
    """Behind `proxies` there are many clients: only the limit in all counts for them."""

    total: int = 512
    per_address: int = 128
    proxies: tuple[Network, ...] = LOOPBACK


@dataclass(eq=False)
class Connection:
    """One place in the table; the code that serves the connection updates its fields."""

    address: str
    # Since when we wait for the client to say or take something; None while we work for it.
    waiting_since: float | None
    close: Callable[[], object]
    in_request: bool = False
    authenticated: bool = False
    who: str = ""


@dataclass
class Connections:
    """The table. Time comes in as an argument."""

    limits: Limits = field(default_factory=Limits)
    _open: set[Connection] = field(default_factory=set)
    _by_address: Counter[str] = field(default_factory=Counter)

    def admit(self, host: str, *, now: float, close: Callable[[], object]) -> Connection | None:
        """Return a place for a new connection, or None if there is no room for it."""
        address = address_of(host)
        limits = self.limits
        if (
            self._by_address[address] >= limits.per_address
            and not is_within(host, limits.proxies)
            and not self.make_room("address", address)
        ) or (len(self._open) >= limits.total and not self.make_room("total")):
            return None
        connection = Connection(address, now, close)
        self._open.add(connection)
        self._by_address[address] += 1
        OPEN.inc()
        return connection

    def make_room(self, limit: str, address: str | None = None) -> bool:
        """Close the connection that matters least; False if all are at work."""
        closable = [
            connection
            for connection in self._open
            if connection.waiting_since is not None and address in {None, connection.address}
        ]
        FULL.labels(limit=limit, outcome="closed" if closable else "refused").inc()
        log.get("http").warning("http.connections_full", name=limit, count=len(self._open))
        if not closable:
            return False
        held = Counter(candidate.who for candidate in self._open)
        least = min(
            closable,
            key=lambda candidate: (
                candidate.authenticated,
                held[candidate.who] <= self.limits.total // SHARE,
                candidate.authenticated and candidate.in_request,
                candidate.waiting_since,
            ),
        )
        self.release(least)
        least.close()
        return True

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()

    def release(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        OPEN.dec()


Serve = Callable[[socket.socket, Connection], Coroutine[None, None, object]]


async def accept(listener: socket.socket, connections: Connections, serve: Serve) -> None:
    """Accept until cancelled. `serve` takes over the socket; if it fails, the place is free."""
    loop = asyncio.get_running_loop()
    beginning: set[asyncio.Task[object]] = set()
    try:
        while True:
            # One at a time, so that open connections are served between two new ones.
            await asyncio.sleep(0)
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    connections.make_room("descriptors")
                await asyncio.sleep(_RETRY_ACCEPT_S)
                continue
            place = connections.admit(peer[0], now=loop.time(), close=accepted.close)
            if place is None:
                _refuse(accepted)
                continue
            task = asyncio.create_task(serve(accepted, place))
            place.close = task.cancel
            beginning.add(task)
            task.add_done_callback(functools.partial(_on_accepted, accepted, place, connections))
            task.add_done_callback(beginning.discard)
    finally:
        for task in beginning:
            task.cancel()


def _on_accepted(
    accepted: socket.socket,
    place: Connection,
    connections: Connections,
    task: "asyncio.Task[object]",
) -> None:
    error = None if task.cancelled() else task.exception()
    if task.cancelled() or error is not None:
        connections.release(place)
        accepted.close()
    # A client that hangs up or speaks no TLS is no news.
    if error is not None and not isinstance(error, OSError | TimeoutError):
        log.get("http").error("http.accept_failed", error=repr(error), exc_info=error)


def _refuse(accepted: socket.socket) -> None:
    with contextlib.suppress(OSError):
        accepted.setblocking(False)
        accepted.send(_FULL)
    accepted.close()


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Raises OSError that names the address if it cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle's delay off: without, answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise OSError(
                f"cannot listen on {host}:{port} ({error.strerror}): "
                "stop what uses it or set another port"
            ) from error
        listener.listen(BACKLOG)
        listener.setblocking(False)
        yield listener
    finally:
        listener.close()


def allow_descriptors(connections: int) -> None:
    """Raise the process's own limit of open files, as far as it may, for so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft_limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard))


def address_of(host: str) -> str:
    """Who counts as one client: an IPv4 address, or the /64 that an IPv6 host owns."""
    return _network(host, v4=32, v6=64)


def network_of(host: str) -> str:
    """Who counts as one neighbourhood: 256 IPv4 addresses, or the /48 of an IPv6 site."""
    return _network(host, v4=24, v6=48)


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = _parsed(host)
    return address is not None and any(address in network for network in networks)


def _network(host: str, *, v4: int, v6: int) -> str:
    address = _parsed(host)
    if address is None:
        return host[:64]
    prefix = v4 if isinstance(address, ipaddress.IPv4Address) else v6
    return str(ipaddress.ip_network((address, prefix), strict=False))


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
