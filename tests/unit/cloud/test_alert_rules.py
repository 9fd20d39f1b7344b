"""Which rules look at a value, however many there are, and what becomes of stored episodes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from farmiq.cloud.alerts.episodes import corrections
from farmiq.cloud.alerts.episodes.corrections import Past
from farmiq.cloud.alerts.evaluating import advance
from farmiq.cloud.alerts.evaluating.advance import SeriesState, Span
from farmiq.cloud.alerts.evaluating.ruleset import Farm, RuleSet, Series, Value
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import ids

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rule(rule_id: str = "hot", **fields: Any) -> AlertRule:
    return msgspec.convert(
        {
            "rule_id": rule_id, "signal": "telemetry.heat", "condition": "above", "threshold": 30,
            "clear_for_s": 0, **fields,
        },
        AlertRule,
    )  # fmt: skip


def value(number: float | None, minute: int = 0, **changes: Any) -> Value:
    given = {"farm_id": "f", "barn_id": "1", "device_id": "d", **changes}
    series = Series("t", "telemetry.heat", "/".join(given[name] for name in given))
    return Value(series=series, at=AT + minute * MINUTE, value=number, **given)


def test_of_ten_thousand_rules_only_those_of_the_place_are_looked_at() -> None:
    many = [rule(f"r{number}", device_id=f"d{number}") for number in range(9_990)]
    ruleset = RuleSet([
        *many, rule("all"), rule("farm", farm_id="f"), rule("barn", farm_id="f", barn_id="1"),
        rule("elsewhere", barn_id="2"), rule("off", enabled=False),
    ])  # fmt: skip
    found = {one.rule_id for one in ruleset.looking_at(value(1.0, device_id="d7"))}
    assert found == {"r7", "all", "farm", "barn"}
    # The second time it is one lookup.
    assert ruleset.in_scope("telemetry.heat", "f", "1", "d7") is ruleset.in_scope(
        "telemetry.heat", "f", "1", "d7"
    )
    assert ruleset.in_scope("telemetry.cold", "f", "1", "d7") == ()


def test_idle_rules_leave_nothing_to_store() -> None:
    ruleset = RuleSet([rule("hot", for_s=300)])
    state = SeriesState(None, None, AT)
    state, changes = advance.advance(state, [value(20.0), value(25.0, 1)], ruleset, heard_at=AT)
    assert (state.entries, state.last_value, changes.spans) == ({}, 25.0, [])


def test_several_spans_of_one_batch_are_told_apart() -> None:
    ruleset = RuleSet([rule()])
    numbers = [31.0, 20.0, 32.0, 33.0, 20.0, 40.0]
    values = [value(number, minute) for minute, number in enumerate(numbers)]
    state, changes = advance.advance(SeriesState(None, None, AT), values, ruleset, heard_at=AT)
    assert [(span.worst_value, span.resolved_at is None) for span in changes.spans] == [
        (31.0, False), (33.0, False), (40.0, True),
    ]  # fmt: skip
    _, changes = advance.advance(state, [value(41.0, 6), value(20.0, 7)], ruleset, heard_at=AT)
    ((cause, at, worst, count),) = [
        (seen.cause, seen.at, seen.worst_value, seen.count) for seen in changes.ended
    ]
    assert (cause, at, worst, count) == ("rule:hot|f/1/d", AT + 7 * MINUTE, 41.0, 1)
    assert changes.seen == {}


def test_figure_of_the_day_ends_at_the_farms_midnight() -> None:
    ruleset = RuleSet([], farms=[Farm("f", "Farm", "Asia/Bangkok")])
    assert ruleset.end_of_day("f", AT.date()) == datetime(2026, 5, 1, 17, tzinfo=UTC)
    assert ruleset.end_of_day("unknown", AT.date()) == datetime(2026, 5, 2, tzinfo=UTC)


def test_watch_begins_anew_with_the_start_and_after_a_break() -> None:
    watch = advance.watched(None, AT - 60 * MINUTE, AT)
    assert not watch.is_long_enough
    for minute in range(1, 4):
        watch = advance.watched(watch, AT - 60 * MINUTE, AT + minute * MINUTE)
    assert watch.is_long_enough
    # Looks that did not happen, and heartbeats that come again after all were missing.
    assert not advance.watched(watch, AT - 60 * MINUTE, AT + 10 * MINUTE).is_long_enough
    assert not advance.watched(watch, AT + 4 * MINUTE, AT + 4 * MINUTE).is_long_enough


def past(opened: int, resolved: int | None, *, is_paged: bool = False, raised: int = 0) -> Past:
    ended = None if resolved is None else AT + resolved * MINUTE
    return Past(ids.new(), "c", AT + opened * MINUTE, ended, AT + raised * MINUTE, is_paged)


def span(opened: int, resolved: int | None) -> Span:
    at = AT + opened * MINUTE
    ended = None if resolved is None else AT + resolved * MINUTE
    return Span(rule(), value(31.0), at, 31.0, 31.0, 31.0, 31.0, at, ended)


def correct(have: list[Past], want: list[Span], **options: Any) -> corrections.Corrections:
    given = {"begin": AT, "fixed_before": None, **options}
    return corrections.corrections(have, want, **given)


def test_stored_episode_with_the_same_begin_gets_the_new_end() -> None:
    one, two = past(1, 5), past(7, None)
    first, second = span(1, 4), span(7, None)
    found = correct([one, two], [first, second])
    assert found.changed == [(one, first), (two, second)]
    assert (found.new, found.withdrawn) == ([], [])


def test_stored_episodes_that_become_one_keep_the_first() -> None:
    one, two = past(1, 5), past(7, None)
    whole = span(1, None)
    found = correct([one, two], [whole])
    assert found.changed == [(one, whole)]
    assert found.withdrawn == [two]


def test_episode_whose_end_was_told_is_not_opened_again() -> None:
    one = past(1, 5, is_paged=True)
    whole = span(1, None)
    found = correct([one], [whole])
    assert (found.changed, found.withdrawn, found.new) == ([], [one], [whole])


def test_episode_of_the_rule_before_its_change_stays() -> None:
    old, new = past(1, 5, raised=5), past(30, 35, raised=35)
    found = correct([old, new], [span(2, 4)], fixed_before=AT + 10 * MINUTE)
    assert (found.changed, found.new) == ([], [])
    assert found.withdrawn == [new]
