"""Live parts of pages: computed once for everybody of a company who looks at the same one.

After a change every open page asks for its part at the same time. All people of a company see the
same rows, so one of them computes it with their own rights and the others of that company get the
same bytes. A part is only for requests that came before the next change was heard, and for a second
at most; nobody gets it without their own sign-in and company checked first.
"""

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from fastapi import Request, Response

from farmiq.ui import i18n, live, look

MAX_AGE_S = 1.0
MAX_PARTS = 500


class LiveView(Protocol):
    """`refresh_at`: when the part changes by itself, as a sensor that turns late."""

    @property
    def now(self) -> datetime: ...
    @property
    def refresh_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Part:
    """`lasts_s`: for how long it is true if nothing arrives."""

    plain: bytes
    compressed: bytes
    lasts_s: float


async def part(template: str, macro: str, view: LiveView) -> Part:
    """Rendered in a thread: a large farm must not delay other requests."""
    lasts_s = MAX_AGE_S
    if view.refresh_at is not None:
        lasts_s = min(lasts_s, (view.refresh_at - view.now).total_seconds())

    def made() -> Part:
        plain = look.part(template, macro, view).encode()
        return Part(plain, gzip.compress(plain, compresslevel=4, mtime=0), lasts_s)

    return await asyncio.to_thread(made)


@dataclass(slots=True)
class _Slot:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    part: Part | None = None
    version: int = -1
    until_s: float = 0.0


@dataclass
class SharedParts:
    hub: live.Hub
    clock: Callable[[], float] = time.monotonic
    _slots: dict[tuple[Any, ...], _Slot] = field(default_factory=dict)

    async def answer(
        self, request: Request, company_id: UUID, make: Callable[[], Awaitable[Part]]
    ) -> Response:
        address = f"{request.url.path}?{request.url.query}"
        shared = await self.get(str(company_id), address, make)
        headers = {**look.HEADERS, "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(shared.plain, media_type="text/html", headers=headers)
        headers["Content-Encoding"] = "gzip"
        return Response(shared.compressed, media_type="text/html", headers=headers)

    async def get(self, company_id: str, address: str, make: Callable[[], Awaitable[Part]]) -> Part:
        """The part of an address, as it is now or was after the last change of the company."""
        version_wanted = self.hub.version(company_id)
        slot = self._slot((company_id, i18n.language(), address))
        async with slot.lock:
            # Requests that waited here get what was computed after they came.
            if slot.part and slot.version >= version_wanted and self.clock() < slot.until_s:
                return slot.part
            version = self.hub.version(company_id)
            began_s = self.clock()
            slot.part = await make()
            # Without notifications nobody knows when it is old.
            lasts_s = slot.part.lasts_s if self.hub.listening else 0.0
            slot.version, slot.until_s = version, began_s + lasts_s
            return slot.part

    def _slot(self, key: tuple[Any, ...]) -> _Slot:
        slot = self._slots.get(key)
        if slot is None:
            if len(self._slots) >= MAX_PARTS:
                self._purge()
            slot = self._slots[key] = _Slot()
        return slot

    def _purge(self) -> None:
        now_s = self.clock()
        for key, slot in list(self._slots.items()):
            if slot.until_s <= now_s and not slot.lock.locked():
                del self._slots[key]
