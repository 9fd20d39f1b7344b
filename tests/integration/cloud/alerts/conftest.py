"""A company whose values and edges' alerts are taken as cloud-alerts-service takes them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from farmiq.cloud import bus, sink
from farmiq.cloud.alerts.episodes import queries
from farmiq.cloud.alerts.evaluating.advance import Watch
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.readings import Readings
from farmiq.cloud.alerts.evaluating.rechecks import Rechecks
from farmiq.cloud.alerts.evaluating.signals import Signals
from farmiq.cloud.alerts.jobs import Looks
from farmiq.cloud.alerts.service import EDGE
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import service as telemetry
from farmiq.messages import bus as envelopes
from farmiq.messages.alerts import AlertRule
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.integration.cloud.conftest import CloudSite

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass
class Alerts:
    """What a test says happened, and the parts of the service called by hand."""

    site: CloudSite
    pool: db.Pool

    def __post_init__(self) -> None:
        self.book = RuleBook(self.pool)
        signals = Signals(self.book)
        self.sink = Sink("alerts", bus.ALERTS, signals.store, select=signals.select)
        # It has looked for long: an edge that was not heard is silent.
        watch = Watch(since=now() - HOUR, at=now(), newest_at=None)
        self.looks = Looks(self.pool, self.book, watch)
        self.rechecks = Rechecks(self.pool, self.book)
        self.readings = Readings(self.pool, self.book)

    def owner(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.site.database.admin_url) as connection:
            cursor = connection.execute(query.encode(), args or None)
            return cursor.fetchall() if cursor.description else []

    async def rule(
        self, rule_id: str = "hot", *, tenant_id: str = "t-001", **fields: Any
    ) -> AlertRule:
        """Set a rule: above 30 at once, and over at once, unless the test says otherwise."""
        rule = msgspec.convert(
            {
                "rule_id": rule_id, "signal": "telemetry.heat", "condition": "above",
                "threshold": 30, "clear_for_s": 0, **fields,
            },
            AlertRule,
        )  # fmt: skip
        async with db.transaction(self.pool) as tx:
            await queries.set_rule(tx, tenant_id, rule)
        self.book.drop(tenant_id)
        return rule

    # --- events

    def event(
        self, event_type: str, at: datetime, payload: dict[str, Any], **changes: Any
    ) -> BusEvent:
        given: dict[str, Any] = {
            "event_id": ids.new(), "event_type": event_type, "tenant_id": "t-001", "farm_id": "f",
            "barn_id": "1", "device_id": "d", "session_id": None, "occurred_at": at,
            "trace_id": "trace", "payload": msgspec.Raw(msgspec.json.encode(payload)), **changes,
        }  # fmt: skip
        return BusEvent(**given)

    def reading(
        self, at: datetime, value: float, *, metric: str = "heat", unit: str = "x", **changes: Any
    ) -> BusEvent:
        payload = {"metric_type": metric, "metric_value": value, "unit": unit}
        return self.event("telemetry.ingested", at, payload, **changes)

    def edge_alert(
        self,
        kind: str,
        alert_id: UUID,
        at: datetime,
        *,
        code: str = "broker.store",
        subject: str = "broker",
        severity: str = "warning",
        **changes: Any,
    ) -> BusEvent:
        payload = {
            "alert_id": alert_id, "code": code, "subject": subject, "severity": severity,
            "first_at": at, "last_at": at, "count": 1, "message": "half full",
            "edge_cluster_id": "edge-01",
        }  # fmt: skip
        return self.event(f"edge.alert.{kind}", at, payload, **changes)

    # --- the way of events

    async def take(self, *events: BusEvent) -> None:
        """As the consumer of the bus does, in one batch; also readings from before D-471."""
        bodies = [envelopes.write(event) for event in events]
        assert not await sink.store_events(self.pool, bodies, self.sink)

    async def store(self, *events: BusEvent) -> None:
        """As cloud-telemetry-service does."""
        bodies = [envelopes.write(event) for event in events]
        assert not await sink.store_events(self.pool, bodies, telemetry.READINGS)

    async def take_edge(self, *events: BusEvent) -> None:
        bodies = [envelopes.write(event) for event in events]
        assert not await sink.store_events(self.pool, bodies, EDGE)

    async def send(self, *events: BusEvent) -> None:
        """Readings are stored, then rules look at them."""
        await self.store(*events)
        await self.readings.run()
        assert self.owner("select 1 from alert_readings") == []

    async def settle(self) -> None:
        """Evaluate again whatever is late, and call people."""
        while self.owner("select 1 from alert_rechecks limit 1"):
            self.owner("update alert_rechecks set due_at = now() - interval '1 second'")
            done = await self.rechecks.run()
            assert done["rechecked"], "what is late is not stored"
        await self.looks.page()

    def beat(
        self,
        *,
        ago: timedelta = timedelta(),
        farms: Sequence[str] = ("f",),
        edge_id: str = "edge-01",
    ) -> None:
        """The last heartbeat of an edge."""
        self.owner(
            """
            insert into edge_keys (key_id, tenant_id, edge_cluster_id, public_x, enrolled_at)
            values ('k-' || %s, 't-001', %s, 'x', now()) on conflict do nothing
            """,
            edge_id, edge_id,
        )  # fmt: skip
        self.owner(
            """
            insert into edge_heartbeats as h (tenant_id, edge_cluster_id, received_at, sent_at,
              clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent, farms, quarantine)
            values ('t-001', %s, now() - %s, now() - %s, 0, '{}', 0, 0, 0, 10, %s, 0)
            on conflict on constraint edge_heartbeats_pkey do update set
              received_at = excluded.received_at, sent_at = excluded.sent_at
            """,
            edge_id, ago, ago, [*farms],
        )  # fmt: skip

    # --- what came of it

    def episodes(self, rule_id: str | None = None) -> list[tuple[Any, ...]]:
        """(cause, state, opened, resolved), oldest first, without those that never were."""
        return self.owner(
            """
            select cause, state, opened_at, resolved_at from alert_episodes
            where state <> 'withdrawn' and (%s::text is null or rule_id = %s)
            order by opened_at, cause
            """,
            rule_id, rule_id,
        )  # fmt: skip

    def steps(self) -> list[tuple[str, str]]:
        """(cause, step) in the order in which they were written."""
        return [
            (row[0], row[1])
            for row in self.owner(
                """
                select e.cause, s.step from alert_steps s
                  join alert_episodes e using (tenant_id, episode_id)
                order by s.created_at, s.step
                """
            )
        ]


@pytest.fixture
async def alerts(cloud: CloudSite) -> AsyncIterator[Alerts]:
    async with db.pool(cloud.database.url, name="test", max_size=4) as pool:
        yield Alerts(cloud, pool)
