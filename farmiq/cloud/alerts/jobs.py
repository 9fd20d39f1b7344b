"""Looks of the clock: silence, edges, feed, weighings, cameras, dead letters; who is called."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import prometheus_client

from farmiq import crash
from farmiq.cloud import episodes
from farmiq.cloud.alerts import looks
from farmiq.cloud.alerts.episodes import paging
from farmiq.cloud.alerts.evaluating import advance, book, found_values, signals, states
from farmiq.cloud.alerts.evaluating.advance import Seen, SeriesState, Watch
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.ruleset import TELEMETRY, Series, Value, tick, timed_value
from farmiq.messages.alerts import EndReason
from farmiq.plumbing import db
from farmiq.plumbing.runtime.schedule import Job

PAGE_S, LOOK_S, SESSIONS_S, FEED_S, PRUNE_S = 1.0, 15.0, 60.0, 600.0, 60.0
MAX_PAGED = 10_000
# Series that are evaluated in one transaction.
MAX_SERIES = 1000
# What a heartbeat says, by the name of the signal; edge.heard is that there was one.
TOTALS = (
    "open_alerts", "quarantine", "dead_letters", "losses", "waiting", "oldest_s", "disk_percent",
    "clock_offset_s", "alerts_missing",
)  # fmt: skip

PAGED = prometheus_client.Counter(
    "farmiq_alert_pages_total", "Episodes about which people were called"
)


@dataclass
class Looks:
    """Jobs of which one instance at a time does each; a second one has nothing to do."""

    pool: db.Pool
    book: RuleBook
    watch: Watch | None = None

    def all(self) -> Iterator[Job]:
        for name, every_s, do in (
            ("page", PAGE_S, self.page),
            ("silence", LOOK_S, self.look_for_silence),
            ("edges", LOOK_S, self.look_at_edges),
            ("edge_alerts", LOOK_S, self.refresh_edge_alerts),
            ("camera_alerts", LOOK_S, self.take_camera_alerts),
            ("cameras", FEED_S, self.look_at_cameras),
            ("feed", FEED_S, self.look_at_feed),
            ("sessions", SESSIONS_S, self.look_at_sessions),
            ("dead_letters", SESSIONS_S, self.look_at_dead_letters),
            ("prune", PRUNE_S, self.prune),
        ):
            yield Job(f"alerts.{name}", every_s, do)

    async def page(self) -> dict[str, object]:
        """Call people about what is open and was not told; the one place that does."""
        async with db.transaction(self.pool) as tx:
            count = await paging.page(tx, limit=MAX_PAGED)
            crash.here("alerts.before_page_commit")
        crash.here("alerts.after_page_commit")
        PAGED.inc(count)
        return {"paged": count}

    async def look_for_silence(self) -> dict[str, object]:
        """Tick the clock for series of telemetry from which nothing came."""
        async with db.transaction(self.pool) as tx:
            tenants = await book.tenants(tx)
        await self.book.load(tenants)
        shortest = self._shortest_absence(tenants)
        if not shortest:
            return {}
        async with db.transaction(self.pool) as tx:
            now = await states.now(tx)
            silent = await looks.silent_series(tx, shortest, days=looks.MAX_SILENT_DAYS)
        values: list[Value] = []
        for series, at, value in silent:
            farm_id, barn_id, device_id = series.place
            heard = Value(
                series=series, at=at, value=value,
                farm_id=farm_id, barn_id=barn_id, device_id=device_id,
            )  # fmt: skip
            looking = self.book[series.tenant_id].looking_at(tick(heard, now))
            if any(rule.condition == "absent" for rule in looking):
                values += [heard, tick(heard, now)]
        await self._evaluate(values, now)
        return {}

    def _shortest_absence(self, tenants: Iterable[str]) -> dict[tuple[str, str], int]:
        """By tenant and metric, the shortest silence that any rule is about."""
        shortest: dict[tuple[str, str], int] = {}
        for tenant_id in tenants:
            for rule in self.book[tenant_id].absences:
                key = (tenant_id, rule.signal.removeprefix(TELEMETRY))
                shortest[key] = min(rule.for_s, shortest.get(key, rule.for_s))
        return shortest

    async def look_at_edges(self) -> dict[str, object]:
        """Take what heartbeats said, and whether there was one."""
        async with db.transaction(self.pool) as tx:
            beats = await looks.heartbeats(tx)
            now = await states.now(tx)
        newest_at = max((beat["received_at"] for beat in beats), default=None)
        self.watch = advance.watched(self.watch, newest_at, now)
        await self.book.load({beat["tenant_id"] for beat in beats})
        values: list[Value] = []
        for beat in beats:
            subject, at = f"edge:{beat['edge_cluster_id']}", beat["received_at"]
            values += [
                timed_value(
                    Series(beat["tenant_id"], f"edge.{name}", subject), at, float(beat[name])
                )
                for name in TOTALS
                if beat[name] is not None
            ]
            heard = timed_value(Series(beat["tenant_id"], "edge.heard", subject), at, 1.0)
            values.append(heard)
            if self.watch.is_long_enough:
                values.append(tick(heard, now))
        await self._evaluate(values, now)
        return {}

    async def refresh_edge_alerts(self) -> dict[str, object]:
        """What an edge that has sent everything still has open is true now."""
        async with db.transaction(self.pool) as tx:
            await looks.refresh_edge_alerts(tx)
        return {}

    async def take_camera_alerts(self) -> dict[str, object]:
        """Open and resolve episodes as the alerts of cameras (004) are."""
        async with db.transaction(self.pool) as tx:
            if not await states.lock_job(tx, "alerts.camera_alerts"):
                return {}
            opened, ended = await looks.camera_alerts(tx)
            await episodes.raise_episodes(tx, opened)
            await episodes.resolve_all(tx, ended)
        return {"opened": len(opened), "resolved": len(ended)}

    async def look_at_cameras(self) -> dict[str, object]:
        """Take the completeness of sites' last whole days and the cameras' batteries."""
        async with db.transaction(self.pool) as tx:
            rows = await looks.camera_values(tx)
            now = await states.now(tx)
        await self.book.load({series.tenant_id for series, _, _ in rows})
        await self._evaluate(
            [timed_value(series, min(at, now), value) for series, at, value in rows], now
        )
        return {}

    async def look_at_sessions(self) -> dict[str, object]:
        """Take how many weigh sessions of each station its edge calls incomplete."""
        return await self._count(looks.incomplete_sessions)

    async def look_at_dead_letters(self) -> dict[str, object]:
        """Take how many dead letters of each queue of the bus wait for a person."""
        return await self._count(looks.dead_letters)

    async def _count(
        self, look: Callable[[db.Connection], Awaitable[list[tuple[Series, float]]]]
    ) -> dict[str, object]:
        async with db.transaction(self.pool) as tx:
            rows = await look(tx)
            now = await states.now(tx)
        await self.book.load({series.tenant_id for series, _ in rows})
        await self._evaluate([timed_value(series, now, count) for series, count in rows], now)
        return {}

    async def look_at_feed(self) -> dict[str, object]:
        """Take for how many days the feed of each barn lasts."""
        async with db.transaction(self.pool) as tx:
            tenants = await looks.tenants_with_feed(tx)
        await self.book.load(tenants)
        for tenant_id in tenants:
            async with db.transaction(self.pool) as tx:
                rows = await looks.feed_days_left(tx, tenant_id)
                now = await states.now(tx)
            await self._evaluate(
                [
                    timed_value(
                        Series(tenant_id, "feed.days_left", f"barn:{farm}/{barn}"), now, days
                    )
                    for farm, barn, days in rows
                ],
                now,
            )
        return {}

    async def prune(self) -> dict[str, object]:
        """End what rules have open that changed, no longer apply, or whose subject is gone."""
        async with db.transaction(self.pool) as tx:
            busy = await states.busy_states(tx)
            gone = await self._gone(tx, busy)
            now = await states.now(tx)
        await self.book.load({series.tenant_id for series in busy})

        def pruned(series: Series, state: SeriesState) -> tuple[SeriesState, list[Seen]]:
            ruleset = self.book[series.tenant_id]
            return advance.prune(series, state, ruleset, now=now, gone=gone.get(series))

        # Only what changes is locked; it may be another by then.
        stale = [series for series, state in busy.items() if pruned(series, state)[0] != state]
        ended = 0
        for chunk in _chunks(stale):
            async with db.transaction(self.pool) as tx:
                locked = await states.lock_states(tx, chunk)
                changed, endings = {}, []
                for series, before in locked.items():
                    after, over = pruned(series, before)
                    if after != before:
                        changed[series] = after
                    endings += [signals.ending(series, seen) for seen in over]
                await states.save_states(tx, changed)
                ended += await episodes.resolve_all(tx, endings)
        async with db.transaction(self.pool) as tx:
            ended += await episodes.resolve_all(tx, await looks.ownerless(tx))
            ended += await episodes.resolve_all(tx, await looks.alerts_of_gone_edges(tx))
        return {"ended": ended}

    async def _gone(self, tx: db.Connection, busy: Collection[Series]) -> dict[Series, EndReason]:
        """Series whose edge, device or camera is no more, each with the reason."""
        edges = {(tenant_id, f"edge:{name}") for tenant_id, name in await looks.live_edges(tx)}
        cameras = await looks.live_cameras(tx)
        gone: dict[Series, EndReason] = {}
        for series in busy:
            subject = series.tenant_id, series.subject
            if series.signal.startswith("edge.") and subject not in edges:
                gone[series] = "edge"
            elif series.signal.startswith("camera.") and subject not in cameras:
                gone[series] = "camera"
        devices = [series for series in busy if series.signal.startswith(TELEMETRY)]
        return gone | await looks.gone_devices(tx, devices)

    async def _evaluate(self, values: list[Value], now: datetime) -> None:
        """In transactions of a bounded size; a series is not divided. Their values are kept."""
        by_series: dict[Series, list[Value]] = {}
        for value in values:
            by_series.setdefault(value.series, []).append(value)
        for chunk in _chunks([*by_series]):
            together = [value for key in chunk for value in by_series[key]]
            wanted = [
                v for v in together if v.series.signal in self.book[v.series.tenant_id].signals
            ]
            async with db.transaction(self.pool) as tx:
                await found_values.store(tx, together)
                await signals.evaluate(tx, self.book, wanted, now=now)


def _chunks(series: list[Series]) -> Iterator[list[Series]]:
    ordered = sorted(series)
    for begin in range(0, len(ordered), MAX_SERIES):
        yield ordered[begin : begin + MAX_SERIES]
