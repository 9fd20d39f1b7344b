"""Values in any order, late and repeated, make the episodes that their own order makes."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud import sink
from farmiq.cloud.alerts.evaluating import book, signals
from farmiq.farm.alerts import evaluation
from farmiq.farm.alerts.evaluation import Sample
from farmiq.messages import bus as envelopes
from farmiq.messages.alerts import AlertRule
from tests.integration.cloud.alerts.conftest import HOUR, MINUTE, Alerts, now
from tests.support.properties import drawn

HOT = "rule:hot|f/1/d"
# Seconds between values: often, seldom, and with gaps that end a run.
GAPS = st.sampled_from([0, 60, 60, 60, 120, 600, 1200, 4000])
VALUES = st.sampled_from([20.0, 29.0, 31.0, 31.0, 40.0])
RULES: list[dict[str, Any]] = [
    {"for_s": 0, "clear_for_s": 0},
    {"for_s": 180, "clear": 25, "clear_for_s": 300},
    {"condition": "below", "threshold": 30, "for_s": 60, "clear_for_s": 120},
    {"condition": "rises", "threshold": 5, "window_s": 600, "for_s": 60, "clear_for_s": 60},
    {"condition": "absent", "threshold": None, "for_s": 900},
]


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[tuple[int, float]], list[list[int]], list[bool]]:
    """Values by second, the batches of positions in which they arrive, and when rules look."""
    gaps = draw(st.lists(GAPS, min_size=2, max_size=14))
    seconds = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    values = sorted({(second, draw(VALUES)) for second in seconds})
    repeats = draw(st.lists(st.integers(1, 3), min_size=len(values), max_size=len(values)))
    order = draw(
        st.permutations([index for index, times in enumerate(repeats) for _ in range(times)])
    )
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order) - 1)), max_size=5)))
    bounds = [0, *cuts, len(order)]
    batches = [order[begin:end] for begin, end in pairwise(bounds)]
    looks = st.lists(st.booleans(), min_size=len(batches), max_size=len(batches))
    return values, batches, draw(looks)


async def test_values_shuffled_and_repeated_make_the_episodes_of_their_own_order(
    alerts: Alerts,
) -> None:
    begin = now() - 20 * HOUR
    rules = [
        await alerts.rule(f"r{number}", **{**fields, "signal": "telemetry.heat"})
        for number, fields in enumerate(RULES)
    ]

    @drawn(15)
    @given(journeys())
    def every_journey(journey: Any) -> None:
        loop.append(journey)

    loop: list[Any] = []
    every_journey()
    for number, (values, batches, looks) in enumerate(loop):
        device_id = f"d{number}"
        events = [
            alerts.reading(begin + timedelta(seconds=second), value, device_id=device_id)
            for second, value in values
        ]
        for batch, look in zip(batches, looks, strict=True):
            await alerts.store(*(events[index] for index in batch))
            if look:
                await alerts.readings.run()
        await alerts.readings.run()
        await alerts.settle()
        samples = [Sample(begin + timedelta(seconds=second), value) for second, value in values]
        for rule in rules:
            assert stored_episodes(alerts, rule, device_id) == [
                (
                    found.opened_at, found.resolved_at, found.first_value, found.worst_value,
                    found.last_value,
                )
                for found in evaluation.episodes(rule, samples)
            ], (rule, journey_text(values, batches))  # fmt: skip


def stored_episodes(alerts: Alerts, rule: AlertRule, device_id: str) -> list[tuple[Any, ...]]:
    return alerts.owner(
        """
        select opened_at, resolved_at, first_value, worst_value, last_value from alert_episodes
        where rule_id = %s and device_id = %s and state <> 'withdrawn' order by opened_at
        """,
        rule.rule_id, device_id,
    )  # fmt: skip


def journey_text(values: Any, batches: Any) -> str:
    return f"values {values}, batches {batches}"


async def test_a_thousand_repeats_make_one_episode_and_one_step(alerts: Alerts) -> None:
    await alerts.rule()
    reading = alerts.reading(now(), 31.0)
    for _ in range(2):
        await alerts.send(*([reading] * 500))
        await alerts.looks.page()
    assert [row[:2] for row in alerts.episodes()] == [(HOT, "active")]
    assert alerts.steps() == [(HOT, "opened")]


async def test_backlog_of_three_days_makes_history_and_calls_nobody(alerts: Alerts) -> None:
    await alerts.rule(for_s=600, clear_for_s=600)
    begin = now() - 72 * HOUR
    values = [40.0 if minute // 60 % 12 == 0 else 20.0 for minute in range(0, 71 * 60, 10)]
    events = [
        alerts.reading(begin + timedelta(minutes=10 * index), value)
        for index, value in enumerate(values)
    ]
    await alerts.send(*events)
    await alerts.looks.page()
    assert [row[1] for row in alerts.episodes()] == ["resolved"] * 6
    assert alerts.steps() == []


async def test_condition_still_true_at_the_newest_value_calls_once(alerts: Alerts) -> None:
    await alerts.rule(for_s=600)
    begin = now() - 72 * HOUR
    await alerts.send(*(alerts.reading(begin + index * 10 * MINUTE, 40.0) for index in range(400)))
    await alerts.looks.page()
    assert alerts.steps() == []
    newest = now() - timedelta(seconds=30)
    await alerts.send(alerts.reading(newest - 10 * MINUTE, 40.0), alerts.reading(newest, 41.0))
    for _ in range(3):
        await alerts.looks.page()
    ((cause, state, opened_at, _),) = alerts.episodes()
    assert (cause, state, opened_at) == (HOT, "active", begin + 10 * MINUTE)
    assert alerts.steps() == [(HOT, "opened")]
    await alerts.send(alerts.reading(now(), 20.0))
    await alerts.looks.page()
    assert alerts.steps() == [(HOT, "opened"), (HOT, "resolved")]


async def test_old_heat_whose_newest_value_is_clear_calls_nobody_until_it_is_hot_again(
    alerts: Alerts,
) -> None:
    await alerts.rule(for_s=600, clear_for_s=300)
    begin = now() - 3 * HOUR
    await alerts.send(*(alerts.reading(begin + n * 5 * MINUTE, 40.0) for n in range(4)))
    await alerts.send(alerts.reading(now() - MINUTE, 20.0))
    await alerts.looks.page()
    assert alerts.steps() == []
    await alerts.send(alerts.reading(now(), 40.0))
    await alerts.looks.page()
    assert alerts.steps() == [(HOT, "opened")]


async def test_backlog_that_comes_behind_live_values_calls_nobody(alerts: Alerts) -> None:
    """As an edge drains an outage: what is new first, then what it stored, the oldest first."""
    await alerts.rule(for_s=600, clear_for_s=300)
    await alerts.send(*(alerts.reading(now() - n * MINUTE, 20.0) for n in (4, 3, 2, 1, 0)))
    begin = now() - 72 * HOUR
    await alerts.send(*(alerts.reading(begin + n * 5 * MINUTE, 40.0) for n in range(4)))
    await alerts.settle()
    assert [row[1] for row in alerts.episodes()] == ["active"]
    await alerts.send(alerts.reading(begin + HOUR, 20.0), alerts.reading(begin + 2 * HOUR, 20.0))
    await alerts.settle()
    assert [row[1] for row in alerts.episodes()] == ["resolved"]
    assert alerts.steps() == []


async def test_late_value_that_shows_it_never_was_withdraws_and_tells_the_end(
    alerts: Alerts,
) -> None:
    await alerts.rule(for_s=300)
    at = now() - 6 * MINUTE
    bad = [alerts.reading(at, 31.0), alerts.reading(at + 6 * MINUTE, 31.0)]
    await alerts.send(*bad)
    await alerts.looks.page()
    assert alerts.steps() == [(HOT, "opened")]
    await alerts.send(alerts.reading(at + 3 * MINUTE, 20.0))
    await alerts.settle()
    assert alerts.episodes() == []
    assert alerts.owner("select state from alert_episodes") == [("withdrawn",)]
    assert alerts.steps() == [(HOT, "opened"), (HOT, "resolved")]


async def test_late_value_of_the_bus_waits_until_it_is_stored(alerts: Alerts) -> None:
    """Readings that an earlier version had left in the queue are taken from it."""
    await alerts.rule()
    at = now()
    await alerts.send(alerts.reading(at, 20.0))
    late = alerts.reading(at - MINUTE, 40.0)
    await alerts.take(late)
    alerts.owner("update alert_rechecks set due_at = now() - interval '1 second'")
    assert await alerts.rechecks.run() == {"rechecked": 0}
    assert alerts.owner("select attempts from alert_rechecks") == [(1,)]
    await alerts.send(late)
    await alerts.settle()
    assert alerts.episodes() == [(HOT, "resolved", at - MINUTE, at)]


async def test_readings_that_break_the_evaluation_wait_alone(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alerts.rule()
    evaluate = signals.evaluate

    async def breaking(tx: Any, book: Any, values: Any, **options: Any) -> None:
        if any(value.device_id == "bad" for value in values):
            raise ValueError("this one not")
        await evaluate(tx, book, values, **options)

    monkeypatch.setattr(signals, "evaluate", breaking)
    for device_id in ("a", "bad", "c"):
        await alerts.store(alerts.reading(now(), 40.0, device_id=device_id))
    assert await alerts.readings.run() == {"evaluated": 2}
    assert alerts.owner("select devices, attempts, due_at > now() from alert_readings") == [
        (["bad"], 1, True)
    ]
    monkeypatch.undo()
    alerts.owner("update alert_readings set due_at = now()")
    assert await alerts.readings.run() == {"evaluated": 1}
    assert {row[0].rpartition("/")[2] for row in alerts.episodes()} == {"a", "bad", "c"}


async def test_late_readings_of_a_series_wait_in_one_row_until_no_more_come(
    alerts: Alerts,
) -> None:
    await alerts.rule()
    begin = now() - 20 * HOUR
    await alerts.send(alerts.reading(now(), 20.0))
    await alerts.send(*(alerts.reading(begin + n * MINUTE, 40.0) for n in (9, 7, 8)))
    waiting = "select occurred_at, due_at - received_at from alert_rechecks"
    ((first_at, wait),) = alerts.owner(waiting)
    assert (first_at, wait) == (begin + 7 * MINUTE, MINUTE)
    # Others push it further, but not for ever.
    alerts.owner("update alert_rechecks set received_at = received_at - interval '30 seconds'")
    await alerts.send(alerts.reading(begin, 40.0))
    ((first_at, wait),) = alerts.owner(waiting)
    assert first_at == begin
    assert MINUTE * 1.5 <= wait < 2 * MINUTE
    alerts.owner("update alert_rechecks set received_at = received_at - interval '270 seconds'")
    await alerts.send(alerts.reading(begin + 5 * MINUTE, 40.0))
    assert [row[1] for row in alerts.owner(waiting)] == [5 * MINUTE]
    # What is hardly late does not wait for that.
    await alerts.send(alerts.reading(now() - MINUTE, 40.0))
    assert sorted(row[1].total_seconds() for row in alerts.owner(waiting)) == [1, 300]
    await alerts.settle()
    assert [row[1:3] for row in alerts.episodes()] == [("resolved", begin)]


async def test_events_that_no_rule_looks_at_cost_no_statement(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.take(alerts.reading(now(), 20.0))
    nothing = [alerts.reading(now(), 99.0, metric="noise") for _ in range(50)]
    bodies = [envelopes.write(event) for event in nothing]
    # Without a database: whoever asked it something would fail.
    assert await sink.store_events(cast(Any, None), bodies, alerts.sink) == {}


async def test_rules_of_one_company_do_not_see_another_companys_values(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now(), 99.0, tenant_id="t-002"))
    assert alerts.episodes() == []
    await alerts.send(alerts.reading(now(), 99.0))
    assert alerts.owner("select tenant_id, cause from alert_episodes") == [("t-001", HOT)]


async def test_value_of_an_unknown_company_is_tried_again_later(alerts: Alerts) -> None:
    stranger = alerts.reading(now(), 99.0, metric="temperature", tenant_id="t-009")
    rejected = await sink.store_events(alerts.pool, [envelopes.write(stranger)], alerts.sink)
    assert [rejection.final for rejection in rejected.values()] == [False]


async def test_reading_in_fahrenheit_is_compared_in_celsius(alerts: Alerts) -> None:
    await alerts.rule("warm", signal="telemetry.temperature")
    await alerts.send(
        alerts.reading(now() - MINUTE, 80.0, metric="temperature", unit="°F"),
        alerts.reading(now(), 88.0, metric="temperature", unit="°F"),
    )
    ((value,),) = alerts.owner("select round(worst_value::numeric, 1)::float from alert_episodes")
    assert value == 31.1


async def test_changed_rule_ends_what_the_old_one_had_open(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - MINUTE, 31.0))
    await alerts.looks.page()
    await alerts.rule(threshold=50)
    await alerts.send(alerts.reading(now(), 31.0))
    assert [row[1] for row in alerts.episodes()] == ["resolved"]
    assert alerts.steps() == [(HOT, "opened"), (HOT, "resolved")]
    assert alerts.owner("select states from alert_states") == [({},)]


async def test_renamed_rule_goes_on_with_its_episode(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - MINUTE, 31.0))
    await alerts.rule(name="Too hot")
    await alerts.send(alerts.reading(now(), 32.0))
    assert [row[1] for row in alerts.episodes()] == ["active"]


async def test_another_severity_of_a_rule_is_that_of_what_it_has_open(alerts: Alerts) -> None:
    severity = "select severity from alert_episodes"
    await alerts.rule()
    await alerts.rule("other")
    await alerts.send(alerts.reading(now() - MINUTE, 31.0))
    await alerts.rule(severity="info")
    await alerts.looks.page()
    assert sorted(alerts.owner(severity)) == [("info",), ("warning",)]
    await alerts.rule(severity="critical")
    await alerts.rule(severity="critical", name="Too hot")
    assert sorted(alerts.owner(severity)) == [("critical",), ("warning",)]
    told = [(HOT, "opened"), ("rule:other|f/1/d", "opened"), (HOT, "worsened")]
    assert sorted(alerts.steps()) == sorted(told)
    # Who hears of less is not called for that.
    await alerts.rule(severity="warning")
    assert alerts.owner(severity) == [("warning",), ("warning",)]
    assert sorted(alerts.steps()) == sorted(told)


async def test_episode_of_a_rule_that_was_removed_meanwhile_is_ended(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - MINUTE, 31.0))
    # As if another instance had opened it while somebody removed the rule.
    alerts.owner("delete from alert_rules")
    alerts.book.drop()
    await alerts.looks.prune()
    assert [row[1] for row in alerts.episodes()] == ["resolved"]
    assert alerts.owner("select states from alert_states") == [({},)]


async def test_rule_for_animals_applies_while_they_are_in_the_barn(alerts: Alerts) -> None:
    await alerts.rule(species=["Broiler"], min_age_days=10)
    alerts.owner(
        "insert into farms (tenant_id, farm_id, name, timezone) values ('t-001', 'f', 'F', 'UTC')"
    )
    for barn_id in ("1", "2"):
        alerts.owner(
            "insert into barns (tenant_id, farm_id, barn_id, name) values "
            "('t-001', 'f', %s, 'Barn')", barn_id,
        )  # fmt: skip
    alerts.owner(
        "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
        "placed_on, age_at_placing_days) values ('t-001', 'b', 'f', '1', 'broiler', 9, %s, 5)",
        (now() - timedelta(days=6)).date(),
    )
    alerts.book.drop()
    at = now()
    await alerts.send(alerts.reading(at, 40.0), alerts.reading(at, 40.0, barn_id="2"))
    assert [row[0] for row in alerts.episodes()] == [HOT]
    assert alerts.owner("select batch_id from alert_episodes") == [("b",)]
    await alerts.send(alerts.reading(at - timedelta(days=3), 40.0, device_id="e"))
    assert [row[0] for row in alerts.episodes()] == [HOT]


@pytest.mark.parametrize(("age", "rules"), [(0, ["default.cold.chicks"]), (None, [])])
async def test_rules_for_chicks_look_at_no_batch_of_unknown_age(
    alerts: Alerts, age: int | None, rules: list[str]
) -> None:
    alerts.owner(
        """
        with farm as (
          insert into farms (tenant_id, farm_id, name, timezone) values ('t-001', 'f', 'F', 'UTC')
        ), barn as (
          insert into barns (tenant_id, farm_id, barn_id, name) values ('t-001', 'f', '1', 'Barn')
        )
        insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
          placed_on, age_at_placing_days)
        values ('t-001', 'b', 'f', '1', 'broiler', 9, %s, %s)
        """,
        (now() - timedelta(days=2)).date(),
        age,
    )
    begin = now() - 20 * MINUTE
    await alerts.send(
        *(
            alerts.reading(begin + n * MINUTE, 20.0, metric="temperature", unit="°C")
            for n in range(20)
        )
    )
    assert [row[0] for row in alerts.owner("select rule_id from alert_episodes")] == rules


def hours(
    alerts: Alerts,
    *days_ago: int,
    metric: str = "water.flow",
    unit: str = "x",
    mean: float = 10,
    barn_id: str = "1",
) -> datetime:
    """Means of this hour so many days ago; returns this hour."""
    hour = now().replace(minute=0, second=0)
    for days in days_ago:
        begin = hour - timedelta(days=days)
        alerts.owner(
            """
            insert into telemetry_agg (id, tenant_id, farm_id, barn_id, device_id, "window",
              bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
              sum_value, count)
            values (gen_random_uuid(), 't-001', 'f', %s, 'd', '1h', %s, %s, %s, %s, %s, %s, %s,
              600, 60)
            """,
            barn_id, begin, begin + HOUR, metric, unit, mean, mean, mean,
        )  # fmt: skip
    return hour


async def compare_hours(alerts: Alerts, **fields: Any) -> None:
    given = {"condition": "below", "threshold": 50, "signal": "telemetry.water.flow", **fields}
    await alerts.rule(baseline="same_hour", **given)


async def test_same_hour_of_other_days_is_the_baseline(alerts: Alerts) -> None:
    await compare_hours(alerts)
    hour = hours(alerts, 1, 2, 3)
    await alerts.send(alerts.reading(hour, 6.0, metric="water.flow"))
    assert alerts.episodes() == []
    await alerts.send(alerts.reading(hour + MINUTE, 4.0, metric="water.flow"))
    assert [row[0] for row in alerts.episodes()] == ["rule:hot|f/1/d"]


async def test_baseline_of_two_days_or_of_another_barn_is_none(alerts: Alerts) -> None:
    await compare_hours(alerts)
    hours(alerts, 1, 2)
    hour = hours(alerts, 3, 4, 5, barn_id="2")
    await alerts.send(alerts.reading(hour, 4.0, metric="water.flow"))
    assert alerts.episodes() == []


async def test_baseline_does_not_reach_before_the_batch(alerts: Alerts) -> None:
    await compare_hours(alerts)
    hour = hours(alerts, 1, 2, 3, 4)
    alerts.owner(
        """
        with farm as (
          insert into farms (tenant_id, farm_id, name, timezone) values ('t-001', 'f', 'F', 'UTC')
        ), barn as (
          insert into barns (tenant_id, farm_id, barn_id, name) values ('t-001', 'f', '1', 'Barn')
        )
        insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
          placed_on, age_at_placing_days)
        values ('t-001', 'b', 'f', '1', 'broiler', 9, %s, 0)
        """,
        (hour - timedelta(days=2)).date(),
    )
    alerts.book.drop()
    await alerts.send(alerts.reading(hour, 4.0, metric="water.flow"))
    assert alerts.episodes() == []


async def test_baseline_is_in_the_unit_of_the_rule(alerts: Alerts) -> None:
    await compare_hours(alerts, signal="telemetry.temperature", threshold=40)
    hour = hours(alerts, 1, 2, 3, metric="temperature", unit="F", mean=68)
    await alerts.send(alerts.reading(hour, 64.4, metric="temperature", unit="F"))
    assert alerts.episodes("hot") == []
    await alerts.send(alerts.reading(hour + MINUTE, 50.0, metric="temperature", unit="F"))
    assert [row[0] for row in alerts.episodes("hot")] == ["rule:hot|f/1/d"]


async def test_notice_of_changed_rules_does_not_name_the_tenant(alerts: Alerts) -> None:
    with psycopg.connect(alerts.site.database.admin_url, autocommit=True) as connection:
        connection.execute(f"listen {book.CHANGED}".encode())
        await alerts.rule()
        notices = [notice.payload for notice in connection.notifies(timeout=10, stop_after=1)]
    ((company_id,),) = alerts.owner(
        "select company_id::text from companies where tenant_id = 't-001'"
    )
    assert notices == [company_id]


def figure(alerts: Alerts, on: Any, value: float | None, expected: float, at: datetime) -> Any:
    payload = {
        "kpi_date": on, "kpi_type": "weight_mean", "value": value, "unit": "kg",
        "source_event_count": 1, "batch_id": "b", "expected_value": expected,
    }  # fmt: skip
    return alerts.event("kpi.daily.updated", at, payload, device_id=None)


async def test_figure_behind_the_standard_opens_and_its_withdrawal_takes_it_back(
    alerts: Alerts,
) -> None:
    await alerts.rule(
        signal="kpi.weight_mean", condition="below", baseline="standard", threshold=10
    )
    at = now()
    await alerts.take(figure(alerts, at.date(), 0.8, 1.0, at))
    await alerts.looks.page()
    assert [row[:2] for row in alerts.episodes()] == [("rule:hot|batch:b", "active")]
    assert alerts.steps() == [("rule:hot|batch:b", "opened")]
    await alerts.take(figure(alerts, at.date(), None, 1.0, at + timedelta(seconds=1)))
    await alerts.settle()
    assert alerts.episodes() == []
