"""A company with a farm, barns and batches, and events as the services of the cloud store them."""

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest

from farmiq.cloud import bus, sink
from farmiq.cloud.analytics import handlers
from farmiq.cloud.analytics.jobs import Recomputation
from farmiq.cloud.weighvision import store as weighvision
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.conftest import CloudSite
from tests.support import databases

PLACED_ON = date(2026, 3, 1)

_STORES = {
    "feed": sink.insert_into("feed_events"),
    "barn": sink.insert_into("barn_events"),
    "weighvision": weighvision.apply_events,
}


@dataclass
class Analytics:
    """What a test says happened at a farm, and the service that computes figures of it."""

    site: CloudSite
    pool: db.Pool
    work: Recomputation
    tenant_id: str = "t-001"

    # --- master data

    def owner(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        with databases.connected(self.site.database.admin_url) as connection:
            cursor = connection.execute(query.encode(), args or None)
            return cursor.fetchall() if cursor.description else []

    def farm(self, farm_id: str = "f", zone: str = "UTC", *, barns: Sequence[str] = ("1",)) -> None:
        self.owner(
            "insert into farms (tenant_id, farm_id, name, timezone) values (%s, %s, 'Farm', %s)",
            self.tenant_id, farm_id, zone,
        )  # fmt: skip
        for barn_id in barns:
            self.owner(
                "insert into barns (tenant_id, farm_id, barn_id, name) values (%s, %s, %s, 'Barn')",
                self.tenant_id, farm_id, barn_id,
            )  # fmt: skip

    def batch(self, batch_id: str = "b", **changes: Any) -> None:
        values = {
            "tenant_id": self.tenant_id, "batch_id": batch_id, "farm_id": "f", "barn_id": "1",
            "species": "broiler", "placed_count": 1000, "placed_on": PLACED_ON,
            "age_at_placing_days": 0, **changes,
        }  # fmt: skip
        self.owner(
            f"insert into batches ({', '.join(values)}) "  # noqa: S608
            f"values ({', '.join(['%s'] * len(values))})",
            *values.values(),
        )

    def standard(self, *rows: tuple[int, float], breed: str = "fast", sex: str = "mixed") -> None:
        for age_days, weight_kg in rows:
            self.owner(
                "insert into breed_standards (tenant_id, species, breed, sex, age_days, weight_kg, "
                "source) values (%s, 'broiler', %s, %s, %s, %s, 'test')",
                self.tenant_id, breed, sex, age_days, weight_kg,
            )  # fmt: skip

    # --- events

    def event(
        self, event_type: str, at: datetime, payload: dict[str, Any], **changes: Any
    ) -> BusEvent:
        given: dict[str, Any] = {
            "event_id": ids.new(), "event_type": event_type, "tenant_id": self.tenant_id,
            "farm_id": "f", "barn_id": "1", "device_id": "d", "session_id": None,
            "occurred_at": at, "trace_id": "trace",
            "payload": msgspec.Raw(msgspec.json.encode(payload)), **changes,
        }  # fmt: skip
        return BusEvent(**given)

    def intake(
        self, at: datetime, quantity_kg: float, *, payload: Any = None, **changes: Any
    ) -> BusEvent:
        said = {"source": "MANUAL", "quantity_kg": quantity_kg, **(payload or {})}
        return self.event("feed.intake.recorded", at, said, **changes)

    def record(
        self, at: datetime, record_type: str, value: float, *, payload: Any = None, **changes: Any
    ) -> BusEvent:
        said = {
            "record_id": str(ids.new()), "record_type": record_type, "value": value, "unit": None,
            "recorded_by_ref": "ann", "recorded_at": at, **(payload or {}),
        }  # fmt: skip
        return self.event("barn.record.created", at, said, **changes)

    def weighing(
        self,
        at: datetime,
        weight_kg: float,
        *,
        batch_id: str | None = None,
        derived: bool = False,
        **changes: Any,
    ) -> list[BusEvent]:
        session: dict[str, Any] = {"session_id": ids.new(), **changes}
        created: dict[str, Any] = {
            "status": "created", "batch_id": batch_id, "initial_weight_kg": None,
        }  # fmt: skip
        created |= {"batch_derived": True} if derived else {}
        ended = {
            "status": "finalized", "final_weight_kg": weight_kg, "image_count": 0,
            "inference_result_id": None,
        }  # fmt: skip
        return [
            self.event("weighvision.session.created", at, created, **session),
            self.event(
                "weighvision.session.finalized", at + timedelta(seconds=20), ended, **session
            ),
        ]

    def hour(
        self,
        at: datetime,
        metric: str,
        value: float,
        *,
        unit: str,
        count: int = 60,
        highest: float | None = None,
        **more: Any,
    ) -> None:
        """A rollup of an hour, as the telemetry service stores it."""
        place = {"device_id": "d", "barn_id": "1", "farm_id": "f", **more}
        self.owner(
            """
            insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
              bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
              sum_value, count)
            values (gen_random_uuid(), %s, %s, %s, %s, '1h', %s, %s, %s, %s, %s, %s, %s, 0, %s)
            on conflict on constraint telemetry_agg_pkey do update set
              avg_value = excluded.avg_value, count = excluded.count
            """,
            self.tenant_id, place["farm_id"], place["barn_id"], place["device_id"], at,
            at + timedelta(hours=1), metric, unit, value, value,
            value if highest is None else highest, count,
        )  # fmt: skip

    def aggregated(
        self, at: datetime, metric: str, value: float, *, unit: str, count: int = 60
    ) -> BusEvent:
        payload = {
            "metric_type": metric, "aggregation_window": "1h", "avg_value": value,
            "min_value": value, "max_value": value, "unit": unit, "count": count,
            "bucket_start_at": at, "bucket_end_at": at + timedelta(hours=1),
        }  # fmt: skip
        return self.event("telemetry.aggregated", at, payload)

    # --- the way of events

    async def store(self, *events: BusEvent) -> None:
        """As the services that own the events do."""
        async with db.transaction(self.pool) as tx:
            for family, store in _STORES.items():
                own = [event for event in events if event.event_type.startswith(f"{family}.")]
                if own:
                    await store(tx, own)

    async def hear(self, *events: BusEvent) -> None:
        """As analytics takes them from its queue."""
        if events:
            async with db.transaction(self.pool) as tx:
                await handlers.mark_events(tx, events)

    async def send(self, *events: BusEvent) -> None:
        await self.store(*events)
        await self.hear(*events)

    async def settle(self) -> int:
        """Compute until nothing is marked; returns how many figures changed."""
        self.owner("update analytics_dirty_days set due_at = now()")
        self.owner("update analytics_pending set next_look_at = now()")
        await self.work.mark_pending()
        changed = 0
        while self.owner("select 1 from analytics_dirty_days where due_at <= now() limit 1"):
            changed += int(str((await self.work.recompute())["changed"]))
        return changed

    # --- what came of it

    def figures(self, batch_id: str = "b") -> dict[tuple[str, str], float]:
        """Values by (date, type)."""
        rows = self.owner(
            "select kpi_date::text, kpi_type, value from kpi_daily "
            "where tenant_id = %s and batch_id = %s and value is not null",
            self.tenant_id, batch_id,
        )  # fmt: skip
        return {(row[0], row[1]): row[2] for row in rows}

    def rows(self) -> list[tuple[Any, ...]]:
        """All figures but for when and how often they were computed."""
        return self.owner(
            "select tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, value, unit, "
            "source_event_count, expected_value, difference from kpi_daily "
            "where value is not null order by 1, 4, 5, 6"
        )

    def safe_from(self, batch_id: str = "b") -> date | None:
        rows = self.owner("select fn_safe_to_sell_from(%s, %s)", self.tenant_id, batch_id)
        day: date | None = rows[0][0]
        return day

    def revisions(self) -> dict[tuple[str, str, str], int]:
        rows = self.owner("select batch_id, kpi_date::text, kpi_type, revision from kpi_daily")
        return {(row[0], row[1], row[2]): row[3] for row in rows}


def at(day: int, hour: int = 12, minute: int = 0) -> datetime:
    """A moment so many days after the placing, UTC."""
    begin = datetime(PLACED_ON.year, PLACED_ON.month, PLACED_ON.day, tzinfo=UTC)
    return begin + timedelta(days=day, hours=hour, minutes=minute)


def on(day: int) -> str:
    return (PLACED_ON + timedelta(days=day)).isoformat()


def shuffled(events: Sequence[BusEvent], seed: int, *, most: int = 3) -> list[BusEvent]:
    """Each of these one to `most` times, in any order."""
    chance = random.Random(seed)
    many = [event for event in events for _ in range(chance.randint(1, most))]
    chance.shuffle(many)
    return many


@pytest.fixture
async def analytics(cloud: CloudSite) -> AsyncIterator[Analytics]:
    url = cloud.settings.amqp_url.get_secret_value()
    async with (
        db.pool(cloud.database.url, name="test") as pool,
        amqp.publisher(url, name="test", topology=bus.TOPOLOGY) as publisher,
    ):
        yield Analytics(cloud, pool, Recomputation(pool, publisher, 30.0))
