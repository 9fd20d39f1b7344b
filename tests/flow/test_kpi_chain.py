"""A simulated life, posted by an enrolled edge to the real cloud, against the figures it makes."""

import ssl
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import psycopg
import pytest

from farmiq.cloud import bus
from farmiq.cloud.edges import registry
from farmiq.cloud.farms import store
from farmiq.config import EdgeSettings
from farmiq.edge.sync import enrolment
from farmiq.lab.simulate.life import files, flocks, history, post
from farmiq.lab.simulate.life.flocks import Life
from farmiq.lab.simulate.life.history import Day
from farmiq.messages import bus as envelopes
from farmiq.messages import weighvision
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import ids
from farmiq.plumbing.bus import amqp
from tests.support import routed
from tests.support.farm import TENANT, Farm
from tests.support.until import until

ZONE = "Europe/Berlin"
STANDARD = files.standard()
EDGE = "edge-simulated"
# Standard errors by which the mean of a day's weighings may miss the flock's true mean, and what
# two birds on the scale at once may add where they are not seen as an outlier.
ERRORS, UNSEEN_PAIRS = 4.0, 0.015

ROUTED = {
    "feed.intake.recorded", "feed.lot.received", "barn.record.created", "kpi.daily.updated",
}  # fmt: skip

Figures = dict[tuple[str, date, str], float]


def a_life(days: int) -> Life:
    """Until yesterday afternoon: whatever the date, the same birds live and are weighed.

    Of fewer days than the farm has, flocks begin sooner to differ, and differ more.
    """
    yesterday = (datetime.now(ZoneInfo(ZONE)) - timedelta(days=1)).date()
    until_at = datetime.combine(yesterday, time(15, 10), ZoneInfo(ZONE)).astimezone(UTC)
    life = flocks.broiler_farm(TENANT, until=until_at, timezone=ZONE)
    if days == flocks.DAYS:
        return life
    later = timedelta(days=flocks.DAYS - days)
    ordinary, behind, hot, by_hand = life.flocks
    antibiotic = msgspec.structs.replace(flocks.ANTIBIOTIC, age_days=days - 3)
    changes: tuple[tuple[flocks.Flock, dict[str, Any]], ...] = (
        (ordinary, {}),
        (behind, {"growth": 0.68, "treatments": (*flocks.VACCINES, antibiotic)}),
        (hot, {"differs_from_age": 8, "hot_from_age": 8}),
        (by_hand, {"placed_on": by_hand.placed_on + later / 2}),
    )
    younger = tuple(
        msgspec.structs.replace(flock, **{"placed_on": flock.placed_on + later, **change})
        for flock, change in changes
    )
    return msgspec.structs.replace(life, flocks=younger)


async def enrolled(farm: Farm) -> EdgeSettings:
    """An edge that has made its key and registered it over HTTP, as one in a barn does."""
    async with await psycopg.AsyncConnection.connect(farm.cloud_db.admin_url) as tx:
        code, _ = await registry.invite(
            tx, EDGE, [TENANT], lasts=timedelta(minutes=5), actor="test"
        )
    key_file = farm.folder / "simulated.jwk"
    enrolment.enroll(farm.url("cloud"), code, key_file, tls=ssl.create_default_context())
    return EdgeSettings.load_some(
        {
            **farm.environment,
            "FARMIQ_EDGE_CLUSTER_ID": EDGE,
            "FARMIQ_EDGE_KEY_FILE": str(key_file),
        }
    )


async def register(farm: Farm, life: Life) -> None:
    async with await psycopg.AsyncConnection.connect(farm.cloud_db.admin_url) as tx:
        for kind, rows in files.masterdata(life):
            await store.save(tx, kind, TENANT, rows)


def figures(farm: Farm) -> Figures:
    rows = farm.cloud("select batch_id, kpi_date, kpi_type, value from kpi_daily")
    return {(batch, on, kind): value for batch, on, kind, value in rows}


def wrong(found: Figures, life: Life, days: list[Day]) -> list[tuple[object, ...]]:
    """(figure, found, expected) of what is missing, too much or wrong."""
    heads = {(day.batch_id, day.on, "head_count"): float(day.head) for day in days}
    differing: list[tuple[object, ...]] = [
        (key, found.get(key), heads.get(key))
        for key in heads.keys() | {key for key in found if key[2] == "head_count"}
        if found.get(key) != heads.get(key)
    ]
    for flock in life.flocks:
        lived = [day for day in days if day.batch_id == flock.batch_id]
        differing += [
            (key, found.get(key), expected)
            for key, expected, tolerance in _checks(flock, lived)
            if key not in found or abs(found[key] - expected) > tolerance
        ]
    return differing


@pytest.mark.timeout(600)
@pytest.mark.parametrize("days_lived", [21, pytest.param(flocks.DAYS, marks=pytest.mark.long)])
@pytest.mark.req("RB-04", "RB-09", "RB-14", "FB-11", "FB-13")
async def test_figures_of_a_simulated_farm_are_what_truly_happened_there(
    two_sites: Farm, days_lived: int
) -> None:
    farm, life = two_sites, a_life(days_lived)
    days = [lived.day for lived in history.lived(life, STANDARD)]
    await register(farm, life)
    farm.start("cloud")
    await farm.until_ready()

    edge = await enrolled(farm)
    async with routed.routes(farm.environment["FARMIQ_AMQP_URL"]) as routes:
        posted = await post.post(life, STANDARD, edge)
        await until_settled(farm, posted)
        await until(lambda: routed.types(routes) >= ROUTED)
    found = figures(farm)
    assert wrong(found, life, days) == []
    safe_from = farm.cloud(
        "select batch_id, fn_safe_to_sell_from(tenant_id, batch_id) from batches order by 1"
    )
    last_days = {day.batch_id: day.safe_from for day in days}
    assert dict(safe_from) == last_days
    ordinary, behind, hot, _ = (_last_week(found, flock) for flock in life.flocks)
    assert hot["thi_hours"] > 50 + ordinary["thi_hours"]
    assert behind["weight_uniformity"] < ordinary["weight_uniformity"] - 70
    assert _share_of_standard(farm, life.flocks[0]) == pytest.approx(1, abs=0.04)
    assert _share_of_standard(farm, life.flocks[1]) == pytest.approx(0.85, abs=0.05)

    # The rule that ships has seen the figures: one flock is behind its standard.
    await until(lambda: _behind(farm) == [(life.flocks[1].batch_id,)])

    # The first days once more, as after a demo that was stopped while it posted them.
    before = farm.cloud("select sum(revision), count(*) from kpi_daily")
    first_days = msgspec.structs.replace(life, until=life.until - timedelta(days=days_lived - 3))
    assert await post.post(first_days, STANDARD, edge) > 1000
    await until_settled(farm, posted)
    assert farm.cloud("select sum(revision), count(*) from kpi_daily") == before


async def until_settled(farm: Farm, posted: int) -> None:
    """Every event is in its table, every bucket is published, and every day is computed.

    Waited for in the order in which one place fills the next: what has left one is in the next.
    """
    await until(lambda: stored(farm) == posted, within_s=400)
    await until_none(farm, "telemetry_dirty")
    await until_none(farm, "telemetry_agg where pending")
    await until_analytics_has_read_all(farm)
    await until_none(farm, "analytics_pending")
    await until_none(farm, "analytics_dirty_days")


async def until_none(farm: Farm, rows: str) -> None:
    await until(lambda: not farm.cloud(f"select from {rows} limit 1"), within_s=400)


def stored(farm: Farm) -> int:
    ((count,),) = farm.cloud(
        "select (select count(*) from telemetry_readings) + (select count(*) from feed_events)"
        " + (select count(*) from barn_events) + (select count(*) from weighvision_events)"
    )
    return int(count)


async def until_analytics_has_read_all(farm: Farm) -> None:
    """What the bus holds for analytics now, which no table shows.

    One more event comes behind all that: of a session that nobody stores, so that it is seen to
    wait for its row.
    """
    last = BusEvent(
        event_id=ids.new(),
        event_type=weighvision.SESSION_CANCELLED,
        tenant_id=TENANT,
        farm_id="nowhere",
        barn_id="nowhere",
        session_id=ids.new(),
        occurred_at=datetime.now(UTC),
        trace_id="last",
        payload=msgspec.Raw(msgspec.json.encode(weighvision.SessionCancelled(status="cancelled"))),
    )
    message = amqp.Outgoing(
        bus.RETRY_EXCHANGE, bus.DAYS.queue, envelopes.write(last), str(last.event_id)
    )
    async with amqp.publisher(
        farm.environment["FARMIQ_AMQP_URL"], name="test", topology=bus.part(bus.DAYS)
    ) as publisher:
        await publisher.publish([message], timeout_s=60)
    waits = f"where event_id = '{last.event_id}'"
    await until(lambda: farm.cloud(f"select from analytics_pending {waits}"), within_s=400)
    farm.cloud(f"delete from analytics_pending {waits} returning 1")  # noqa: S608


def _checks(
    flock: flocks.Flock, days: list[Day]
) -> Iterator[tuple[tuple[str, date, str], float, float]]:
    """(figure, what it must be, by how much it may differ) of every day of a flock."""
    first_kg = STANDARD.weight_kg(0)
    dead, feed_kg, head_start = 0, 0.0, flock.placed_count

    def of(day: Day, kind: str, expected: float, tolerance: float = 1e-6) -> Any:
        return (flock.batch_id, day.on, kind), expected, tolerance

    for number, day in enumerate(days):
        dead, feed_kg = dead + day.dead, feed_kg + day.feed_kg
        yield of(day, "mortality_pct", 100 * dead / flock.placed_count)
        yield of(day, "mortality_day_pct", 100 * day.dead / head_start)
        if day.feed_kg:
            yield of(day, "intake_kg", day.feed_kg)
            yield of(day, "intake_per_head", 1000 * day.feed_kg / head_start)
        yield of(day, "water_per_head", day.water_l / head_start)
        yield of(day, "data_coverage", 100 * day.hours / _hours(day.on))
        head_start = day.head
        if day.mean_kg is None:
            continue
        error_kg = day.mean_kg * (ERRORS * flock.spread / day.weighed**0.5 + UNSEEN_PAIRS)
        yield of(day, "weight_mean", day.mean_kg, error_kg)
        if number:
            gain = 1000 * (day.mean_kg - first_kg) / number
            yield of(day, "adg", gain, 1000 * error_kg / number)
        gained_kg = day.mean_kg * day.head - first_kg * flock.placed_count
        if number > 7 and feed_kg:
            share = error_kg * day.head / gained_kg
            yield of(day, "fcr", feed_kg / gained_kg, feed_kg / gained_kg * share / (1 - share))


def _last_week(found: Figures, flock: flocks.Flock) -> Counter[str]:
    """Sums of the figures of a batch over its last seven days."""
    dates = {on for batch, on, _ in found if batch == flock.batch_id}
    totals: Counter[str] = Counter()
    for (batch, on, kind), value in found.items():
        if batch == flock.batch_id and on in sorted(dates)[-7:]:
            totals[kind] += value  # type: ignore[assignment]
    return totals


def _behind(farm: Farm) -> list[tuple[Any, ...]]:
    return farm.cloud(
        "select batch_id from alert_episodes where rule_id = 'default.weight.behind' "
        "and state = 'active' order by 1"
    )


def _share_of_standard(farm: Farm, flock: flocks.Flock) -> float:
    """The newest mean weight as a share of what the standard says for that age."""
    rows = farm.cloud(
        "select distinct on (batch_id) batch_id, value, expected_value, difference from kpi_daily "
        "where kpi_type = 'weight_mean' order by batch_id, kpi_date desc"
    )
    value, expected, difference = {row[0]: row[1:] for row in rows}[flock.batch_id]
    assert difference == pytest.approx(value - expected)
    return float(value / expected)


def _hours(on: date) -> int:
    begin, end = (flocks.midnight(on + timedelta(days=days), ZONE) for days in (0, 1))
    return int((end - begin) / timedelta(hours=1))
