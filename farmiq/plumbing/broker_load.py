"""Who sends how much, as the broker counts it: NATS' monitoring endpoint, connection by connection.

What waits in the broker's queue is not ours to count: an hour's backlog that we take in a minute
says nothing of how fast anybody sent it, and a flood is seen long after it came.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

import httpx2
import msgspec

from farmiq.plumbing import log
from farmiq.plumbing.flood import Flow

PAGE = 1024
TIMEOUT_S = 5.0


class Connection(msgspec.Struct, frozen=True):
    """`in_msgs` grows as long as the connection lasts."""

    cid: int
    in_msgs: int
    authorized_user: str = ""


class Page(msgspec.Struct, frozen=True):
    """What /connz answers; another server_id is another run of the broker."""

    server_id: str
    total: int
    connections: list[Connection] = []


_page = msgspec.json.Decoder(Page)


def since(before: Mapping[int, int], connections: Iterable[Connection]) -> Counter[str]:
    """Messages by user that were not counted before; of a new connection, all of them."""
    counts: Counter[str] = Counter()
    for one in connections:
        counts[one.authorized_user] += max(0, one.in_msgs - before.get(one.cid, 0))
    return +counts


class Load:
    """`problem` says why nobody is counted, or None."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client, self._url = client, url.rstrip("/") + "/connz"
        self._server_id: str | None = None
        self._before: dict[int, int] = {}
        self.problem: str | None = None

    async def look(self) -> Counter[str]:
        """Messages by user since the last look; nothing if the broker does not answer."""
        try:
            server_id, connections = await self._ask()
        except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError) as error:
            self.problem = f"nobody is held back: {self._url} does not tell who sends ({error!r})"
            return Counter()
        self.problem = None
        if server_id != self._server_id:
            # Connections that we find when we start sent what they sent over hours.
            known = {} if self._server_id else {one.cid: one.in_msgs for one in connections}
            self._server_id, self._before = server_id, known
        counts = since(self._before, connections)
        self._before = {one.cid: one.in_msgs for one in connections}
        return counts

    async def _ask(self) -> tuple[str, list[Connection]]:
        found: dict[int, Connection] = {}
        offset = 0
        while True:
            said = await self._client.get(
                self._url,
                params={"auth": "1", "sort": "cid", "limit": PAGE, "offset": offset},
                timeout=TIMEOUT_S,
            )
            page = _page.decode(said.raise_for_status().content)
            found.update((one.cid, one) for one in page.connections)
            offset += PAGE
            if offset >= page.total or not page.connections:
                return page.server_id, list(found.values())


class Guard:
    """Has whoever sends more than it may held back: `hold_back` says for how many seconds.

    `ours` is the login of our own services, which send on behalf of all.
    """

    def __init__(
        self,
        load: Load,
        flow: Flow,
        *,
        ours: str,
        hold_back: Callable[[str], Awaitable[float]],
    ) -> None:
        self._load, self._flow, self._ours, self._hold_back = load, flow, ours, hold_back

    async def look(self) -> dict[str, object]:
        told = self._load.problem
        counts = await self._load.look()
        if self._load.problem is not None and told is None:
            log.get("broker").warning("broker.load", reason=self._load.problem)
        counts.pop(self._ours, None)
        beyond = self._flow.beyond(counts, now=time.monotonic())
        for user in beyond:
            lasts_s = await self._hold_back(user)
            self._flow.pause(user, lasts_s=lasts_s, now=time.monotonic())
        return {"floods": len(beyond)}
