"""The registry as the door needs it: a copy in memory says yes, the table alone says no.

The broker's permissions pin a device to its topics; that the topic is where the device is
registered is checked here (C-02). A copy can be a second old, so whoever it does not let in is
looked up in the table before being refused: a device that was just added is not turned away.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farmiq.edge.arrival import Arrival
from farmiq.messages import device
from farmiq.messages.topics import Place, SessionTopic
from farmiq.plumbing import db

# How long a revoked device may still be let in by the copy; the broker has cut it off by then.
REFRESH_S = 1.0
# That a device was heard is noted four times per heartbeat at most.
NOTES_PER_HEARTBEAT = 4

REFUSED = "NOT_REGISTERED"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """What the door has to know of a device."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    heartbeat_s: int
    wants_receipts: bool
    derive_intake: bool
    revoked: bool

    @property
    def key(self) -> Key:
        return self.tenant_id, self.device_id

    @property
    def stands(self) -> Place:
        return Place(self.tenant_id, self.farm_id, self.barn_id, self.device_id)


def problem(arrival: Arrival, entry: Entry | None) -> str | None:
    """Why a message cannot be of the device it says, or None; `entry` is that device's."""
    where, place = arrival.where, arrival.place
    name = f"device {place.device_id!r} of tenant {place.tenant_id!r}"
    if entry is None:
        return f"{REFUSED}: {name} is not known; `farmiq device add` registers it"
    if entry.revoked:
        return f"{REFUSED}: {name} was revoked"
    if (entry.farm_id, entry.barn_id) != (place.farm_id, place.barn_id):
        return (
            f"{REFUSED}: {name} is registered at farm {entry.farm_id!r}, barn {entry.barn_id!r}, "
            f"not at farm {place.farm_id!r}, barn {place.barn_id!r}"
        )
    if isinstance(where, SessionTopic) and entry.station_id != where.station_id:
        return f"{REFUSED}: {name} does not stand at station {where.station_id!r}"
    return None


class Registry:
    """A copy of the registry. It is read before anything is judged by it."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._stations: dict[tuple[str, str, str, str | None], Place] = {}
        self._version: int | None = None
        self._looked_at = 0.0
        self._noted_at: dict[Key, float] = {}

    async def problems(self, tx: db.Connection, arrivals: Sequence[Arrival]) -> list[str | None]:
        """For each message why it is refused, or None."""
        await self._refresh(tx)
        said = [self._problem(one) for one in arrivals]
        doubtful = {_key(one) for one, why in zip(arrivals, said, strict=True) if why}
        if not doubtful:
            return said
        await self._look_up(tx, doubtful)
        return [why and self._problem(one) for one, why in zip(arrivals, said, strict=True)]

    def knows(self, place: Place) -> bool:
        """Whether such a device was ever registered, anywhere."""
        return (place.tenant_id, place.device_id) in self._entries

    def at_station(self, where: SessionTopic) -> Place | None:
        """The device that stands there: the broker lets no other speak on that topic."""
        return self._stations.get((where.tenant_id, where.farm_id, where.barn_id, where.station_id))

    def wants_receipts(self, place: Place) -> bool:
        entry = self._entries.get((place.tenant_id, place.device_id))
        return (
            entry is not None
            and entry.wants_receipts
            and not entry.revoked
            and (entry.farm_id, entry.barn_id) == (place.farm_id, place.barn_id)
        )

    def derives_intake(self, place: Place) -> bool:
        """Whether feed intake is derived from this device's weights (C-47)."""
        entry = self._entries.get((place.tenant_id, place.device_id))
        return entry is not None and entry.derive_intake and not entry.revoked

    def to_note(self, arrivals: Iterable[Arrival]) -> list[Key]:
        """Whose being heard should be written down now: seldom enough to cost nothing.

        A status is noted by whoever records it; what follows it is noted at once.
        """
        now = time.monotonic()
        heard: set[Key] = set()
        for one in arrivals:
            key = _key(one)
            if one.kind == device.STATUS:
                self._noted_at.pop(key, None)
            else:
                heard.add(key)
        due = sorted(key for key in heard if self._is_due(key, now))
        self._noted_at.update(dict.fromkeys(due, now))
        return due

    def _is_due(self, key: Key, now: float) -> bool:
        noted_at = self._noted_at.get(key)
        return noted_at is None or now - noted_at > self._pause(key)

    def _pause(self, key: Key) -> float:
        entry = self._entries.get(key)
        return entry.heartbeat_s / NOTES_PER_HEARTBEAT if entry else 0.0

    def _problem(self, arrival: Arrival) -> str | None:
        return problem(arrival, self._entries.get(_key(arrival)))

    async def _refresh(self, tx: db.Connection) -> None:
        now = time.monotonic()
        if self._version is not None and now - self._looked_at < REFRESH_S:
            return
        # The version first: rows that are newer than it only mean another look.
        version = await db.fetch_value(tx, "select version from devices_version")
        if version != self._version:
            entries = {entry.key: entry for entry in await everybody(tx)}
            self._noted_at = {key: at for key, at in self._noted_at.items() if key in entries}
            self._entries, self._version = entries, version
            self._stations = {
                (each.tenant_id, each.farm_id, each.barn_id, each.station_id): each.stands
                for each in entries.values()
                if each.station_id and not each.revoked
            }
        self._looked_at = now

    async def _look_up(self, tx: db.Connection, keys: set[Key]) -> None:
        found = {entry.key: entry for entry in await some(tx, sorted(keys))}
        for key in keys:
            if key in found:
                self._entries[key] = found[key]
            else:
                self._entries.pop(key, None)


async def everybody(tx: db.Connection) -> list[Entry]:
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, farm_id, barn_id, device_id, station_id, heartbeat_s, wants_receipts,
          derive_intake, revoked_at is not null
        from devices
        """,
    )
    return [Entry(*row) for row in rows]


async def some(tx: db.Connection, keys: Sequence[Key]) -> list[Entry]:
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, d.farm_id, d.barn_id, d.device_id, d.station_id, d.heartbeat_s,
          d.wants_receipts, d.derive_intake, d.revoked_at is not null
        from devices d
        join unnest(%s::text[], %s::text[]) as k(tenant_id, device_id)
          on k.tenant_id = d.tenant_id and k.device_id = d.device_id
        """,
        [tenant_id for tenant_id, _ in keys],
        [device_id for _, device_id in keys],
    )
    return [Entry(*row) for row in rows]


def _key(arrival: Arrival) -> Key:
    return arrival.place.tenant_id, arrival.place.device_id
