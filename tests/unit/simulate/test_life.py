"""Flocks live by their standard and by the seed alone; events and truth say the same."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import cache
from statistics import fmean
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from farmiq.lab.simulate import farm
from farmiq.lab.simulate.life import files, flocks, history, post
from farmiq.lab.simulate.life.flocks import Life
from farmiq.lab.simulate.life.history import Day
from farmiq.messages import bus, feed, telemetry, weighvision
from farmiq.messages.bus import BusEvent

# In the afternoon of the farm; 35 days before lie in another time of the year than its end.
UNTIL = datetime(2026, 4, 20, 15, 10, 3, tzinfo=UTC)
ZONE = "Europe/Berlin"
LIFE = flocks.broiler_farm("hillside", until=UNTIL, timezone=ZONE)
STANDARD = files.standard()
ORDINARY, BEHIND, HOT, YOUNG = (flock.batch_id for flock in LIFE.flocks)


# Lived when a test needs it, not by every process that collects tests.
@cache
def all_days() -> list[Day]:
    return [lived.day for lived in history.lived(LIFE, STANDARD)]


@cache
def all_events() -> list[BusEvent]:
    return post.events_of(LIFE, STANDARD)


def days_of(batch_id: str) -> list[Day]:
    return [day for day in all_days() if day.batch_id == batch_id]


def payloads(events: Iterable[BusEvent], kind: str) -> list[tuple[BusEvent, dict[str, Any]]]:
    return [
        (event, msgspec.json.decode(event.payload)) for event in events if event.event_type == kind
    ]


def of(kind: str) -> dict[tuple[str, date], list[tuple[BusEvent, dict[str, Any]]]]:
    """Events of a kind by (batch, local date)."""
    batches = {flock.barn_id: flock.batch_id for flock in LIFE.flocks}
    found = defaultdict(list)
    for event, payload in payloads(all_events(), kind):
        on = event.occurred_at.astimezone(ZoneInfo(ZONE)).date()
        found[batches[str(event.barn_id)], on].append((event, payload))
    return found


def test_history_of_five_weeks_has_at_most_50000_events() -> None:
    assert 10_000 < len(all_events()) <= 50_000
    assert len({event.event_id for event in all_events()}) == len(all_events())
    assert max(event.occurred_at for event in all_events()) <= UNTIL
    assert min(day.on for day in all_days()) == LIFE.today - timedelta(days=flocks.DAYS)


def test_every_event_is_one_that_the_cloud_accepts() -> None:
    for event in all_events():
        assert bus.read(bus.write(event)) == event


def test_event_ids_begin_with_their_time() -> None:
    for event in all_events():
        millis = event.event_id.int >> 80
        assert millis == int(event.occurred_at.timestamp() * 1000)


def test_same_seed_gives_the_same_life_and_another_seed_another() -> None:
    assert post.events_of(LIFE, STANDARD) == all_events()
    other = msgspec.structs.replace(LIFE, seed=2)
    assert [lived.day for lived in history.lived(other, STANDARD)] != all_days()


def test_life_of_a_file_is_the_life_that_was_written(tmp_path: Any) -> None:
    files.write(tmp_path / "life.json", LIFE)
    assert files.read(tmp_path / "life.json") == LIFE
    (tmp_path / "life.json").write_text("{}")
    with pytest.raises(ValueError, match="is not the life of a simulated farm"):
        files.read(tmp_path / "life.json")


def test_history_that_ends_earlier_is_the_beginning_of_the_longer_one() -> None:
    earlier: Life = msgspec.structs.replace(LIFE, until=UNTIL - timedelta(days=3, hours=5))
    begun = {event.event_id: event for event in post.events_of(earlier, STANDARD)}
    assert begun == {event.event_id: event for event in all_events() if event.event_id in begun}
    later = [event for event in all_events() if event.event_id not in begun]
    # A weighing that the end would have cut is left out.
    assert min(event.occurred_at for event in later) > earlier.until - timedelta(seconds=5)


def test_events_of_a_day_come_to_its_truth() -> None:
    intakes, records = of(feed.INTAKE_RECORDED), of("barn.record.created")
    replaced = {
        payload["replaces"]
        for rows in (*intakes.values(), *records.values())
        for _, payload in rows
        if "replaces" in payload
    }
    assert len(replaced) == 2
    dead_before: Counter[str] = Counter()
    for day in all_days():
        key = day.batch_id, day.on
        eaten = [p for event, p in intakes[key] if str(event.event_id) not in replaced]
        assert sum(p["quantity_kg"] for p in eaten) == pytest.approx(day.feed_kg)
        counted = [p for _, p in records[key] if p["record_id"] not in replaced]
        totals: Counter[str] = Counter()
        for record in counted:
            totals[record["record_type"]] += record["value"]
        assert (totals["mortality"], totals["cull"]) == (day.dead, day.culled)
        dead_before[day.batch_id] += day.dead + day.culled
        if totals["head_count"]:
            assert totals["head_count"] == day.head
    for flock in LIFE.flocks:
        fewer = flock.recount[1] if flock.recount else 0
        last = days_of(flock.batch_id)[-1]
        assert last.head == flock.placed_count - dead_before[flock.batch_id] - fewer


def test_water_of_a_day_is_its_hourly_flow_or_what_was_read_by_hand() -> None:
    readings, records = of(telemetry.INGESTED), of("barn.record.created")
    for day in all_days():
        key = day.batch_id, day.on
        flows = [p["metric_value"] for _, p in readings[key] if p["metric_type"] == "water.flow"]
        by_hand = [p["value"] for _, p in records[key] if p["record_type"] == "water"]
        assert day.water_l == pytest.approx(sum(by_hand) if by_hand else sum(flows) * 60)
        assert bool(by_hand) == (day.batch_id == YOUNG and day.on < LIFE.today)


def test_every_hour_of_a_day_has_a_reading_except_in_an_outage() -> None:
    changed = next(day for day in all_days() if day.on.isoformat() == "2026-03-29")
    hours = Counter(day.hours for day in all_days() if day.on < LIFE.today)
    assert changed.hours == 23
    assert set(hours) == {24, 23, 24 - 5}
    assert hours[24 - 5] < 0.1 * len(all_days())


def test_weighings_are_as_far_from_the_flocks_mean_as_their_number_allows() -> None:
    sessions = of(weighvision.SESSION_FINALIZED)
    spread = {flock.batch_id: flock.spread for flock in LIFE.flocks}
    for day in all_days():
        assert day.mean_kg is not None
        weights = [p["final_weight_kg"] for _, p in sessions[day.batch_id, day.on]]
        alone = [weight for weight in weights if weight < 1.6 * day.mean_kg]
        # Two light birds may weigh as much as a heavy one.
        assert day.weighed <= len(alone) <= day.weighed + 2
        error = 4 * spread[day.batch_id] / day.weighed**0.5 + 0.02
        assert fmean(alone) == pytest.approx(day.mean_kg, rel=error)


def test_flocks_differ_from_their_standard_as_their_barns_do() -> None:
    expected = STANDARD.weight_kg(flocks.DAYS)
    ordinary, behind, hot = (days_of(batch)[-2] for batch in (ORDINARY, BEHIND, HOT))
    at_that_age = STANDARD.weight_kg(ordinary.age_days)
    assert expected > at_that_age
    assert ordinary.mean_kg == pytest.approx(at_that_age, rel=0.02)
    assert behind.mean_kg is not None
    assert behind.mean_kg < 0.88 * at_that_age
    assert hot.mean_kg is not None
    assert behind.mean_kg < hot.mean_kg < 0.97 * at_that_age

    def warmth(batch_id: str) -> float:
        rows = of(telemetry.INGESTED)[batch_id, LIFE.today - timedelta(days=1)]
        return fmean(p["metric_value"] for _, p in rows if p["metric_type"] == "temperature")

    assert warmth(HOT) > warmth(ORDINARY) + 5

    def died(batch_id: str) -> float:
        return sum(day.dead for day in days_of(batch_id))

    assert died(BEHIND) > 1.2 * died(ORDINARY)


def test_treated_flock_is_safe_to_sell_when_its_withdrawal_days_are_over() -> None:
    assert days_of(BEHIND)[-1].safe_from == LIFE.today + timedelta(days=4)
    vaccinated_on = LIFE.flocks[0].placed_on + timedelta(days=14)
    assert days_of(ORDINARY)[-1].safe_from == vaccinated_on


def test_live_farm_goes_on_where_the_history_ends() -> None:
    live = {flock.barn_id: flocks.now(LIFE, flock, STANDARD, UNTIL) for flock in LIFE.flocks}
    devices = farm.farm("hillside", barns=4, flocks=live, interval_s=1.0)
    last_day = UNTIL - timedelta(days=1)
    for device in devices:
        for metric in device.metrics:
            now = fmean(
                farm.value(metric, at=UNTIL + timedelta(seconds=s), chance=0.5, day_s=600)
                for s in range(0, 600, 10)
            )
            before = [
                p["metric_value"]
                for event, p in payloads(all_events(), telemetry.INGESTED)
                if event.device_id == device.place.device_id
                and p["metric_type"] == metric.name
                and event.occurred_at > last_day
            ]
            if isinstance(metric, farm.Supply):
                assert abs(now - before[-1]) < metric.eaten
            else:
                # An outage in the middle of a day takes hours in which more was drunk.
                assert now == pytest.approx(fmean(before), rel=0.25)
        for habit in device.habits:
            flock = live[device.place.barn_id]
            a_day = habit.amount * farm.DAY_S / habit.every
            due = flock.feed_kg_per_day if habit.lot else flock.deaths_per_day
            assert a_day == pytest.approx(due)
    for placed in LIFE.flocks:
        last = days_of(placed.batch_id)[-1]
        assert last.mean_kg == pytest.approx(live[placed.barn_id].mean_kg, rel=0.04)
