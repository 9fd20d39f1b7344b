"""Daily figures from stored events: late, repeated, corrected, in any order, in any zone."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import psycopg
import pytest

from tests.integration.cloud.analytics.conftest import PLACED_ON, Analytics, at, on, shuffled


async def weigh(farm: Analytics, day: int, *weights: float, **more: Any) -> None:
    for minute, weight_kg in enumerate(weights):
        await farm.send(*farm.weighing(at(day, 8, minute), weight_kg, **more))


async def test_day_with_all_kinds_of_events_has_all_figures(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.standard((0, 0.04), (10, 0.3))
    farm.batch(breed="fast")
    await weigh(farm, 0, 0.05)
    await weigh(farm, 7, 0.19, 0.21, 0.2)
    await farm.send(
        farm.intake(at(0), 10.0), farm.intake(at(7), 200.0), farm.record(at(7), "mortality", 10),
        farm.record(at(7), "water", 0.5, payload={"unit": "m3"}), farm.record(at(7), "cull", 5),
    )  # fmt: skip
    for hour in range(24):
        farm.hour(at(7, hour), "temperature", 40.0 if hour < 6 else 20.0, unit="°C")
    farm.hour(at(7, 1), "humidity", 50.0, unit="%")
    await farm.hear(farm.aggregated(at(7, 1), "humidity", 50.0, unit="%"))
    await farm.settle()
    found = {kind: value for (day, kind), value in farm.figures().items() if day == on(7)}
    weight = 0.2 * 985 - 0.04 * 1000
    assert found == pytest.approx(
        {
            "head_count": 985,
            "weight_mean": 0.2,
            "weight_median": 0.2,
            "weight_p10": 0.192,
            "weight_p90": 0.208,
            "weight_cv": 5.0,
            "weight_uniformity": 100.0,
            "adg": 1000 * 0.16 / 7,
            "adg_7d": 1000 * 0.15 / 7,
            "fcr": 210 / weight,
            "epef": 98.5 * 0.2 / (7 * 210 / weight) * 100,
            "intake_kg": 200.0,
            "intake_per_head": 200.0,
            "water_per_head": 0.5,
            "water_to_feed": 2.5,
            "mortality_day_pct": 1.0,
            "mortality_pct": 1.0,
            "thi_hours": 1.0,
            "data_coverage": 100.0,
        }
    )
    ((expected, difference),) = farm.owner(
        "select expected_value, difference from kpi_daily "
        "where kpi_date = %s and kpi_type = 'weight_mean'",
        on(7),
    )
    assert (expected, difference) == pytest.approx((0.222, 0.2 - 0.222))


@pytest.mark.req("RB-28")
@pytest.mark.parametrize("seed", range(2))
async def test_events_repeated_in_any_order_give_the_same_figures(
    analytics: Analytics, seed: int
) -> None:
    farm = analytics
    farm.farm(zone="America/New_York", barns=("1", "2"))
    farm.batch("b", closed_on=date(2026, 3, 20))
    farm.batch("c", barn_id="2")
    events = []
    for day in range(12):
        for n in range(3):
            events += farm.weighing(at(day, 3 + n), 0.1 + day * 0.05 + n * 0.003)
        events.append(farm.intake(at(day, 4), 50.1 + day))
        events.append(farm.record(at(day, 5), "mortality", day % 3, barn_id="2"))
    wrong = farm.record(at(3), "mortality", 500)
    record_id = msgspec.json.decode(wrong.payload)["record_id"]
    events += [wrong, farm.record(at(4), "mortality", 5, payload={"replaces": record_id})]
    first = farm.intake(at(5), 999.0)
    second = farm.intake(at(6), 9.0, payload={"replaces": str(first.event_id)})
    events += [first, second]
    await farm.send(*events)
    await farm.settle()
    once = farm.rows()
    assert once
    # From nothing again, each event one to three times, heard before or after it is stored.
    for table in ("feed_events", "barn_events", "weighvision_events", "weight_sessions"):
        farm.owner(f"delete from {table}")  # noqa: S608
    for table in ("kpi_daily", "batch_days", "analytics_dirty_days", "analytics_pending"):
        farm.owner(f"delete from {table}")  # noqa: S608
    for number, event in enumerate(shuffled(events, seed)):
        steps = (farm.hear, farm.store) if number % 2 else (farm.store, farm.hear)
        for step in steps:
            await step(event)
        if number % 30 == 0:
            await farm.settle()
    await farm.settle()
    assert farm.rows() == once
    assert farm.owner("select count(*) from analytics_pending") == [(0,)]
    assert await farm.settle() == 0


async def test_late_event_changes_only_the_days_that_it_touches(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.standard((0, 0.04), (60, 3.0))
    farm.batch(breed="fast")
    for day in range(45):
        await weigh(farm, day, 0.1 + day * 0.05)
        await farm.send(farm.intake(at(day), 100.0))
    await farm.settle()
    before = farm.revisions()

    def changed() -> set[tuple[str, str]]:
        after = farm.revisions()
        return {
            (day, kind) for (_, day, kind), n in after.items() if before.get(("b", day, kind)) != n
        }

    await weigh(farm, 5, 0.5)
    await farm.settle()
    days = {day for day, _ in changed()}
    assert days == {on(5), on(12), on(35)}  # other days have a nearer reference
    assert {kind for day, kind in changed() if day == on(12)} == {"adg_7d"}
    assert {kind for day, kind in changed() if day == on(35)} == {"adg_30d"}
    before = farm.revisions()
    await farm.send(farm.record(at(40), "mortality", 3))
    await farm.settle()
    assert {day for day, _ in changed()} == {on(day) for day in range(40, 45)}
    before = farm.revisions()
    farm.hour(at(20), "temperature", 20.0, unit="°C")
    await farm.hear(farm.aggregated(at(20), "temperature", 20.0, unit="°C"))
    await farm.settle()
    assert changed() == {(on(20), "data_coverage")}
    before = farm.revisions()
    await farm.send(farm.intake(at(42), 1.0))
    await farm.settle()
    assert changed() == {
        *((on(42), kind) for kind in ("intake_kg", "intake_per_head")),
        *((on(day), kind) for day in (42, 43, 44) for kind in ("fcr", "epef")),
    }


async def test_corrected_record_counts_once_and_on_its_own_day(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    wrong = farm.record(at(1), "mortality", 100)
    await farm.send(wrong, farm.intake(at(1), 5.0), farm.intake(at(3), 5.0))
    await farm.settle()
    assert farm.figures()[on(3), "head_count"] == 900
    replaces = msgspec.json.decode(wrong.payload)["record_id"]
    await farm.send(farm.record(at(2), "mortality", 10, payload={"replaces": replaces}))
    await farm.settle()
    found = farm.figures()
    assert found[on(1), "head_count"] == 1000
    assert found[on(2), "head_count"] == found[on(3), "head_count"] == 990
    assert found[on(1), "mortality_day_pct"] == 0


async def test_withdrawn_figure_keeps_its_row_and_returns_with_a_later_revision(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    first = farm.intake(at(1), 5.0)
    await farm.send(first)
    await farm.settle()
    second = farm.intake(at(1), 0.0, payload={"replaces": str(first.event_id)}, clock_suspect=True)
    await farm.send(second)
    await farm.settle()
    assert farm.figures() == {}
    assert set(farm.revisions().values()) == {2}
    await farm.send(farm.intake(at(1), 6.0))
    await farm.settle()
    assert farm.figures()[on(1), "intake_kg"] == 6.0
    assert set(farm.revisions().values()) == {3}


async def test_batch_without_animals_left_has_no_figures_per_head(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch(placed_count=10)
    await farm.send(farm.record(at(1), "cull", 15), farm.intake(at(2), 5.0))
    await farm.settle()
    found = farm.figures()
    assert found[on(1), "head_count"] == found[on(2), "head_count"] == 0
    assert (on(2), "intake_per_head") not in found
    assert (on(2), "mortality_day_pct") not in found
    assert found[on(2), "intake_kg"] == 5.0


async def test_head_count_record_is_the_count_at_the_end_of_its_day(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    await farm.send(
        farm.record(at(1), "mortality", 7), farm.record(at(2, 8), "head_count", 980),
        farm.record(at(2, 9), "head_count", 981), farm.record(at(2, 10), "mortality", 4),
        farm.record(at(3), "cull", 1),
    )  # fmt: skip
    await farm.settle()
    heads = {day: value for (day, kind), value in farm.figures().items() if kind == "head_count"}
    assert heads == {on(1): 993, on(2): 981, on(3): 980}


async def test_batch_without_weighings_has_no_weights_gains_and_conversion(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    await farm.send(farm.intake(at(1), 5.0), farm.record(at(1), "water", 9.0))
    await farm.settle()
    assert {kind for _, kind in farm.figures()} == {
        "head_count", "mortality_day_pct", "mortality_pct", "intake_kg", "intake_per_head",
        "water_per_head", "water_to_feed",
    }  # fmt: skip


async def test_closed_batch_ends_with_its_last_day_and_the_next_one_begins(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch("b")
    await farm.send(*(farm.intake(at(day), 10.0 + day) for day in range(8)))
    await farm.settle()
    assert len([1 for _, kind in farm.figures("b") if kind == "intake_kg"]) == 8
    farm.owner("update batches set closed_on = placed_on + 3")
    farm.batch("c", placed_on=date(2026, 3, 6))
    await farm.settle()
    intakes = {day for day, kind in farm.figures("b") if kind == "intake_kg"}
    assert intakes == {on(day) for day in range(4)}
    intakes = {day for day, kind in farm.figures("c") if kind == "intake_kg"}
    assert intakes == {on(5), on(6), on(7)}
    # A late one of the closed batch changes the closed batch alone.
    before = farm.revisions()
    await farm.send(farm.intake(at(2), 1.0), farm.intake(at(4), 1.0))
    await farm.settle()
    changed = {key[0] for key, n in farm.revisions().items() if before.get(key) != n}
    assert changed == {"b"}
    farm.owner("delete from batches where batch_id = 'c'")
    await farm.settle()
    assert farm.figures("c") == {}


@pytest.mark.parametrize(
    ("zone", "clock_change", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/New_York", date(2026, 3, 8), 23),
        ("Australia/Lord_Howe", date(2026, 4, 5), None),
        ("Asia/Kolkata", date(2026, 4, 5), 24),
        ("Asia/Kathmandu", date(2026, 4, 5), 24),
    ],
)
async def test_day_of_a_clock_change_has_its_own_hours(
    analytics: Analytics, zone: str, clock_change: date, hours: int | None
) -> None:
    farm, local = analytics, ZoneInfo(zone)
    farm.farm(zone=zone)
    farm.batch(placed_on=clock_change - timedelta(days=5))
    days = [clock_change + timedelta(days=n) for n in (-1, 0, 1, 2)]
    begins = [datetime.combine(day, datetime.min.time(), tzinfo=local) for day in days]
    for begin in begins[:3]:
        instant = begin.astimezone(UTC)
        await farm.send(farm.intake(instant, 1.0))
        await farm.send(farm.intake(instant - timedelta(seconds=1), 100.0))
    first = begins[0].astimezone(UTC).replace(minute=0)
    for n in range(80):
        farm.hour(first + timedelta(hours=n), "x", 1.0, unit="1")
    await farm.hear(
        *(farm.aggregated(first + timedelta(hours=n), "x", 1.0, unit="1") for n in range(72))
    )
    await farm.settle()
    found = farm.figures()
    assert [found[day.isoformat(), "intake_kg"] for day in days[:2]] == [101.0, 101.0]
    counted = {
        row[0]: (row[1], row[2])
        for row in farm.owner("select kpi_date, hours, covered_hours from batch_days")
    }
    for day, (begin, end) in zip(days, pairwise(begins), strict=False):
        span = range(80)
        inside = [
            n for n in span
            if begin.astimezone(UTC) <= first + timedelta(hours=n) < end.astimezone(UTC)
        ]  # fmt: skip
        assert counted[day] == (len(inside), len(inside))
        assert found[day.isoformat(), "data_coverage"] == 100.0
    if hours is not None:
        assert counted[clock_change][0] == hours


async def test_outlier_is_left_out_and_named(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    await weigh(farm, 1, 1.0, 1.01, 0.99, 1.02, 0.98, 9.0)
    await farm.settle()
    assert farm.figures()[on(1), "weight_mean"] == pytest.approx(1.0)
    rows = farm.owner(
        "select weight_kg from fn_batch_weighings('t-001', 'b', %s, %s) where is_outlier",
        on(1), on(1),
    )  # fmt: skip
    assert rows == [(9.0,)]


async def test_session_counts_for_the_batch_it_names_before_that_of_the_barn(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm(barns=("1", "2"))
    farm.batch("b")
    farm.batch("c", barn_id="2")
    created, ended = farm.weighing(at(1), 2.0, batch_id="c")
    await farm.send(ended)
    await farm.settle()
    assert farm.figures("b")[on(1), "weight_mean"] == 2.0
    await farm.send(created)
    await farm.settle()
    assert farm.figures("b") == {}
    assert farm.figures("c")[on(1), "weight_mean"] == 2.0
    await farm.send(*farm.weighing(at(2), 3.0, batch_id="unknown"))
    await farm.settle()
    assert (on(2), "weight_mean") not in farm.figures("b")


async def test_weighing_of_an_edge_with_old_batches_counts_for_the_batch_in_the_barn(
    analytics: Analytics,
) -> None:
    """The edge derived the batch that was there by its last copy of the master data."""
    farm = analytics
    farm.farm()
    farm.batch("old")
    await farm.send(
        *farm.weighing(at(3), 1.0, batch_id="old", derived=True),
        *farm.weighing(at(6), 2.0, batch_id="old", derived=True),
    )
    await farm.settle()
    assert farm.figures("old")[on(6), "weight_mean"] == 2.0
    farm.owner("update batches set closed_on = %s", PLACED_ON + timedelta(days=4))
    farm.batch("new", placed_on=PLACED_ON + timedelta(days=5))
    await farm.settle()
    assert (on(6), "weight_mean") not in farm.figures("old")
    assert farm.figures("old")[on(3), "weight_mean"] == 1.0
    assert farm.figures("new")[on(6), "weight_mean"] == 2.0


async def test_weighing_that_comes_after_the_end_of_its_session_is_counted(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    created, ended = farm.weighing(at(1), 2.0)
    payload = {**msgspec.json.decode(ended.payload), "final_weight_kg": None}
    ended = msgspec.structs.replace(ended, payload=msgspec.Raw(msgspec.json.encode(payload)))
    await farm.send(created, ended)
    await farm.settle()
    assert farm.figures() == {}
    weight = farm.event(
        "weighvision.weight.recorded", at(1), {"weight_kg": 2.5}, session_id=created.session_id
    )
    await farm.send(weight)
    await farm.settle()
    assert farm.figures()[on(1), "weight_mean"] == 2.5


async def test_batch_registered_after_its_events_gets_their_figures(analytics: Analytics) -> None:
    farm = analytics
    await farm.send(farm.intake(at(1), 4.0), *farm.weighing(at(2), 1.5))
    await farm.settle()
    farm.farm()
    farm.batch()
    await farm.settle()
    found = farm.figures()
    assert (found[on(1), "intake_kg"], found[on(2), "weight_mean"]) == (4.0, 1.5)


async def test_master_data_change_the_figures_that_depend_on_them(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch(breed="fast", sex="male")
    await farm.send(*farm.weighing(at(2, 1), 1.5), farm.intake(at(2, 1), 10.0))
    await farm.settle()
    farm.standard((0, 1.0), (4, 2.0))
    await farm.settle()
    assert farm.figures()[on(2), "adg"] == pytest.approx(250.0)
    farm.standard((0, 0.5), (4, 2.0), sex="male")
    await farm.settle()
    assert farm.figures()[on(2), "adg"] == pytest.approx(500.0)
    farm.owner("update batches set placed_count = 2000")
    await farm.settle()
    assert farm.figures()[on(2), "head_count"] == 2000
    farm.owner("update farms set timezone = 'America/New_York'")
    await farm.settle()
    assert {day for day, _ in farm.figures()} == {on(1)}


async def test_breed_in_other_letters_has_its_standard(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch(species="Broiler", breed="FAST")
    await farm.send(*farm.weighing(at(2, 1), 1.5))
    await farm.settle()
    farm.standard((0, 1.0), (4, 2.0))
    await farm.settle()
    assert farm.figures()[on(2), "adg"] == pytest.approx(250.0)
    # One in the same letters is nearer.
    farm.standard((0, 0.5), (4, 2.0), breed="FAST")
    farm.owner("update breed_standards set species = 'Broiler' where breed = 'FAST'")
    await farm.settle()
    assert farm.figures()[on(2), "adg"] == pytest.approx(500.0)


async def test_units_of_telemetry_are_converted_or_not_counted(analytics: Analytics) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    farm.hour(at(1, 1), "temperature", 104.0, unit="F")
    farm.hour(at(1, 1), "humidity", 50.0, unit="%")
    farm.hour(at(1, 1), "water.flow", 2.0, unit="l/min", device_id="m1")
    farm.hour(at(1, 1), "water.flow", 3.0, unit="gal/min", device_id="m2")
    await farm.hear(farm.aggregated(at(1, 1), "humidity", 50.0, unit="%"))
    await farm.send(farm.intake(at(1), 60.0))
    await farm.settle()
    found = farm.figures()
    assert (on(1), "thi_hours") not in found
    assert found[on(1), "water_to_feed"] == 2.0
    farm.owner(
        "insert into metrics (tenant_id, metric_type, label, unit, conversions) "
        "values ('t-001', 'temperature', 'T', '°C', %s)",
        '{"F": [0.5555555555555556, -17.77777777777778]}',
    )
    await farm.settle()
    assert farm.figures()[on(1), "thi_hours"] == 1.0
    await farm.send(farm.record(at(1), "water", 30.0))
    await farm.settle()
    assert farm.figures()[on(1), "water_to_feed"] == 0.5


async def test_hour_of_a_device_with_an_implausible_reading_counts_as_covered_alone(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    for device_id, warmest in (("good", 41.0), ("broken", 85.0)):
        farm.hour(at(1, 1), "temperature", 40.0, unit="°C", device_id=device_id, highest=warmest)
    farm.hour(at(1, 2), "temperature", 40.0, unit="°C", device_id="broken", highest=85.0)
    for hour in (1, 2):
        farm.hour(at(1, hour), "humidity", 50.0, unit="%")
    await farm.hear(farm.aggregated(at(1, 2), "humidity", 50.0, unit="%"))
    await farm.settle()
    assert farm.figures()[on(1), "thi_hours"] == 2.0
    farm.owner(
        "insert into metrics (tenant_id, metric_type, label, unit, max_plausible) "
        "values ('t-001', 'temperature', 'T', '°C', 60)"
    )
    await farm.settle()
    found = farm.figures()
    assert found[on(1), "thi_hours"] == 1.0
    assert found[on(1), "data_coverage"] == pytest.approx(100 * 2 / 24)
    farm.owner("update metrics set max_plausible = 90")
    await farm.settle()
    assert farm.figures()[on(1), "thi_hours"] == 2.0
    farm.owner("update metrics set label = 'Warmth'")
    assert farm.owner("select count(*) from analytics_dirty_days") == [(0,)]


async def test_companies_with_the_same_ids_do_not_meet(analytics: Analytics) -> None:
    farm = analytics
    other = replace(farm, tenant_id="t-002")
    for one in (farm, other):
        one.farm()
        one.batch()
    await farm.send(farm.intake(at(1), 5.0))
    await other.send(other.intake(at(1), 7.0), other.intake(at(2), 8.0))
    await farm.settle()
    assert farm.figures()[on(1), "intake_kg"] == 5.0
    assert other.figures()[on(1), "intake_kg"] == 7.0
    assert {day for day, _ in farm.figures()} == {on(1)}


async def test_event_heard_before_it_is_stored_waits_and_marks_its_day_then(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    events = [farm.intake(at(1), 5.0), farm.record(at(2), "cull", 5), *farm.weighing(at(3), 1.0)]
    bucket = farm.aggregated(at(4), "x", 1.0, unit="1", count=7)
    await farm.hear(*events, bucket)
    await farm.settle()
    assert farm.figures() == {}
    await farm.store(*events)
    farm.hour(at(4), "x", 1.0, unit="1", count=6)
    await farm.settle()
    assert {day for day, _ in farm.figures()} == {on(1), on(2), on(3)}
    farm.hour(at(4), "x", 1.0, unit="1", count=7)
    await farm.settle()
    assert (on(4), "data_coverage") in farm.figures()
    assert farm.owner("select count(*) from analytics_pending") == [(0,)]


async def test_changed_figures_are_told_to_the_open_pages_of_their_company(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    ((company_id,),) = farm.owner(
        "select company_id::text from companies where tenant_id = %s", farm.tenant_id
    )
    with psycopg.connect(farm.site.database.admin_url, autocommit=True) as pages:
        pages.execute("listen figures_changed")
        await farm.send(farm.record(at(1), "mortality", 3))
        assert await farm.settle() > 0
        told = {notice.payload for notice in pages.notifies(timeout=30, stop_after=1)}
        assert told == {company_id}
        await farm.hear(farm.intake(at(2), 1.0))  # not stored: nothing changes
        assert await farm.settle() == 0
        assert not list(pages.notifies(timeout=0))
