"""Daily figures through the product's sinks and jobs, against a recount of what was sent.

Also the worked examples of docs/integrate/figures.md.
"""

import itertools
import math
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from aio_pika.abc import AbstractChannel
from hypothesis import assume, given
from hypothesis import strategies as st

from farmiq.cloud import bus, sink, sinks
from farmiq.cloud.analytics import service as analytics
from farmiq.cloud.analytics.jobs import Recomputation
from farmiq.cloud.barn import service as barn
from farmiq.cloud.farms import kinds
from farmiq.cloud.farms import store as master_store
from farmiq.cloud.feed import service as feed
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import rollups
from farmiq.cloud.telemetry import service as telemetry
from farmiq.cloud.weighvision import service as weighvision
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp
from tests.conftest import Database
from tests.support import databases, recount, worked_examples
from tests.support.properties import drawn
from tests.support.recount import Figure, MasterData, TieError

Event = dict[str, Any]
Key = tuple[str, str, date, str]
FARM = "f-001"
# Days around which clocks change, by an hour or, on Lord Howe, by half of one.
CHANGES = {
    "Europe/Berlin": (date(2025, 10, 26), date(2026, 3, 29)),
    "America/St_Johns": (date(2025, 11, 2), date(2026, 3, 8)),
    "Australia/Lord_Howe": (date(2025, 10, 5), date(2026, 4, 5)),
}
SINKS: dict[str, Sink] = {
    "weighvision": weighvision.SINK,
    "feed": feed.EVENTS,
    "barn": barn.EVENTS,
    "telemetry": telemetry.READINGS,
    "inference": sinks.INFERENCE,
}


@dataclass(frozen=True)
class Cloud:
    """The services that figures pass through, each step called by hand."""

    pool: db.Pool
    publisher: amqp.Publisher
    channel: AbstractChannel
    admin_url: str

    async def deliver(self, to: Sink, events: Sequence[Event]) -> None:
        rejected = await sink.store_events(self.pool, [_body(event) for event in events], to)
        assert not rejected

    async def register(self, master: MasterData) -> None:
        """Master data as an import stores it."""
        for kind, rows in (
            (kinds.FARMS, master.farms),
            (kinds.BARNS, _barns(master)),
            (kinds.BATCHES, master.batches),
            (kinds.METRICS, master.metrics),
            (kinds.BREED_STANDARDS, master.standards),
        ):
            for row in rows:
                given_row = {name: row[name] for name in kind.columns if name in row}
                async with db.transaction(self.pool) as tx:
                    parsed = msgspec.convert(given_row, kind.struct)
                    await master_store.save(tx, kind, row["tenant_id"], [parsed])

    async def work(self) -> None:
        """One round of every job."""
        await rollups.recompute_all(self.pool)
        await rollups.publish_all(self.pool, self.publisher, settle_s=0, timeout_s=60)
        await self._deliver_published()
        jobs = Recomputation(self.pool, self.publisher, 60)
        await jobs.mark_pending()
        await jobs.recompute()

    async def settle(self) -> None:
        """Work until nothing is left; what is due later is due now."""
        while self._hasten():
            await self.work()

    def _hasten(self) -> bool:
        """False if no mark is left and no event waits for its own service."""
        with databases.connected(self.admin_url) as connection:
            left = [
                connection.execute(statement).rowcount
                for statement in (
                    "update analytics_pending set next_look_at = now()",
                    "update analytics_dirty_days set due_at = now()",
                    "update telemetry_dirty set marked_at = marked_at",
                )
            ]
            return any(left)

    async def _deliver_published(self) -> None:
        """What the cloud itself published goes to the queues that want it."""
        for consumer in (analytics.DAYS, analytics.KPI):
            queue = await self.channel.get_queue(consumer.work.queue, ensure=False)
            bodies = []
            while message := await queue.get(fail=False, no_ack=True):
                bodies.append(message.body)
            if bodies:
                assert not await sink.store_events(self.pool, bodies, consumer)

    async def figures(self, tenant_id: str) -> dict[Key, Figure]:
        async with self.pool.connection() as connection:
            rows = await db.fetch_all(
                connection,
                """
                select tenant_id, batch_id, kpi_date, kpi_type, value, unit, source_event_count,
                  expected_value, difference
                from kpi_daily where tenant_id = %s and value is not null
                """,
                tenant_id,
            )
        return {row[:4]: Figure(*row[4:]) for row in rows}


@pytest.fixture
async def cloud(cloud_db: Database, work_vhost: str) -> AsyncIterator[Cloud]:
    async with (
        db.pool(cloud_db.url, name="test") as pool,
        amqp.publisher(work_vhost, name="test", topology=bus.TOPOLOGY) as publisher,
        amqp.connection(work_vhost, name="test") as connection,
    ):
        await amqp.ensure(connection, bus.TOPOLOGY)
        yield Cloud(pool, publisher, await connection.channel(), cloud_db.admin_url)


def _body(event: Event) -> bytes:
    return msgspec.json.encode({name: value for name, value in event.items() if value is not None})


def _barns(master: MasterData) -> list[dict[str, Any]]:
    barns = {(batch["tenant_id"], batch["barn_id"]) for batch in master.batches}
    return [
        {"tenant_id": tenant_id, "farm_id": FARM, "barn_id": barn_id, "name": barn_id}
        for tenant_id, barn_id in sorted(barns)
    ]


def check(found: dict[Key, Figure], meant: dict[Key, Figure]) -> None:
    """The same figures, each the same but for rounding."""
    assert sorted(found) == sorted(meant)
    for key, figure in meant.items():
        stored = found[key]
        assert (stored.unit, stored.source_event_count) == (
            figure.unit,
            figure.source_event_count,
        ), key
        for name in ("value", "expected_value", "difference"):
            one, other = getattr(stored, name), getattr(figure, name)
            assert one is other is None or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9), (
                key, name, stored, figure,
            )  # fmt: skip


# --- random farms


@dataclass(frozen=True)
class Life:
    """A farm's master data as it is in the end, as it was first, and all that was sent."""

    tenant_id: str
    first: MasterData
    last: MasterData
    events: list[Event]


_numbers = itertools.count(1)


@st.composite
def lives(draw: st.DrawFn, zone: str) -> Life:
    change = draw(st.sampled_from(CHANGES[zone]))
    # An example that is tried again is another company: the database is the same.
    tenant_id = f"t-{next(_numbers)}"
    last = draw(_master_data(tenant_id, zone, change))
    first = draw(_earlier(last))
    makers = st.lists(
        st.one_of(_sessions(), _days_of_sessions(), _intakes(), _records(), _readings()),
        min_size=8,
        max_size=18,
    )
    moments = _moments(zone, change)
    events: list[Event] = []
    for make in (draw(_records()), *draw(makers)):
        events += make(draw, draw(moments), events)
    # At least one record is corrected in every life.
    records = [n for n, event in enumerate(events) if event["event_type"].startswith("barn.")]
    (correction,) = draw(_records())(draw, draw(moments), events)
    correction["payload"]["replaces"] = draw(st.sampled_from(records))
    events.append(correction)
    ids = (UUID(int=(number << 32) | next(_numbers)) for number in itertools.count(1))
    return Life(tenant_id, first, last, _named(events, tenant_id, ids))


def _named(events: list[Event], tenant_id: str, ids: Any) -> list[Event]:
    """Give every event its envelope; references between them are positions until now."""
    named: list[Event] = []
    sessions: dict[int, UUID] = {}
    for number, event in enumerate(events):
        event_id = next(ids)
        payload = dict(event["payload"])
        if "record_id" in payload:
            payload["record_id"] = f"r-{tenant_id}-{number}"
        if "replaces" in payload:
            other = payload["replaces"]
            target = named[other] if other is not None else None
            if target is None:
                payload["replaces"] = str(UUID(int=7))
            else:
                payload["replaces"] = str(target["payload"].get("record_id", target["event_id"]))
        session = event.get("session")
        named.append(
            {
                "event_id": event_id,
                "event_type": event["event_type"],
                "tenant_id": tenant_id,
                "farm_id": FARM,
                "barn_id": event["barn_id"],
                "device_id": event.get("device_id", "device-1"),
                "session_id": None if session is None else sessions.setdefault(session, event_id),
                "occurred_at": event["occurred_at"],
                "trace_id": f"trace-{number}",
                "payload": payload,
                **({"clock_suspect": True} if event.get("clock_suspect") else {}),
            }
        )
    return named


def _moments(zone: str, change: date) -> st.SearchStrategy[datetime]:
    """Moments on few days, so that they meet; often around midnight and the change of clocks."""
    days = st.sampled_from([-33, -31, -9, -8, -7, -2, -1, 0, 1, 2])
    minutes = st.integers(0, 1439) | st.integers(0, 240) | st.sampled_from([0, 1, 29, 30, 59, 1439])

    def at(day: int, minute: int) -> datetime:
        noon = datetime(change.year, change.month, change.day, 12, tzinfo=UTC)
        midnight = next(
            noon + timedelta(minutes=30 * half)
            for half in range(-96, 96)
            if recount.local_date(noon + timedelta(minutes=30 * half), zone) == change
        )
        return midnight + timedelta(days=day, minutes=minute)

    return st.builds(at, days, minutes)


Make = Callable[[st.DrawFn, datetime, list[Event]], list[Event]]
BARNS = st.sampled_from(["b-1", "b-1", "b-2"])
NAMED = st.sampled_from([None, None, None, "one", "two", "pigs", "nobody"])
RARELY = st.sampled_from([False] * 9 + [True])


@st.composite
def _master_data(draw: st.DrawFn, tenant_id: str, zone: str, change: date) -> MasterData:
    def day(low: int, high: int) -> date:
        return change + timedelta(days=draw(st.integers(low, high)))

    moved_on = day(-3, 1)
    species = draw(st.sampled_from(["broiler", "Broiler", "duck", "cattle"]))
    batch = {"tenant_id": tenant_id, "farm_id": FARM, "breed": None, "closed_on": None}
    batches = [
        {
            **batch,
            "batch_id": "one",
            "barn_id": "b-1",
            "species": species,
            "breed": "fast",
            "sex": draw(st.sampled_from(["mixed", "male"])),
            "placed_count": draw(st.integers(1, 300)),
            "placed_on": day(-34, -32),
            "age_at_placing_days": draw(st.sampled_from([0, 0, 5])),
            "closed_on": moved_on,
        },
        {
            **batch,
            "batch_id": "two",
            "barn_id": "b-1",
            "species": "broiler",
            "breed": draw(st.sampled_from(["fast", None])),
            "sex": "female",
            "placed_count": draw(st.integers(1, 20)),
            "placed_on": moved_on + timedelta(days=draw(st.integers(1, 2))),
            "age_at_placing_days": draw(st.sampled_from([0, 12, None])),
        },
        {
            **batch,
            "batch_id": "pigs",
            "barn_id": "b-2",
            "species": "pig",
            "sex": "mixed",
            "placed_count": draw(st.integers(1, 50)),
            "placed_on": day(-33, -7),
            "age_at_placing_days": 28,
        },
    ]
    standard = [
        {
            "tenant_id": tenant_id,
            "species": "broiler",
            "breed": "fast",
            "sex": sex,
            "age_days": age,
            "weight_kg": 0.04 + 0.057 * age,
            "daily_gain_g": draw(st.sampled_from([None, 55.5])),
            "feed_conversion": 1 + age / 70,
            "mortality_pct": age / 10,
            "source": "test",
        }
        for sex, ages in (("mixed", (0, 11, 42)), ("male", (3, 30)))
        for age in ages
    ]
    return MasterData(
        farms=[{"tenant_id": tenant_id, "farm_id": FARM, "name": "Farm", "timezone": zone}],
        batches=batches,
        standards=draw(st.sampled_from([standard, standard[:3], []])),
        metrics=[
            {
                "tenant_id": tenant_id,
                "metric_type": "temperature",
                "label": "Temperature",
                "unit": "°C",
                "conversions": {"F": (0.5555555555555556, -17.77777777777778)},
                **draw(st.sampled_from([{}, {"min_plausible": 18.0, "max_plausible": 38.0}])),
            },
            {
                "tenant_id": tenant_id,
                "metric_type": "water.flow",
                "label": "Water",
                "unit": "l/min",
                "conversions": {"m3/h": (16.666666666666668, 0.0)},
                **draw(st.sampled_from([{}, {"max_plausible": 1.5}])),
            },
        ],
    )


@st.composite
def _earlier(draw: st.DrawFn, last: MasterData) -> MasterData:
    """What was registered at first: nothing, the same, or what was corrected later."""
    how = draw(
        st.sampled_from(
            ["nothing", "same", "other zone", "other batch", "no standard", "other range"]
        )
    )
    if how == "nothing":
        return MasterData([], [])
    if how == "other zone":
        farm = {**last.farms[0], "timezone": "Asia/Bangkok"}
        return MasterData([farm], last.batches, last.standards, last.metrics)
    if how == "other batch":
        batch = {**last.batches[0], "placed_count": 77, "breed": None, "age_at_placing_days": 9}
        batch["placed_on"] += timedelta(days=2)
        return MasterData(last.farms, [batch], last.standards, last.metrics)
    if how == "no standard":
        return MasterData(last.farms, last.batches)
    if how == "other range":
        metrics = [
            {**metric, "min_plausible": min(20.0, metric.get("max_plausible", 20.0))}
            for metric in last.metrics
        ]
        return MasterData(last.farms, last.batches, last.standards, metrics)
    return last


def _weights(most: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(250, 3500).map(lambda g: g / 1000), min_size=1, max_size=most)


def _session(
    draw: st.DrawFn, at: datetime, events: list[Event], barn_id: str, weight_kg: float
) -> list[Event]:
    """A session that may lack parts, or have been cancelled, or be heard of twice."""
    base = {"barn_id": barn_id, "session": len(events), "clock_suspect": draw(RARELY)}
    kind = draw(st.sampled_from(["named", "named", "named", "recorded", "derived", "open", "cut"]))
    batch_id = draw(NAMED)
    created: dict[str, Any] = {
        "status": "created",
        "batch_id": batch_id,
        "initial_weight_kg": None,
    }
    if batch_id is not None and draw(st.booleans()):
        created["batch_derived"] = True
    final: dict[str, Any] = {
        "final_weight_kg": weight_kg,
        "image_count": 0,
        "inference_result_id": None,
    }
    if kind == "recorded":
        final["final_weight_kg"] = None
    if kind == "derived":
        final |= {"final_weight_kg": 99.0, "weight_derived": True}
    parts: list[tuple[str, int, dict[str, Any]]]
    parts = [] if draw(RARELY) else [("session.created", 0, created)]
    if kind in {"recorded", "derived"}:
        parts += [
            ("weight.recorded", 3, {"weight_kg": 88.0}),
            ("weight.recorded", 5, {"weight_kg": weight_kg}),
        ]
    if kind == "cut":
        parts.append(("session.cancelled", 6, {"status": "cancelled"}))
    elif kind != "open":
        parts.append(("session.finalized", 7, {"status": "finalized", **final}))
    made: list[Event] = [
        {
            **base,
            "event_type": f"weighvision.{name}",
            "occurred_at": at + timedelta(seconds=20 * second),
            "payload": payload,
        }
        for name, second, payload in parts
    ]
    return made + [
        {
            **base,
            "clock_suspect": draw(RARELY),
            "occurred_at": at + timedelta(seconds=20 * draw(st.integers(6, 12))),
            **worked_examples.estimate(UUID(int=9), round(weight_kg * share, 4)),
        }
        for share in draw(st.lists(st.sampled_from([0.9, 1.02, 1.3]), max_size=2))
    ]


@st.composite
def _sessions(draw: st.DrawFn) -> Make:
    barn_id, (weight_kg,) = draw(BARNS), draw(_weights(1))

    def make(draw: st.DrawFn, at: datetime, events: list[Event]) -> list[Event]:
        return _session(draw, at, events, barn_id, weight_kg)

    return make


@st.composite
def _days_of_sessions(draw: st.DrawFn) -> Make:
    """Enough weighings of a day for outliers."""
    barn_id, middle = draw(BARNS), draw(st.integers(300, 3000))
    shares = draw(
        st.lists(
            st.sampled_from([0.97, 0.99, 1.0, 1.003, 1.013, 1.04, 1.17, 1.6]),
            min_size=4,
            max_size=8,
        )
    )

    def make(_: st.DrawFn, at: datetime, events: list[Event]) -> list[Event]:
        made: list[Event] = []
        for number, share in enumerate(shares):
            session = len(events) + len(made)
            weight_kg = round(middle * share / 1000, 4)
            for name, payload in (
                ("created", {"status": "created", "batch_id": None, "initial_weight_kg": None}),
                (
                    "finalized",
                    {
                        "status": "finalized",
                        "final_weight_kg": weight_kg,
                        "image_count": 0,
                        "inference_result_id": None,
                    },
                ),
            ):
                made.append(
                    {
                        "event_type": f"weighvision.session.{name}",
                        "barn_id": barn_id,
                        "session": session,
                        "occurred_at": at + timedelta(seconds=number + (name == "finalized")),
                        "payload": payload,
                    }
                )
        return made

    return make


def _replaced(draw: st.DrawFn, events: list[Event], family: str) -> dict[str, int | None]:
    """Whether an event corrects an earlier one of its family, or one that never came."""
    earlier = [n for n, event in enumerate(events) if event["event_type"].startswith(family)]
    which = draw(st.sampled_from(["none", "none", "earlier", "earlier", "lost"]))
    if which == "earlier" and earlier:
        return {"replaces": draw(st.sampled_from(earlier))}
    return {"replaces": None} if which == "lost" else {}


def _of_batch(draw: st.DrawFn, named: str | None) -> dict[str, Any]:
    """A batch that somebody named, or that was in the barn by what was registered at first."""
    if named is None:
        return {}
    return {"batch_id": named} | ({"batch_derived": True} if draw(st.booleans()) else {})


@st.composite
def _intakes(draw: st.DrawFn) -> Make:
    barn_id, named, grams = draw(BARNS), draw(NAMED), draw(st.integers(1, 90_000))
    event_type = draw(st.sampled_from(["feed.intake.recorded"] * 5 + ["feed.lot.received"]))

    def make(draw: st.DrawFn, at: datetime, events: list[Event]) -> list[Event]:
        payload: dict[str, Any] = {"quantity_kg": grams / 1000, **_replaced(draw, events, "feed.")}
        if event_type == "feed.lot.received":
            payload["feed_lot_id"] = "lot-1"
        else:
            payload |= {"source": "MANUAL"} | _of_batch(draw, named)
        return [
            {
                "event_type": event_type,
                "barn_id": barn_id,
                "occurred_at": at,
                "clock_suspect": draw(RARELY),
                "payload": payload,
            }
        ]

    return make


@st.composite
def _records(draw: st.DrawFn) -> Make:
    barn_id, named = draw(BARNS), draw(NAMED)
    kind = draw(st.sampled_from(["mortality"] * 3 + ["cull", "head_count", "water", "temperature"]))
    most = {"mortality": 5, "cull": 5, "head_count": 300}.get(kind)
    value = draw(st.integers(0, most) if most else st.integers(1, 20_000).map(lambda n: n / 100))
    unit = draw(st.sampled_from([None, "l", "L", "m3"])) if kind == "water" else None

    def make(draw: st.DrawFn, at: datetime, events: list[Event]) -> list[Event]:
        payload: dict[str, Any] = {
            "record_id": "",
            "record_type": kind,
            "value": value,
            "unit": unit,
            "recorded_by_ref": "anna",
            "recorded_at": at.isoformat().replace("+00:00", "Z"),
            **_of_batch(draw, named),
            **_replaced(draw, events, "barn."),
        }
        return [
            {
                "event_type": "barn.record.created",
                "barn_id": barn_id,
                "occurred_at": at,
                "clock_suspect": draw(RARELY),
                "payload": payload,
            }
        ]

    return make


@st.composite
def _readings(draw: st.DrawFn) -> Make:
    """Readings of some hours in a row: hot or not, in units that are known or not."""
    barn_id, hours = draw(BARNS), draw(st.integers(1, 3))
    hot = draw(st.integers(1500, 4000).map(lambda n: n / 100))
    damp = draw(st.integers(2000, 9900).map(lambda n: n / 100))
    unit = draw(st.sampled_from(["°C", "C", "F", "K"]))
    flow_unit = draw(st.sampled_from(["l/min", "m3/h", "gal"]))
    metrics = draw(
        st.lists(
            st.sampled_from(
                [
                    ("temperature", unit, hot * 1.8 + 32 if unit == "F" else hot),
                    ("humidity", "%", damp),
                    ("water.flow", flow_unit, damp / 100),
                    ("co2", "ppm", 800.5),
                ]
            ),
            min_size=1,
            max_size=4,
            unique_by=lambda metric: metric[0],
        )
    )

    def make(draw: st.DrawFn, at: datetime, _: list[Event]) -> list[Event]:
        return [
            {
                "event_type": "telemetry.ingested",
                "barn_id": barn_id,
                # A device always sends one unit, and does not move.
                "device_id": f"{metric}-{barn_id}-{number}-{metric_unit.encode().hex()}",
                "occurred_at": at + timedelta(minutes=55 * hour + number),
                "clock_suspect": draw(RARELY),
                "payload": {
                    "metric_type": metric,
                    "metric_value": round(value + hour + 0.37 * number, 4),
                    "unit": metric_unit,
                },
            }
            for hour in range(hours)
            for number in range(draw(st.integers(1, 2)))
            for metric, metric_unit, value in metrics
        ]

    return make


@pytest.mark.timeout(600)
@pytest.mark.parametrize("zone", sorted(CHANGES))
@drawn(15)
@given(data=st.data(), dice=st.randoms(use_true_random=False), copies=st.integers(1, 3))
async def test_figures_equal_a_recount_for_any_order_and_repetition(
    cloud: Cloud, zone: str, data: st.DataObject, dice: random.Random, copies: int
) -> None:
    """Also for late and corrected events and master data, over changes of clocks in three zones."""
    life = data.draw(lives(zone))
    try:
        meant = recount.recount(life.events, life.last)
    except TieError:
        assume(False)
    with databases.connected(cloud.admin_url) as connection:
        add_company(connection, life.tenant_id, name=life.tenant_id)
    await cloud.register(life.first)
    deliveries = [
        (to, event)
        for event in life.events
        for to in (SINKS[event["event_type"].split(".")[0]], analytics.DAYS)
        if event["event_type"] in to.work.event_types
        for _ in range(dice.randint(1, copies))
    ]
    dice.shuffle(deliveries)
    registered_at = dice.randrange(len(deliveries) + 1)
    while deliveries:
        to = deliveries[0][0]
        count = dice.randint(1, 12)
        await cloud.deliver(to, [event for other, event in deliveries[:count] if other is to])
        deliveries = [
            *(pair for pair in deliveries[:count] if pair[0] is not to),
            *deliveries[count:],
        ]
        if len(deliveries) <= registered_at:
            await cloud.register(life.last)
            registered_at = -1
        if dice.random() < 0.2:
            await cloud.work()
    if registered_at >= 0:
        await cloud.register(life.last)
    await cloud.settle()
    check(await cloud.figures(life.tenant_id), meant)


async def test_worked_examples_of_the_page_are_what_the_product_computes(cloud: Cloud) -> None:
    with databases.connected(cloud.admin_url) as connection:
        add_company(connection, worked_examples.TENANT, name="One")
    master, events = worked_examples.master_data(), worked_examples.events()
    await cloud.register(master)
    for event in events:
        await cloud.deliver(SINKS[event["event_type"].split(".")[0]], [event])
        await cloud.deliver(analytics.DAYS, [event])
    await cloud.settle()
    found = await cloud.figures(worked_examples.TENANT)
    check(found, recount.recount(events, master))
    for example in worked_examples.examples():
        figure = found[worked_examples.TENANT, example.batch_id, example.on, example.kind]
        shown = figure.difference if example.is_difference else figure.value
        assert shown == pytest.approx(example.value, rel=1e-9)
        assert figure.unit == example.unit
    async with cloud.pool.connection() as connection:
        for batch_id, on in worked_examples.SAFE_TO_SELL_FROM.items():
            query = "select fn_safe_to_sell_from(%s, %s)"
            assert await db.fetch_value(connection, query, worked_examples.TENANT, batch_id) == on


async def readings_of_the_examples(cloud: Cloud) -> None:
    """Those of the worked examples, stored and rolled up; nothing is published yet."""
    with databases.connected(cloud.admin_url) as connection:
        add_company(connection, worked_examples.TENANT, name="One")
    await cloud.register(worked_examples.master_data())
    await cloud.settle()
    readings = [
        event for event in worked_examples.events() if event["event_type"] == "telemetry.ingested"
    ]
    await cloud.deliver(telemetry.READINGS, readings)
    await rollups.recompute_all(cloud.pool)


async def kinds_of_the_day(cloud: Cloud) -> set[str]:
    found = await cloud.figures(worked_examples.TENANT)
    return {kind for _, _, on, kind in found if on == date(2026, 3, 29)}


@pytest.mark.req("RB-15")
async def test_buckets_that_telemetry_publishes_bring_figures_of_their_day(cloud: Cloud) -> None:
    """What analytics hears of is telemetry.aggregated alone: other marks are taken away."""
    await readings_of_the_examples(cloud)
    with databases.connected(cloud.admin_url) as connection:
        connection.execute("delete from analytics_dirty_days")
    await cloud.work()
    await cloud.settle()
    assert {"data_coverage", "thi_hours", "water_per_head"} <= await kinds_of_the_day(cloud)


async def test_hours_that_readings_change_bring_figures_of_their_day(cloud: Cloud) -> None:
    """Analytics reads nothing from the bus: the rollup marked the days in its own transaction."""
    await readings_of_the_examples(cloud)
    with databases.connected(cloud.admin_url) as connection:
        marked = "select batch_id, first_date from analytics_dirty_days"
        assert len({*connection.execute(marked)}) == connection.execute(marked).rowcount
        connection.execute("update analytics_dirty_days set due_at = now()")
    await Recomputation(cloud.pool, cloud.publisher, 60).recompute()
    assert {"data_coverage", "thi_hours", "water_per_head"} <= await kinds_of_the_day(cloud)
    # The same hours again change nothing, so nothing is marked.
    await rollups.recompute_all(cloud.pool)
    with databases.connected(cloud.admin_url) as connection:
        assert connection.execute(marked).fetchall() == []
