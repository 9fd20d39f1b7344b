"""Which local rules open, for which series, and while they are fresh."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from farmiq.edge.alert import rules
from farmiq.edge.alert.rules import Outcome, Reading, Series, TenantRules
from farmiq.messages.alerts import AlertRule

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
ZONE = ZoneInfo("UTC")
HOT = AlertRule(
    rule_id="hot",
    signal="telemetry.temperature",
    condition="above",
    severity="critical",
    threshold=30,
    for_s=60,
    clear_for_s=60,
)
SILENT = AlertRule(
    rule_id="silent", signal="telemetry.temperature", condition="absent", for_s=600
)  # fmt: skip


def reading(minutes_ago: float, value: float, *, barn: str = "b-1", unit: str = "C") -> Reading:
    at = NOW - timedelta(minutes=minutes_ago)
    return Reading("f-1", barn, at, at, value, unit)


def series(**changes: Any) -> Series:
    return Series("t-1", "d-1", "temperature", "f-1", "b-1", **changes)


def tenant(*own: AlertRule, **context: Any) -> TenantRules:
    content: dict[str, Any] = {
        "tenant_id": "t-1",
        "farms": [{"farm_id": "f-1", "name": "North", "timezone": "Asia/Bangkok"}],
        "barns": [{"farm_id": "f-1", "barn_id": "b-1", "name": "Barn One"}],
        "batches": [],
        "breed_standards": [],
        "alert_rules": [msgspec.to_builtins(rule) for rule in own],
    }
    content |= context
    return rules.of_context({name: value for name, value in content.items() if value is not None})


def look(
    before: Series,
    *readings: Reading,
    by: TenantRules,
    after: timedelta = timedelta(),
    quiet: timedelta = timedelta(hours=1),
) -> Outcome:
    now = NOW + after
    return rules.evaluate(
        before, readings, by, now=now, zone=ZONE, heard_at=now - quiet, listening_since=now - quiet
    )


def test_rule_opens_once_and_says_where() -> None:
    by = tenant(HOT)
    first = look(series(), reading(2, 31), reading(0, 33), by=by)
    (alert,) = first.opened
    assert alert.message == (
        "temperature of d-1 in Barn One on North above 30 °C for 1 minute: 33 °C "
        "at 2026-07-01 12:00Z"
    )
    again = look(first.series, reading(-1, 34), by=by, after=timedelta(minutes=1))
    assert (again.opened, again.resolved) == ([], [])


def test_rule_resolves_after_its_clear_duration() -> None:
    by = tenant(HOT)
    hot = look(series(), reading(2, 31), reading(0, 33), by=by).series
    after = look(hot, reading(-1, 29), reading(-2, 29), by=by, after=timedelta(minutes=2))
    assert [rule_id for rule_id, _ in after.resolved] == ["hot"]
    assert after.series.states == {}


def test_old_readings_open_nothing_until_a_fresh_one_confirms() -> None:
    by = tenant(HOT)
    old = look(series(), reading(60, 31), reading(58, 33), by=by)
    assert old.opened == []
    assert [alert.rule for alert in look(old.series, reading(1, 31), by=by).opened] == [HOT]


def test_old_heat_whose_newest_reading_is_clear_opens_nothing() -> None:
    by = tenant(HOT)
    cool = look(series(), reading(60, 33), reading(58, 33), reading(0, 20), by=by)
    assert cool.opened == []
    warm = look(cool.series, reading(-0.5, 33), by=by, after=timedelta(minutes=1))
    assert [alert.rule for alert in warm.opened] == [HOT]


@pytest.mark.parametrize(
    ("hours", "opens"), [(0.15, 0), (0.2, 1), (0.5, 1), (23.9, 1), (24.1, 0), (72, 0), (2000, 0)]
)
def test_absence_opens_until_its_last_reading_is_a_day_old(hours: float, opens: int) -> None:
    """Ventilation that is dead after a power cut is told, a device that was taken away is not."""
    outcome = look(series(), reading(60 * hours, 20), by=tenant(SILENT))
    assert len(outcome.opened) == opens


def test_absence_that_began_before_the_start_opens_when_devices_had_time_to_speak() -> None:
    by = tenant(SILENT)
    start = look(series(), reading(40, 20), by=by, quiet=timedelta())
    assert start.opened == []
    again = look(start.series, by=by, after=timedelta(minutes=3), quiet=timedelta(minutes=3))
    assert [alert.rule for alert in again.opened] == [SILENT]


def test_absence_of_a_device_that_sends_what_it_stored_opens_nothing() -> None:
    """72 hours of readings arrive one after the other: the device is anything but silent."""
    by = tenant(SILENT)
    state, opened = series(), list[Any]()
    for minutes_ago in (*range(72 * 60, 60, -60), *range(60, 0, -1)):
        late = Reading("f-1", "b-1", NOW - timedelta(minutes=minutes_ago), NOW, 20, "C")
        outcome = look(state, late, by=by)
        state, opened = outcome.series, [*opened, *outcome.opened]
    assert opened == []
    assert look(state, by=by, quiet=timedelta(minutes=1)).opened == []


def test_device_that_falls_silent_while_it_sends_what_it_stored_is_missed_soon() -> None:
    by = tenant(SILENT)
    late = Reading("f-1", "b-1", NOW - timedelta(minutes=20), NOW, 20, "C")
    stuck = look(series(), late, by=by)
    assert stuck.opened == []
    again = look(stuck.series, by=by, after=timedelta(minutes=2), quiet=timedelta(minutes=2))
    assert [alert.rule for alert in again.opened] == [SILENT]


def test_changed_rule_resolves_and_begins_anew() -> None:
    hot = look(series(), reading(2, 31), reading(0, 33), by=tenant(HOT)).series
    hotter = msgspec.structs.replace(HOT, threshold=40)
    after = look(hot, by=tenant(hotter))
    assert [rule_id for rule_id, _ in after.resolved] == ["hot"]
    assert after.series.states == {}


def test_rule_with_another_name_or_severity_leaves_its_alert_open() -> None:
    """Somebody tidies up in the cloud while the siren sounds."""
    hot = look(series(), reading(2, 31), reading(0, 33), by=tenant(HOT)).series
    renamed = msgspec.structs.replace(HOT, name="Heat", severity="warning")
    after = look(hot, by=tenant(renamed))
    assert (after.opened, after.resolved) == ([], [])
    assert after.series.states["hot"].is_raised


def test_removed_rule_resolves() -> None:
    hot = look(series(), reading(2, 31), reading(0, 33), by=tenant(HOT)).series
    assert [rule_id for rule_id, _ in look(hot, by=tenant()).resolved] == ["hot"]


def test_moved_device_resolves_in_its_old_barn_and_begins_in_the_new_one() -> None:
    by = tenant(HOT)
    hot = look(series(), reading(2, 31), reading(0, 33), by=by).series
    moved = look(hot, reading(-1, 31, barn="b-2"), by=by, after=timedelta(minutes=1))
    assert [(rule_id, where.barn_id) for rule_id, where in moved.resolved] == [("hot", "b-1")]
    assert moved.series.barn_id == "b-2"
    assert moved.opened == []


def test_fahrenheit_is_not_taken_for_celsius() -> None:
    readings = [reading(2, 75, unit="°F"), reading(0, 75, unit="°F")]
    assert look(series(), *readings, by=tenant(HOT)).opened == []


def test_age_counts_by_the_local_day_of_the_farm() -> None:
    batch = {
        "batch_id": "x", "farm_id": "f-1", "barn_id": "b-1", "species": "broiler",
        "placed_count": 1, "placed_on": "2026-06-30", "age_at_placing_days": 0,
    }  # fmt: skip
    by = tenant(batches=[batch])
    evening = datetime(2026, 7, 1, 18, tzinfo=UTC)
    assert by.animals(series(), NOW, ZONE) == ("broiler", 1)
    assert by.animals(series(), evening, ZONE) == ("broiler", 2)  # past midnight in Bangkok
    assert by.animals(series(), NOW - timedelta(days=2), ZONE) is None
    del batch["age_at_placing_days"]
    assert tenant(batches=[batch]).animals(series(), NOW, ZONE) == ("broiler", None)


def test_rules_before_the_first_copy_are_the_defaults() -> None:
    for content in (None, {"odd": 1}):
        assert "ventilation" in rules.of_context(content).by_metric


def test_copy_of_a_cloud_that_knows_no_rules_leaves_the_defaults() -> None:
    by = tenant(alert_rules=None)
    assert "ventilation" in by.by_metric


def test_rule_that_cannot_be_read_leaves_the_others() -> None:
    unknown = {**msgspec.to_builtins(HOT), "rule_id": "newer", "moon_phase": "full"}
    useless = {**msgspec.to_builtins(HOT), "rule_id": "useless", "threshold": None}
    by = tenant(alert_rules=[unknown, msgspec.to_builtins(HOT), useless])
    assert [rule.rule_id for rule, _ in by.by_metric["temperature"]] == ["hot"]
    assert by.unreadable == 2
