"""What no company can be told of: cameras that nobody registered, and what the broker refused.

For who runs the platform: a metric with one alert each, and few lines in the log, however many
addresses somebody invents.
"""

from collections.abc import Awaitable, Callable, Collection

import prometheus_client

from farmiq.cloud.camera import strangers
from farmiq.cloud.camera.gateway import logins
from farmiq.plumbing import broker_log, broker_store, db, log
from farmiq.plumbing.broker_callout import Callout
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.follow import Follower

NAME = "cloud-camera-gateway"
MOST_SENDERS = 200

UNKNOWN = prometheus_client.Gauge(
    "farmiq_cameras_unknown", "Cameras heard within a day that nobody registered"
)
BROKER_REFUSED = prometheus_client.Counter(
    "farmiq_camera_broker_refusals_total", "What the cameras' broker says it refused", ["kind"]
)


STORE_USE = prometheus_client.Gauge(
    "farmiq_camera_broker_store_ratio", "How full the store of the cameras' broker is, 0 to 1"
)


class StoreUse:
    """Says so once when the broker fills up, and once when that is over."""

    def __init__(self, store: Store) -> None:
        self._store, self._told = store, False

    async def look(self) -> dict[str, object]:
        use = self._store.use
        if use is None:
            return {}
        STORE_USE.set(use.share)
        if use.share >= broker_store.WARN_SHARE and not self._told:
            log.get(NAME).error("camera.broker_fills_up", reason=use.words())
            self._told = True
        elif use.share < broker_store.CALM_SHARE and self._told:
            log.get(NAME).info("camera.broker_has_room", reason=use.words())
            self._told = False
        return {}


class Strangers:
    """Says so when there are twice as many as it said last: a thousand addresses are ten lines."""

    def __init__(self) -> None:
        self._told = 0

    async def look(self, pool: db.Pool) -> dict[str, object]:
        async with pool.connection() as connection:
            count = await strangers.count(connection)
        UNKNOWN.set(count)
        if count and count >= 2 * self._told:
            log.get(NAME).warning("camera.unknown", count=count, reason="nobody registered them")
            self._told = count
        self._told = min(self._told, count)
        return {}


class Refusals:
    """Of the broker's log and of our own: each sender and kind of refusal is a line, once.

    Logins that are `paused` are refused because we said so.
    """

    def __init__(
        self,
        follower: Follower | None,
        *,
        asked: Callout | None = None,
        paused: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._follower, self._asked, self._paused = follower, asked, paused
        self._told: set[tuple[str, str]] = set()
        if follower is not None:
            follower.look()

    async def look(self) -> dict[str, object]:
        lines, skipped = self._follower.look() if self._follower is not None else ([], 0)
        found = [refusal for line in lines if (refusal := broker_log.read(line))]
        if self._asked is not None:
            # A camera that takes its own place was cut off, no more.
            found = [
                one
                for one in found
                if self._asked.believes(one) and not logins.is_proven(one.client_id or "")
            ]
            found += [
                broker_log.Refusal(
                    one.kind,
                    one.host if one.kind == broker_log.LOGIN else one.user,
                    f"login {one.user!r} from {one.host}: {one.reason}",
                    one.user,
                )
                for one in self._asked.refusals().elements()
            ]
        if self._paused is not None and any(one.login for one in found):
            paused = await self._paused()
            found = [one for one in found if one.login not in paused]
        for one in found:
            BROKER_REFUSED.labels(kind=one.kind).inc()
            matter = (one.kind, one.sender)
            if matter not in self._told and len(self._told) < MOST_SENDERS:
                self._told.add(matter)
                told = f"{one.kind} by {one.sender}: {one.words}"
                log.get(NAME).warning("camera.broker_refused", reason=told)
        if skipped:
            log.get(NAME).warning("camera.broker_log_skipped", count=skipped)
        return {"refusals": len(found), "skipped": skipped} if found or skipped else {}
