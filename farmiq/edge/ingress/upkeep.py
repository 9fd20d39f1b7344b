"""The door's chores: ids that are old enough are forgotten, quarantine and disks stay in bounds."""

import asyncio
import itertools
import math
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.edge import alerts, audit, diary, disk, losses, retention
from farmiq.edge.barn import store as barn
from farmiq.edge.disk import Levels, Usage
from farmiq.edge.ingress import gaps, quarantine, refusals, store
from farmiq.edge.ingress.store import Boot
from farmiq.edge.telemetry import jobs as telemetry
from farmiq.plumbing import db, deadletters, log
from farmiq.plumbing.clock import NO_AGE_DAYS, AgeGuard
from farmiq.plumbing.schedule import Job

DEDUPE_EVERY_S = 30 * 60.0
BOUNDS_EVERY_S = 30.0
GAPS_EVERY_S = 60.0
DISK_EVERY_S = 60.0
QUARANTINE_PORTION = 1_000
# A device keeps what it could not send for 72 h; a day more for the way (C-35).
DEVICE_BUFFER_HOURS = 72
SAFE_TTL_HOURS = DEVICE_BUFFER_HOURS + 24
BOOT_DAYS = 90
MAX_BOOTS = 16
KIND = "edge.disk"
MEASURING = "measuring"  # and the path

ROWS = prometheus_client.Gauge("farmiq_quarantine_rows", "Messages in quarantine")
BYTES = prometheus_client.Gauge("farmiq_quarantine_bytes", "Bytes of what is in quarantine")
FORGOTTEN = prometheus_client.Counter("farmiq_dedupe_forgotten_total", "Ids past their time")
DROPPED = prometheus_client.Counter(
    "farmiq_quarantine_dropped_total", "Messages dropped from quarantine, all on the loss ledger"
)
GAPS = prometheus_client.Gauge("farmiq_ingress_seq_gaps", "Open gaps in devices' numbers")
MISSING = prometheus_client.Gauge("farmiq_ingress_seq_missing", "Numbers missing in these gaps")
DISK = prometheus_client.Gauge("farmiq_disk_used_percent", "How full a disk is", ["path"])
SHED = prometheus_client.Counter("farmiq_disk_shed_total", "Things removed for space", ["what"])

Read = Callable[[str], Usage]
IsActive = Callable[[], bool]


def alone() -> bool:
    """For an edge that has no other gateway."""
    return True


@dataclass(frozen=True, slots=True)
class Shedder:
    """`do` removes what can be spared and returns how many things that were."""

    name: str
    do: Callable[[], Awaitable[int]]


def jobs_of(pool: db.Pool, settings: EdgeSettings, *, is_active: IsActive) -> list[Job]:
    _say_ttl(settings.dedupe_ttl_hours)
    return [
        Job(
            "ingress.dedupe",
            DEDUPE_EVERY_S,
            AgeGuard(pool, "ingress.dedupe").guard(lambda: forget_ids(pool, settings)),
        ),
        Job(
            "ingress.quarantine",
            BOUNDS_EVERY_S,
            AgeGuard(pool, "ingress.quarantine").guard(
                lambda: bound_quarantine(pool, settings),
                otherwise=lambda: bound_quarantine(pool, settings, days=NO_AGE_DAYS),
            ),
        ),
        Job("ingress.gaps", GAPS_EVERY_S, lambda: count_gaps(pool)),
        Job(KIND, DISK_EVERY_S, Guard(pool, settings, is_active=is_active).look),
        diary.daily(pool, settings, "ingress.boots", lambda: forget_boots(pool)),
        diary.daily(pool, settings, "ingress.retention", lambda: forget_the_rest(pool, settings)),
    ]


def _say_ttl(hours: float) -> None:
    """The documents' 72 h equal what a device may hold back; a longer memory is safer (C-35)."""
    if hours < SAFE_TTL_HOURS:
        loud = log.get("edge-ingress-gateway").warning
        say = log.get("edge-ingress-gateway").info if hours >= DEVICE_BUFFER_HOURS else loud
        say("ingress.dedupe_ttl", limit=SAFE_TTL_HOURS, reason=_ttl_reason(hours))


def _ttl_reason(hours: float) -> str:
    return (
        f"INGRESS_DEDUPE_TTL_HOURS is {hours:g}; a device may replay {DEVICE_BUFFER_HOURS} h late. "
        "A repeat after that is caught by the tables' own keys; set 96 to catch it at the door"
    )


# --- ids


async def forget_ids(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Delete what is older than the TTL, portion by portion (DD-06)."""
    gone = await retention.all_of(pool, store.forget_seen, days=settings.dedupe_ttl_hours / 24)
    FORGOTTEN.inc(gone)
    return {"count": gone}


async def forget_boots(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        return {"count": await store.forget_boots(tx, days=BOOT_DAYS, most_boots=MAX_BOOTS)}


# --- what the door writes down beside messages


async def forget_the_rest(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Closed alerts, the audit log, the loss ledger and barn records over their time.

    What the cloud has not got stays.
    """
    count = 0
    for forget, days in (
        (alerts.forget_closed, settings.alert_days),
        (audit.forget, settings.audit_days),
        (losses.forget, settings.loss_days),
        (barn.forget, settings.barn_days),
    ):
        count += await retention.all_of(pool, forget, days=days)
    return {"count": count}


# --- quarantine


async def bound_quarantine(
    pool: db.Pool, settings: EdgeSettings, *, days: float | None = None
) -> dict[str, object]:
    """By age and by bytes; what goes is on the ledger in the same transaction (C-83)."""
    gone = await drop_oldest(
        pool,
        days=days or settings.quarantine_retention_days,
        most_bytes=settings.quarantine_max_bytes,
        reason="quarantine is over its age or its size",
    )
    async with pool.connection() as connection:
        rows, size = await quarantine.size(connection)
    ROWS.set(rows)
    BYTES.set(size)
    return {"count": gone}


async def drop_oldest(pool: db.Pool, *, days: float, most_bytes: int, reason: str) -> int:
    gone = 0
    while True:
        async with db.transaction(pool) as tx:
            old = await quarantine.expired(tx, days=days, most=QUARANTINE_PORTION)
            # Adding up row by row is only worth it when the sum is known to be too much.
            if not old and (await quarantine.size(tx))[1] > most_bytes:
                old = await quarantine.beyond(tx, most_bytes=most_bytes, most=QUARANTINE_PORTION)
            topics = await deadletters.delete(tx, quarantine.TABLE, old) if old else []
            if topics:
                await losses.of_quarantine(tx, map(refusals.place, topics), reason=reason)
        gone += len(topics)
        DROPPED.inc(len(topics))
        if not topics:
            return gone


# --- gaps


async def count_gaps(pool: db.Pool) -> dict[str, object]:
    # A device that makes a new boot_id for every message must not fill our memory.
    await forget_boots(pool)
    async with pool.connection() as connection:
        found = [
            gap for _, all_of_it in by_device(await store.boots(connection)) for gap in all_of_it
        ]
    GAPS.set(len(found))
    MISSING.set(sum(gap.count for gap in found))
    return {}


def by_device(boots: Sequence[Boot]) -> list[tuple[list[Boot], list[gaps.Gap]]]:
    """Each device's boots and its gaps; `boots` come device by device."""
    grouped = itertools.groupby(boots, lambda boot: (boot.seen.tenant_id, boot.seen.device_id))
    devices = [list(group) for _, group in grouped]
    return [(device, gaps.missing([boot.seen for boot in device])) for device in devices]


# --- disks


def shedders(pool: db.Pool, settings: EdgeSettings) -> list[Shedder]:
    """What can be spared, in this order; never anything that the cloud has not got.

    (a) quarantine down to half its bound, onto the ledger; (b) ids past their time; (c) delivered
    readings whose local copy is older than a week.
    """

    async def half_of_quarantine() -> int:
        return await drop_oldest(
            pool,
            days=settings.quarantine_retention_days,
            most_bytes=settings.quarantine_max_bytes // 2,
            reason="the edge's disk is full",
        )

    async def expired_ids() -> int:
        return int(str((await forget_ids(pool, settings))["count"]))

    async def delivered_readings() -> int:
        return await telemetry.purge_delivered_readings(pool, timezone=settings.timezone)

    return [
        Shedder("quarantine", half_of_quarantine),
        Shedder("dedupe", expired_ids),
        Shedder("telemetry", delivered_readings),
    ]


def read_usage(path: str) -> Usage:
    found = shutil.disk_usage(path)
    # Free as we may use it: a file system keeps some blocks for root.
    return Usage(found.used + found.free, found.free)


class Guard:
    """Looks at every disk, alerts, and sheds in order: one step a round, until it is enough.

    Room that a step made shows a while later, if at all, so the next step waits for the next
    measuring. One that finds nothing to remove costs no round. Gateways share a database and not a
    disk: one that stands by only measures.
    """

    def __init__(
        self,
        pool: db.Pool,
        settings: EdgeSettings,
        *,
        read: Read = read_usage,
        order: Sequence[Shedder] | None = None,
        is_active: IsActive = alone,
    ) -> None:
        self._is_active = is_active
        self._pool, self._read, self._paths = pool, read, settings.disk_paths
        self._levels = Levels(settings.disk_warn_percent, settings.disk_shed_percent)
        order = shedders(pool, settings) if order is None else order
        self._shedders = {each.name: each for each in order}
        # What was asked since the disk became too full, or since all were asked.
        self._asked: set[str] = set()

    async def look(self) -> dict[str, object]:
        """One round."""
        removed: dict[str, int] = {}
        while True:
            usage, blind = await asyncio.to_thread(_read_all, self._paths, self._read)
            if not self._is_active():
                self._asked.clear()
                return {"count": sum(removed.values())}
            verdict = disk.judge(usage, self._levels) if usage else None
            name = None if any(removed.values()) else self._next(verdict, removed)
            if name is None:
                break
            removed[name] = await self._shedders[name].do()
            SHED.labels(what=name).inc(removed[name])
            self._asked.add(name)
        async with db.transaction(self._pool) as tx:
            await _tell_blind(tx, blind)
            if verdict is None:
                return {"count": sum(removed.values())}
            await _tell(tx, verdict, removed)
        return {"count": sum(removed.values()), "status": verdict.state if removed else ""}

    def _next(self, verdict: disk.Verdict | None, removed: Mapping[str, int]) -> str | None:
        state = verdict.state if verdict else "fine"
        if state != "shed" or (not removed and len(self._asked) == len(self._shedders)):
            self._asked.clear()
        return disk.next_to_shed(state, self._shedders, self._asked)


def _read_all(setting: str, read: Read) -> tuple[dict[str, Usage], dict[str, str]]:
    """How full the disks are, and why some cannot be measured."""
    usage: dict[str, Usage] = {}
    blind: dict[str, str] = {}
    for path in disk.paths(setting):
        try:
            usage[path] = read(path)
        except OSError as error:
            blind[path] = str(error)
        DISK.labels(path=path).set(usage[path].percent if path in usage else math.nan)
    return usage, blind


async def _tell_blind(tx: db.Connection, blind: Mapping[str, str]) -> None:
    """An alert per disk; also those that were opened before the last start close."""
    told = {f"{MEASURING} {path}": why for path, why in blind.items()}
    for subject in sorted(set(await alerts.open_subjects(tx, KIND)) - told.keys()):
        if subject.startswith(MEASURING):
            await alerts.close(tx, kind=KIND, subject=subject)
    for subject, why in sorted(told.items()):
        message = f"a disk cannot be measured ({why}): mend EDGE_DISK_PATHS, restart the gateway"
        await alerts.raise_(tx, alerts.Alert(KIND, subject, "warning", message))


async def _tell(tx: db.Connection, verdict: disk.Verdict, asked: Mapping[str, int]) -> None:
    if verdict.state == "fine" and not asked:
        await alerts.close(tx, kind=KIND, subject="disk")
        return
    removed = ", ".join(f"{count} of {name}" for name, count in asked.items() if count)
    await alerts.raise_(
        tx,
        alerts.Alert(
            KIND,
            "disk",
            "critical" if verdict.state == "shed" else "warning",
            f"the disk of {verdict.path} is {verdict.percent:.0f} % full"
            + (f"; removed to go on: {removed}" if removed else "")
            + ". Make room: what the cloud has not got is never removed, and when the disk is "
            "full nothing more is taken from devices",
        ),
    )
