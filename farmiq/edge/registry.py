"""The registry of devices for ingress: a copy in memory accepts, only the table rejects.

The broker's permissions pin a device to its topics; that the topic is where the device is
registered is checked here (C-02). The copy can be a second old, so the table is read before a
message is rejected: a device that was just added is accepted.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farmiq.edge.arrival import Arrival
from farmiq.messages import device
from farmiq.messages.topics import Place, SessionTopic
from farmiq.plumbing import db

# A revoked device may be accepted for so long; the broker disconnects it before.
REFRESH_S = 1.0
# The time of the last message is stored at most so often per heartbeat.
NOTES_PER_HEARTBEAT = 4

NOT_REGISTERED = "NOT_REGISTERED"

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """What ingress needs to know about a device."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    heartbeat_s: int
    wants_receipts: bool
    revoked: bool

    @property
    def key(self) -> Key:
        return self.tenant_id, self.device_id

    @property
    def place(self) -> Place:
        return Place(self.tenant_id, self.farm_id, self.barn_id, self.device_id)


def problem(arrival: Arrival, entry: Entry | None) -> str | None:
    """Why a message cannot be from its device, or None; `entry` is that device's."""
    where, place = arrival.where, arrival.place
    name = f"device {place.device_id!r} of tenant {place.tenant_id!r}"
    if entry is None:
        return f"{NOT_REGISTERED}: {name} is not known; `farmiq device add` registers it"
    if entry.revoked:
        return f"{NOT_REGISTERED}: {name} was revoked"
    if (entry.farm_id, entry.barn_id) != (place.farm_id, place.barn_id):
        return (
            f"{NOT_REGISTERED}: {name} is registered at farm {entry.farm_id!r}, "
            f"barn {entry.barn_id!r}, not at farm {place.farm_id!r}, barn {place.barn_id!r}"
        )
    if isinstance(where, SessionTopic) and entry.station_id != where.station_id:
        return f"{NOT_REGISTERED}: {name} does not stand at station {where.station_id!r}"
    return None


class Registry:
    """A copy of the registry, read before it is used."""

    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._stations: dict[tuple[str, str, str, str | None], Place] = {}
        self._version: int | None = None
        self._checked_at = 0.0
        self._noted_at: dict[Key, float] = {}

    async def problems(self, tx: db.Connection, arrivals: Sequence[Arrival]) -> list[str | None]:
        """For each message the reason to reject it, or None."""
        await self._refresh(tx)
        reasons = [self._problem(arrival) for arrival in arrivals]
        doubtful = {
            _key(arrival) for arrival, reason in zip(arrivals, reasons, strict=True) if reason
        }
        if not doubtful:
            return reasons
        await self._look_up(tx, doubtful)
        return [
            reason and self._problem(arrival)
            for arrival, reason in zip(arrivals, reasons, strict=True)
        ]

    def knows(self, place: Place) -> bool:
        """Whether such a device was ever registered."""
        return (place.tenant_id, place.device_id) in self._entries

    def at_station(self, where: SessionTopic) -> Place | None:
        """The device at that station: the broker lets no other publish on its topics."""
        return self._stations.get((where.tenant_id, where.farm_id, where.barn_id, where.station_id))

    def wants_receipts(self, place: Place) -> bool:
        entry = self._entries.get((place.tenant_id, place.device_id))
        return (
            entry is not None
            and entry.wants_receipts
            and not entry.revoked
            and (entry.farm_id, entry.barn_id) == (place.farm_id, place.barn_id)
        )

    def to_note(self, arrivals: Iterable[Arrival]) -> list[Key]:
        """Devices whose time of the last message should be stored now.

        The handler of a status stores it too; what follows a status is stored at once.
        """
        now = time.monotonic()
        heard: set[Key] = set()
        for arrival in arrivals:
            key = _key(arrival)
            if arrival.kind == device.STATUS:
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
        if self._version is not None and now - self._checked_at < REFRESH_S:
            return
        # The version first: rows that are newer only mean that it is read once more.
        version = await db.fetch_value(tx, "select version from devices_version")
        if version != self._version:
            entries = {entry.key: entry for entry in await all_entries(tx)}
            self._noted_at = {key: at for key, at in self._noted_at.items() if key in entries}
            self._entries, self._version = entries, version
            self._stations = {
                (entry.tenant_id, entry.farm_id, entry.barn_id, entry.station_id): entry.place
                for entry in entries.values()
                if entry.station_id and not entry.revoked
            }
        self._checked_at = now

    async def _look_up(self, tx: db.Connection, keys: set[Key]) -> None:
        entries = {entry.key: entry for entry in await entries_of(tx, sorted(keys))}
        for key in keys:
            if key in entries:
                self._entries[key] = entries[key]
            else:
                self._entries.pop(key, None)


_ENTRY = """
  select d.tenant_id, d.farm_id, d.barn_id, d.device_id, d.station_id, d.heartbeat_s,
    d.wants_receipts, d.revoked_at is not null as revoked
  from devices d
"""


async def all_entries(tx: db.Connection) -> list[Entry]:
    return await db.fetch_as(tx, Entry, _ENTRY)


async def entries_of(tx: db.Connection, keys: Sequence[Key]) -> list[Entry]:
    return await db.fetch_as(
        tx,
        Entry,
        _ENTRY + "join unnest(%s::text[], %s::text[]) as k(tenant_id, device_id) "
        "using (tenant_id, device_id)",
        ([tenant_id for tenant_id, _ in keys], [device_id for _, device_id in keys]),
    )


def _key(arrival: Arrival) -> Key:
    return arrival.place.tenant_id, arrival.place.device_id


async def is_known_tenant(tx: db.Connection, tenant_id: str) -> bool:
    """Whether a device, even a revoked one, or a farm of this edge is the tenant's."""
    known: bool = await db.fetch_value(
        tx,
        "select exists (select from devices where tenant_id = %s) "
        "or exists (select from farms where tenant_id = %s) "
        "or exists (select from cloud_farms where tenant_id = %s)",
        tenant_id,
        tenant_id,
        tenant_id,
    )
    return known
