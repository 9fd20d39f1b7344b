"""Jobs of ingress: purge old ids, limit quarantine, count gaps, watch the disks."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from prometheus_client import Counter, Gauge

from farmiq.config import EdgeSettings
from farmiq.edge import alerts, disk, losses
from farmiq.edge.daily import retention_job
from farmiq.edge.disk import Thresholds, Usage
from farmiq.edge.ingress import quarantine, rules, store
from farmiq.edge.ingress.store import Boot
from farmiq.edge.telemetry import jobs as telemetry
from farmiq.messages.wording import worded
from farmiq.plumbing import db, deadletters, log, retention
from farmiq.plumbing.messaging import nats, stream
from farmiq.plumbing.messaging.cursor import CROWDED_SHARE, Cursors
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.clock import NO_AGE_DAYS, AgeGuard
from farmiq.plumbing.runtime.schedule import Job

NAME = "edge-ingress-gateway"
DEDUPE_EVERY_S = 30 * 60.0
BOUNDS_EVERY_S = 30.0
GAPS_EVERY_S = 60.0
DISK_EVERY_S = 60.0
QUARANTINE_PORTION = 1_000
# A device stores what it cannot send for 72 h; one more day for the transport (C-35).
DEVICE_BUFFER_HOURS = 72
SAFE_TTL_HOURS = DEVICE_BUFFER_HOURS + 24
BOOT_DAYS = 90
MAX_BOOTS = 16
DISK_KIND = "edge.disk"
MEASURING = "measuring"  # and the path

ROWS = Gauge("farmiq_quarantine_rows", "Messages in quarantine")
BYTES = Gauge("farmiq_quarantine_bytes", "Bytes of what is in quarantine")
IDS_PURGED = Counter("farmiq_dedupe_forgotten_total", "Ids past their time")
DROPPED = Counter(
    "farmiq_quarantine_dropped_total", "Messages dropped from quarantine, all on the loss ledger"
)
GAPS = Gauge("farmiq_ingress_seq_gaps", "Open gaps in devices' numbers")
MISSING = Gauge("farmiq_ingress_seq_missing", "Numbers missing in these gaps")
DISK = Gauge("farmiq_disk_used_percent", "How full a disk is", ["path"])
SHED = Counter("farmiq_disk_shed_total", "Things removed for space", ["what"])

Read = Callable[[str], Usage]
IsActive = Callable[[], bool]
# Removes what is not needed and returns how many items it removed.
Shed = Callable[[], Awaitable[int]]


def always_active() -> bool:
    """For an edge with one gateway."""
    return True


def jobs_of(pool: db.Pool, settings: EdgeSettings, *, is_active: IsActive) -> list[Job]:
    log_ttl(settings.dedupe_ttl_hours)
    return [
        Job(
            "ingress.dedupe",
            DEDUPE_EVERY_S,
            AgeGuard(pool, "ingress.dedupe").guard(lambda: purge_ids(pool, settings)),
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
        Job(DISK_KIND, DISK_EVERY_S, DiskGuard(pool, settings, is_active=is_active).look),
        retention_job(pool, settings, "ingress.retention", *records(settings)),
    ]


def log_ttl(hours: float) -> None:
    """Warn if a device may replay events after their ids were purged (C-35)."""
    if hours < SAFE_TTL_HOURS:
        logger = log.get(NAME)
        write = logger.info if hours >= DEVICE_BUFFER_HOURS else logger.warning
        write("ingress.dedupe_ttl", limit=SAFE_TTL_HOURS, reason=_ttl_reason(hours))


def _ttl_reason(hours: float) -> str:
    return (
        f"INGRESS_DEDUPE_TTL_HOURS is {hours:g}; a device may replay {DEVICE_BUFFER_HOURS} h late. "
        "A duplicate after that is rejected by the keys of the tables; set 96 to find it in ingress"
    )


# --- ids


async def purge_ids(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Delete ids older than the TTL, in portions (DD-06)."""
    ids = Retention("ingress_dedupe", "first_seen_at", settings.dedupe_ttl_hours / 24)
    gone = await retention.purge(pool, ids)
    IDS_PURGED.inc(gone)
    return {"count": gone}


async def purge_boots(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        return {"count": await store.purge_boots(tx, days=BOOT_DAYS, max_boots=MAX_BOOTS)}


# --- records beside messages


def records(settings: EdgeSettings) -> list[Retention]:
    """Closed alerts, audit entries, losses and barn records; what the cloud does not have stays.

    Services may only add to the audit log and the ledger: nobody can delete what is younger than
    30 days.
    """
    return [
        Retention("alerts", "closed_at", settings.alert_days),
        Retention("audit_log", "at", settings.audit_days, function="fn_forget_audit"),
        Retention("loss_ledger", "recorded_at", settings.loss_days, function="fn_forget_losses"),
        Retention("barn_records", "stored_at", settings.barn_days, "not fn_unsynced(event_id)"),
    ]


# --- quarantine


async def bound_quarantine(
    pool: db.Pool, settings: EdgeSettings, *, days: float | None = None
) -> dict[str, object]:
    """Delete by age and by bytes; the loss ledger is written in the same transaction (C-83)."""
    gone = await drop_oldest(
        pool,
        days=days or settings.quarantine_retention_days,
        max_bytes=settings.quarantine_max_bytes,
        reason="quarantine is over its age or its size",
    )
    async with pool.connection() as connection:
        rows, size = await quarantine.size(connection)
    ROWS.set(rows)
    BYTES.set(size)
    return {"count": gone}


async def drop_oldest(pool: db.Pool, *, days: float, max_bytes: int, reason: str) -> int:
    gone = 0
    while True:
        async with db.transaction(pool) as tx:
            old = await quarantine.expired(tx, days=days, max_rows=QUARANTINE_PORTION)
            # The sum row by row is slow: only when the total is known to be too large.
            if not old and (await quarantine.size(tx))[1] > max_bytes:
                old = await quarantine.beyond(tx, max_bytes=max_bytes, max_rows=QUARANTINE_PORTION)
            topics = await deadletters.delete(tx, quarantine.TABLE, old) if old else []
            if topics:
                await losses.of_quarantine(tx, map(rules.place, topics), reason=reason)
        gone += len(topics)
        DROPPED.inc(len(topics))
        if not topics:
            return gone


# --- gaps


async def count_gaps(pool: db.Pool) -> dict[str, object]:
    # A device that sends a new boot_id with every message must not fill the table.
    await purge_boots(pool)
    async with pool.connection() as connection:
        devices = by_device(await store.boots(connection))
    open_gaps = [gap for _, device_gaps in devices for gap in device_gaps]
    GAPS.set(len(open_gaps))
    MISSING.set(sum(gap.count for gap in open_gaps))
    return {}


def by_device(boots: Sequence[Boot]) -> list[tuple[list[Boot], list[rules.Gap]]]:
    """(boots, gaps) of each device; `boots` are sorted by device."""
    grouped = itertools.groupby(boots, lambda boot: (boot.seen.tenant_id, boot.seen.device_id))
    devices = [list(group) for _, group in grouped]
    return [(device, rules.missing([boot.seen for boot in device])) for device in devices]


# --- disks


def shedders(pool: db.Pool, settings: EdgeSettings) -> dict[str, Shed]:
    """What is removed, in this order; never anything that the cloud does not have.

    (a) quarantine down to half its limit, with an entry in the loss ledger; (b) expired ids;
    (c) delivered readings older than a week.
    """

    async def half_of_quarantine() -> int:
        return await drop_oldest(
            pool,
            days=settings.quarantine_retention_days,
            max_bytes=settings.quarantine_max_bytes // 2,
            reason="the edge's disk is full",
        )

    async def expired_ids() -> int:
        return int(str((await purge_ids(pool, settings))["count"]))

    async def delivered_readings() -> int:
        return await telemetry.purge_delivered_readings(pool, timezone=settings.timezone)

    return {
        "quarantine": half_of_quarantine,
        "dedupe": expired_ids,
        "telemetry": delivered_readings,
    }


class DiskGuard:
    """Measures each disk, raises alerts and removes data in order, one step in each round.

    Free space may show some time after a step, so the next step waits for the next round. A step
    that removes nothing is followed by the next one at once. Gateways share a database but no
    disk: a standby only measures.
    """

    def __init__(
        self,
        pool: db.Pool,
        settings: EdgeSettings,
        *,
        read: Read = disk.read_usage,
        order: Mapping[str, Shed] | None = None,
        is_active: IsActive = always_active,
    ) -> None:
        self._is_active = is_active
        self._pool, self._read, self._paths = pool, read, settings.disk_paths
        self._thresholds = Thresholds(settings.disk_warn_percent, settings.disk_shed_percent)
        self._shedders = shedders(pool, settings) if order is None else order
        # Names tried since the disk became too full, or since all were tried.
        self._tried: set[str] = set()

    async def look(self) -> dict[str, object]:
        """One round."""
        removed: dict[str, int] = {}
        while True:
            usage, unreadable = await asyncio.to_thread(_read_all, self._paths, self._read)
            if not self._is_active():
                self._tried.clear()
                return {"count": sum(removed.values())}
            fullness = disk.assess(usage, self._thresholds) if usage else None
            name = None if any(removed.values()) else self._next(fullness, removed)
            if name is None:
                break
            removed[name] = await self._shedders[name]()
            SHED.labels(what=name).inc(removed[name])
            self._tried.add(name)
        async with db.transaction(self._pool) as tx:
            await _alert_unreadable(tx, unreadable)
            if fullness is None:
                return {"count": sum(removed.values())}
            await _alert_full(tx, fullness, removed)
        return {"count": sum(removed.values()), "status": fullness.state if removed else ""}

    def _next(self, fullness: disk.Fullness | None, removed: Mapping[str, int]) -> str | None:
        state = fullness.state if fullness else "fine"
        if state != "shed" or (not removed and len(self._tried) == len(self._shedders)):
            self._tried.clear()
        return disk.next_to_shed(state, self._shedders, self._tried)


def _read_all(setting: str, read: Read) -> tuple[dict[str, Usage], dict[str, str]]:
    """(usage, reason why it cannot be measured), both by path."""
    usage: dict[str, Usage] = {}
    unreadable: dict[str, str] = {}
    for path in disk.paths(setting):
        try:
            usage[path] = read(path)
        except OSError as error:
            unreadable[path] = str(error)
        DISK.labels(path=path).set(usage[path].percent if path in usage else math.nan)
    return usage, unreadable


async def _alert_unreadable(tx: db.Connection, unreadable: Mapping[str, str]) -> None:
    """Raise an alert per disk; close those of disks that can be measured again."""
    reasons = {f"{MEASURING} {path}": reason for path, reason in unreadable.items()}
    for subject in sorted(set(await alerts.open_subjects(tx, DISK_KIND)) - reasons.keys()):
        if subject.startswith(MEASURING):
            await alerts.close(tx, kind=DISK_KIND, subject=subject)
    for subject, reason in sorted(reasons.items()):
        message = worded(
            "a disk cannot be measured (%(why)s): mend EDGE_DISK_PATHS, restart the gateway",
            why=reason,
        )
        await alerts.raise_(
            tx, alerts.Alert(DISK_KIND, subject, "warning", message, whole_edge=True)
        )


async def _alert_full(
    tx: db.Connection, fullness: disk.Fullness, removed_counts: Mapping[str, int]
) -> None:
    if fullness.state == "fine" and not removed_counts:
        await alerts.close(tx, kind=DISK_KIND, subject="disk")
        return
    removed = ", ".join(f"{count} of {name}" for name, count in removed_counts.items() if count)
    full = worded(
        "the disk of %(path)s is %(number)s %% full",
        path=fullness.path,
        number=f"{fullness.percent:.0f}",
    )
    if removed:
        full = worded("%(sentence)s; removed to go on: %(what)s", sentence=full, what=removed)
    await alerts.raise_(
        tx,
        alerts.Alert(
            DISK_KIND,
            "disk",
            "critical" if fullness.state == "shed" else "warning",
            worded(
                "%(sentence)s. Make room: what the cloud has not got is never removed, and when "
                "the disk is full nothing more is taken from devices",
                sentence=full,
            ),
            whole_edge=True,
        ),
    )


# --- the broker's log

# Stored messages stay in the log for some time: a database that is restored from a backup reads
# them again. When the log is half full, they are purged at once.
LOG_EVERY_S = 5.0
FULL_KIND, GAP_KIND = "broker.log_full", "broker.log_gap"
# Above the first an alert is raised, below the second it is closed.
WARN_SHARE, CALM_SHARE = CROWDED_SHARE, 0.4

LOG_BYTES = Gauge("farmiq_ingress_log_bytes", "Bytes in the broker's log")
LOG_MAX_BYTES = Gauge("farmiq_ingress_log_max_bytes", "Bytes that the log may hold")
PURGED = Counter(
    "farmiq_ingress_log_purged_total", "Messages removed from the broker's log after storing"
)


class LogPurge:
    """Purges the log and raises alerts about it."""

    def __init__(self, pool: db.Pool, cursors: Cursors) -> None:
        self._pool, self._cursors = pool, cursors
        self._has_warned = True

    def job(self) -> Job:
        return Job("ingress.log", LOG_EVERY_S, self.run_once)

    async def run_once(self) -> dict[str, object]:
        try:
            info, purged = await self._cursors.purge()
        except nats.NatsError as error:
            log.get(NAME).warning("ingress.log_not_purged", reason=str(error))
            return {}
        LOG_BYTES.set(info.bytes)
        LOG_MAX_BYTES.set(info.max_bytes)
        PURGED.inc(purged)
        await self._warn_of_fill(info)
        return {"count": purged} if purged else {}

    async def _warn_of_fill(self, info: stream.Info) -> None:
        """Raise an alert before the log is full, and close it afterwards."""
        if info.share >= WARN_SHARE:
            message = worded(
                "the broker's log is %(number)s%% full and %(lag)s messages in it are "
                "not stored yet. When it is full, devices cannot send. To do: see "
                "whether the database takes writes and how full the disk is (farmiq "
                "doctor)",
                number=f"{100 * info.share:.0f}",
                lag=self._cursors.lag,
            )
            async with db.transaction(self._pool) as tx:
                await alerts.raise_(
                    tx, alerts.Alert(FULL_KIND, "broker", "critical", message, whole_edge=True)
                )
            self._has_warned = True
        elif info.share < CALM_SHARE and self._has_warned:
            async with db.transaction(self._pool) as tx:
                await alerts.close(tx, kind=FULL_KIND, subject="broker")
            self._has_warned = False


async def report_gap(tx: db.Connection, start: stream.Start) -> None:
    """Raise an alert if messages are neither stored nor in the log."""
    if start.rewound:
        log.get(NAME).warning("ingress.log_rewound", reason=start.rewound, count=start.lost)
    if start.lost:
        lost = worded(
            "%(number)s messages that the broker took are neither in this database nor in the "
            "broker's log any more",
            number=start.lost,
        )
        if start.rewound:
            lost = worded("%(sentence)s (%(why)s)", sentence=lost, why=start.rewound)
        message = worded(
            "%(sentence)s. After a database was restored from a backup that is what came since. "
            "To do: restore a newer backup, or close this alert",
            sentence=lost,
        )
        await alerts.raise_(
            tx, alerts.Alert(GAP_KIND, "broker", "critical", message, whole_edge=True)
        )
