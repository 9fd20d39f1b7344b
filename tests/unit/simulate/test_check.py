"""The checker: whatever is lost, stored twice, invented or changed is found, each in its list."""

import random
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from farmiq.lab.simulate import check

SENT = {f"event-{number:03}": f"content {number}" for number in range(200)}


def test_readings_stored_once_in_any_order_are_clean() -> None:
    shuffled = random.Random(1).sample(list(SENT.items()), len(SENT))

    findings = check.compare(SENT, shuffled)

    assert findings.clean
    assert (findings.sent, findings.stored) == (200, 200)


def test_planted_violations_are_all_found() -> None:
    stored = {key: what for key, what in SENT.items() if key not in {"event-003", "event-150"}}
    stored["event-100"] = "content 1OO"
    rows = [*stored.items()]
    rows += [
        ("event-007", "content 7"),
        ("event-199", "something else"),
        ("ghost", ""),
        ("ghost", ""),
    ]

    findings = check.compare(SENT, rows)

    assert findings.lost == ("event-003", "event-150")
    assert findings.twice == ("event-007", "event-199", "ghost")
    assert findings.invented == ("ghost",)
    assert findings.changed == ("event-100", "event-199")
    assert not findings.clean


def test_each_kind_of_violation_alone_is_not_clean() -> None:
    one = {"a": "x"}
    assert not check.compare(one, []).clean
    assert not check.compare(one, [("a", "x"), ("a", "x")]).clean
    assert not check.compare(one, [("a", "x"), ("b", "x")]).clean
    assert not check.compare(one, [("a", "y")]).clean


def test_unconfirmed_event_may_be_missing_but_not_twice_or_changed() -> None:
    sent = {"a": "1", "b": "2", "c": "3"}

    findings = check.compare(sent, [("b", "2"), ("b", "2"), ("c", "4")], unconfirmed=sent)

    assert (findings.lost, findings.twice, findings.changed) == ((), ("b",), ("c",))


def test_nothing_sent_and_nothing_stored_is_clean() -> None:
    assert check.compare({}, []).clean


def test_the_content_of_a_reading_changes_with_every_part_of_it_and_not_with_the_zone() -> None:
    at = datetime(2025, 5, 5, 12, tzinfo=UTC)
    same = {"device_id": "d", "metric_type": "m", "metric_value": 0.1, "unit": "C"}
    text = check.content(**same, occurred_at=at)  # type: ignore[arg-type]
    bangkok = at.astimezone(timezone(timedelta(hours=7)))
    assert check.content(**same, occurred_at=bangkok) == text  # type: ignore[arg-type]
    changes = ({"device_id": "e"}, {"metric_type": "n"}, {"metric_value": 0.1000001}, {"unit": "F"})
    for change in changes:
        assert check.content(**{**same, **change}, occurred_at=at) != text  # type: ignore[arg-type]
    assert check.content(**same, occurred_at=at + timedelta(microseconds=1)) != text  # type: ignore[arg-type]


def test_event_counted_twice_is_found_by_the_running_count() -> None:
    stored = [("d-1", "temperature")] * 3 + [("d-2", "humidity")]

    assert check.miscounted(stored, {("d-1", "temperature"): 3, ("d-2", "humidity"): 1}) == ()
    assert check.miscounted(stored, {("d-1", "temperature"): 4, ("d-9", "ghost"): 2}) == (
        "d-1 temperature: 3 stored, 4 counted",
        "d-2 humidity: 1 stored, 0 counted",
        "d-9 ghost: 0 stored, 2 counted",
    )


names = st.sampled_from("abcdefgh")


@given(sent=st.sets(names), stored=st.lists(names), unconfirmed=st.sets(names))
def test_findings_are_exactly_the_differences(
    sent: set[str], stored: list[str], unconfirmed: set[str]
) -> None:
    rows = [(one, "same") for one in stored]
    findings = check.compare(dict.fromkeys(sent, "same"), rows, unconfirmed=unconfirmed)

    assert set(findings.lost) == {one for one in sent if one not in stored} - unconfirmed
    assert set(findings.twice) == {one for one in stored if stored.count(one) > 1}
    assert set(findings.invented) == {one for one in stored if one not in sent}
    assert findings.changed == ()
    assert findings.stored == len(stored)


def test_intakes_and_records_differ_in_every_part() -> None:
    at = datetime(2025, 6, 1, 12, tzinfo=UTC)
    fed = {"device_id": "d", "source": "SILO_AUTO", "feed_lot_id": "l", "quantity_kg": 25}
    line = check.intake(**fed, occurred_at=at)  # type: ignore[arg-type]
    for change in ({"device_id": "e"}, {"source": "MANUAL"}, {"feed_lot_id": None}):
        assert check.intake(**{**fed, **change}, occurred_at=at) != line  # type: ignore[arg-type]
    assert check.intake(**{**fed, "quantity_kg": 25.0}, occurred_at=at) == line  # type: ignore[arg-type]
    written = {"device_id": "d", "record_id": "r", "record_type": "cull", "value": 1.0}
    other = check.record(**written, recorded_at=at)  # type: ignore[arg-type]
    assert check.record(**{**written, "value": 2.0}, recorded_at=at) != other  # type: ignore[arg-type]
