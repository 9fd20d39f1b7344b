"""Who sends how much, as the broker counts it: NATS' monitoring endpoint, connection by connection.

What waits in the broker's queue is not ours to count: an hour's backlog that we take in a minute
says nothing of how fast anybody sent it, and a flood is seen long after it came.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx2
import msgspec

from farmiq.plumbing import hosts, log
from farmiq.plumbing.backoff import Attempts
from farmiq.plumbing.broker.flood import Flow

PAGE = 1024
# Of connections that are over, last first: mostly few, at most what the broker remembers.
CLOSED_PAGES = (64, *[PAGE] * 10)
# Endings are listed in order but for a moment: so much is read again, and counted once.
OVERLAP = timedelta(seconds=1)
TIMEOUT_S = 5.0


class Connection(msgspec.Struct, frozen=True):
    """`in_msgs` and `in_bytes` grow as long as the connection lasts."""

    cid: int
    in_msgs: int
    in_bytes: int = 0
    authorized_user: str = ""
    mqtt_client: str = ""
    # When it ended; None while it is open.
    stop: datetime | None = None


class Page(msgspec.Struct, frozen=True):
    """What /connz answers; another server_id is another run of the broker."""

    server_id: str
    total: int
    connections: list[Connection] = []


_page = msgspec.json.Decoder(Page)
_NOTHING = Connection(0, 0)
_EVER = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sent:
    """By user."""

    messages: Counter[str]
    size_bytes: Counter[str]


def since(before: Mapping[int, Connection], connections: Iterable[Connection]) -> Sent:
    """What was not counted before, by user; of a new connection, all of it."""
    messages: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    for connection in connections:
        known = before.get(connection.cid, _NOTHING)
        messages[connection.authorized_user] += max(0, connection.in_msgs - known.in_msgs)
        size_bytes[connection.authorized_user] += max(0, connection.in_bytes - known.in_bytes)
    return Sent(+messages, +size_bytes)


class Load:
    """What comes to a broker, at all its nodes; `problem` says where nobody is counted, or None."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._nodes = [_Node(client, node) for node in hosts.split(url)]

    @property
    def problem(self) -> str | None:
        return next((node.problem for node in self._nodes if node.problem), None)

    async def look(self) -> Sent:
        """What came since the last look; nothing of a node that does not answer."""
        sent = Sent(Counter(), Counter())
        for node in self._nodes:
            there = await node.look()
            sent.messages.update(there.messages)
            sent.size_bytes.update(there.size_bytes)
        return sent

    async def connections(self) -> dict[str, list[Connection]]:
        """By server id who is connected. Raises as httpx2 and msgspec do if no node answers."""
        by_server, error = dict[str, list[Connection]](), None
        for node in self._nodes:
            try:
                server_id, by_server[server_id] = await node.connections()
            except (httpx2.HTTPError, msgspec.DecodeError) as problem:
                error = problem
        if not by_server and error is not None:
            raise error
        return by_server


class _Node:
    """Counts each connection, also one that is over: short ones carry as much as long ones."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client, self._url = client, url.rstrip("/") + "/connz"
        self._server_id: str | None = None
        self._before: dict[int, Connection] = {}
        # Until when we know who has ended.
        self._ended_at = _EVER
        self._attempts = Attempts(f"nobody is held back: {self._url} does not tell who sends")

    @property
    def problem(self) -> str | None:
        return self._attempts.problem

    async def look(self) -> Sent:
        """What came since the last look; nothing if the broker does not answer."""
        try:
            with self._attempts:
                # Who ends between the two is in both.
                server_id, connections = await self.connections()
                ended = await self._ended(all_of=server_id != self._server_id)
        except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError):
            return Sent(Counter(), Counter())
        now = {connection.cid: connection for connection in (*connections, *ended)}
        if server_id != self._server_id:
            # Connections that we find when we start sent what they sent over hours.
            self._server_id, self._before = server_id, {} if self._server_id else now
        sent = since(self._before, now.values())
        self._before = now
        return sent

    async def _ended(self, *, all_of: bool) -> list[Connection]:
        """Connections that are over, those that the last look may have missed at least."""
        known = _EVER if all_of else self._ended_at
        ended_by_id: dict[int, Connection] = {}
        offset = 0
        for limit in CLOSED_PAGES:
            page = await self._fetch_page(offset, state="closed", sort="stop", limit=limit)
            new = [
                connection
                for connection in page.connections
                if connection.stop and connection.stop >= known - OVERLAP
            ]
            ended_by_id.update((connection.cid, connection) for connection in new)
            offset += limit
            if len(new) < limit:
                break
        self._ended_at = max(
            [known, *(connection.stop for connection in ended_by_id.values() if connection.stop)]
        )
        return list(ended_by_id.values())

    async def connections(self) -> tuple[str, list[Connection]]:
        """The server's id and who is connected. Raises as httpx2 and msgspec do."""
        open_by_id: dict[int, Connection] = {}
        offset = 0
        while True:
            page = await self._fetch_page(offset, state="open", sort="cid")
            open_by_id.update((connection.cid, connection) for connection in page.connections)
            offset += PAGE
            if offset >= page.total or not page.connections:
                return page.server_id, list(open_by_id.values())

    async def _fetch_page(self, offset: int, *, state: str, sort: str, limit: int = PAGE) -> Page:
        response = await self._client.get(
            self._url,
            params={"auth": "1", "state": state, "sort": sort, "limit": limit, "offset": offset},
            timeout=TIMEOUT_S,
        )
        return _page.decode(response.raise_for_status().content)


class Guard:
    """Has whoever sends more than it may held back: `hold_back` says for how many seconds.

    `flow` counts messages, `flow_bytes` bytes: few long ones fill a broker as well as many.
    `ours` are the logins of our own services, which send on behalf of all.
    """

    def __init__(
        self,
        load: Load,
        flow: Flow,
        flow_bytes: Flow,
        *,
        ours: Collection[str],
        hold_back: Callable[[str, Flow], Awaitable[float]],
    ) -> None:
        self._load, self._flows = load, (flow, flow_bytes)
        self._ours, self._hold_back = ours, hold_back

    async def look(self) -> dict[str, object]:
        problem_before = self._load.problem
        sent = await self._load.look()
        if self._load.problem is not None and problem_before is None:
            log.get("broker").warning("broker.load", reason=self._load.problem)
        beyond: dict[str, Flow] = {}
        for flow, counts in zip(self._flows, (sent.messages, sent.size_bytes), strict=True):
            for login in self._ours:
                counts.pop(login, None)
            beyond |= dict.fromkeys(flow.beyond(counts, now=time.monotonic()), flow)
        for user, exceeded in sorted(beyond.items(), key=lambda item: item[0]):
            lasts_s = await self._hold_back(user, exceeded)
            for flow in self._flows:
                flow.pause(user, lasts_s=lasts_s, now=time.monotonic())
        return {"floods": len(beyond)}
