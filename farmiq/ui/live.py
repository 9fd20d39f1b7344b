"""Live pages: one LISTEN per process, passed on to the browsers of the company that changed.

services --NOTIFY …_changed with the company--> [hub]
[hub] --Server-Sent Events: "fetch again"--> browsers
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from farmiq.plumbing import db, listen

# After 25 s without a beat, a page says that its data may be old.
BEAT_S = 10.0
# The minimum time between two messages to a browser.
PAUSE_S = 1.0
MAX_PER_SIGN_IN = 10

# The topics of pages, and the database channels of their changes.
TELEMETRY, WEIGHVISION, CAMERA = "telemetry", "weighvision", "camera"
ALERTS, FIGURES, DELIVERY = "alerts", "figures", "delivery"
TOPICS = (TELEMETRY, WEIGHVISION, CAMERA, ALERTS, FIGURES, DELIVERY)
# A page about everything, such as Today.
ANY = "any"
CHANNELS = {about: f"{about}_changed" for about in TOPICS}

# A browser cannot see comments of the stream, so the beat is an event too.
BEAT = b"event: beat\ndata: {}\n\n"
CHANGED = b"event: changed\ndata: {}\n\n"
# This process gets no notifications from the database: people must know.
DEAF = b"event: deaf\ndata: {}\n\n"


@dataclass(eq=False)
class Subscription:
    company_id: str
    sign_in: bytes
    about: str
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Hub:
    """The open live pages, and whether this process gets notifications itself."""

    listening: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _subscriptions: set[Subscription] = field(default_factory=set)
    _changes: Counter[str] = field(default_factory=Counter)
    _restarts: int = 0

    @contextlib.contextmanager
    def subscribe(self, company_id: str, *, sign_in: bytes, about: str) -> Iterator[Subscription]:
        subscription = Subscription(company_id, sign_in, about)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    @property
    def is_watched(self) -> bool:
        """Whether any page is open."""
        return bool(self._subscriptions)

    def is_full(self, sign_in: bytes) -> bool:
        """Whether one sign-in has as many live pages open as it may."""
        return (
            sum(subscription.sign_in == sign_in for subscription in self._subscriptions)
            >= MAX_PER_SIGN_IN
        )

    def version(self, company_id: str) -> int:
        """Grows with every change of the company, and when changes may have been missed."""
        return self._restarts + self._changes[company_id]

    def changed(self, company_id: str, about: str = TELEMETRY) -> None:
        self._changes[company_id] += 1
        for subscription in self._subscriptions:
            if subscription.company_id == company_id and subscription.about in (about, ANY):
                subscription.woken.set()

    def hear(self, listening: bool) -> None:  # noqa: FBT001 - a callback of listen.run
        """Notifications come again, or no longer: every page may be old."""
        self.listening = listening
        self._restarts += 1
        self._wake_all()

    def close(self) -> None:
        """The server stops: every stream ends."""
        self.closing.set()
        self._wake_all()

    async def close_when(self, stopping: asyncio.Event) -> None:
        """So that a server that stops does not wait for browsers."""
        await stopping.wait()
        self.close()

    def _wake_all(self) -> None:
        for subscription in self._subscriptions:
            subscription.woken.set()


async def stream(
    hub: Hub,
    *,
    company_id: str,
    sign_in: bytes,
    lasts_s: float,
    signed_in: Callable[[], Awaitable[object | None]],
    about: str = TELEMETRY,
) -> AsyncIterator[bytes]:
    """The messages to one browser, until the server stops or the sign-in expires or ends.

    The first is "changed": something may have changed between the page and this stream.
    `signed_in` is asked before each beat; after "changed" the page asks by itself.
    """
    clock = asyncio.get_running_loop().time
    ends_at = clock() + lasts_s
    with hub.subscribe(company_id, sign_in=sign_in, about=about) as subscription:
        woken = True
        while not hub.closing.is_set() and clock() < ends_at:
            yield message(listening=hub.listening, woken=woken)
            await _set_within(hub.closing, PAUSE_S)
            woken = await _set_within(subscription.woken, BEAT_S)
            subscription.woken.clear()
            if not woken and hub.listening and await _has_ended(signed_in):
                return


async def _has_ended(signed_in: Callable[[], Awaitable[object | None]]) -> bool:
    try:
        return await signed_in() is None
    except db.UNAVAILABLE:
        return False  # the next beat asks again


def message(*, listening: bool, woken: bool) -> bytes:
    if not listening:
        return DEAF
    return CHANGED if woken else BEAT


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def run(url: str, hub: Hub, *, name: str) -> None:
    """Listen to the database for ever; the hub knows when that fails."""

    def on_notice(channel: str, company_id: str) -> None:
        hub.changed(company_id, channel.removesuffix("_changed"))

    await listen.run(url, CHANNELS.values(), name=name, on_notice=on_notice, on_listening=hub.hear)
