"""When rules open and resolve; the stream and the whole series agree."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.farm.alerts import evaluation, rules
from farmiq.farm.alerts.defaults import with_defaults
from farmiq.farm.alerts.evaluation import START, Episode, Opened, Resolved, Sample, State, step
from farmiq.messages.alerts import AlertRule, Condition

BEGIN = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOT = AlertRule(
    rule_id="hot",
    signal="telemetry.temperature",
    condition="above",
    threshold=30,
    clear=29,
    for_s=600,
    clear_for_s=300,
)


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def series(*pairs: tuple[float, float | None]) -> list[Sample]:
    return [Sample(at(minutes), value) for minutes, value in pairs]


def each_minute(*values: float) -> list[Sample]:
    return series(*enumerate(values))


def stream(
    rule: AlertRule,
    samples: Sequence[Sample],
    *,
    baseline: Callable[[Sample], float | None] = lambda _: None,
) -> list[Episode]:
    """The episodes that `step` makes, one sample after the other."""
    state = START
    made: list[Episode] = []
    opened = first = None
    for sample in samples:
        before = state
        state, changes = step(rule, state, sample, baseline=baseline(sample))
        for change in changes:
            if isinstance(change, Opened):
                opened = change
                first = before.last_value if rule.condition == "absent" else state.first_value
            else:
                made.append(_episode(opened, change, first, before.worst_value, change.value))
                opened = None
    if opened is not None:
        made.append(_episode(opened, None, first, state.worst_value, state.last_value))
    return made


def _episode(opened: Opened | None, resolved: Resolved | None, *values: float | None) -> Episode:
    assert opened is not None
    return Episode(opened.since, opened.at, None if resolved is None else resolved.at, *values)


def test_above_opens_with_the_sample_that_completes_the_duration() -> None:
    made = stream(HOT, each_minute(28, *[31] * 10, 33))
    assert made == [Episode(at(1), at(11), None, 31, 33, 33)]


def test_above_does_not_open_at_the_threshold_itself() -> None:
    assert stream(HOT, each_minute(*[30] * 30)) == []


def test_above_does_not_open_when_one_sample_is_below() -> None:
    assert stream(HOT, each_minute(*[31] * 9, 30, *[31] * 9)) == []


def test_above_without_duration_opens_with_the_first_sample() -> None:
    rule = AlertRule(rule_id="r", signal="telemetry.x", condition="above", threshold=0)
    assert stream(rule, each_minute(1)) == [Episode(at(0), at(0), None, 1, 1, 1)]


def test_open_rule_stays_open_between_clear_and_threshold() -> None:
    made = stream(HOT, each_minute(*[31] * 11, *[29.5] * 60))
    assert [episode.resolved_at for episode in made] == [None]


def test_open_rule_resolves_after_clear_for_s_on_the_clear_side() -> None:
    made = stream(HOT, each_minute(*[31] * 11, *[28] * 6))
    assert [(episode.opened_at, episode.resolved_at) for episode in made] == [(at(10), at(16))]


def test_flapping_series_makes_one_episode() -> None:
    made = stream(HOT, each_minute(*[31] * 11, *[28, 28, 31] * 40, *[28] * 6))
    assert [(episode.opened_at, episode.resolved_at) for episode in made] == [(at(10), at(136))]


def test_below_counts_downwards() -> None:
    cold = AlertRule(
        rule_id="cold", signal="telemetry.x", condition="below", threshold=10, clear=12,
        clear_for_s=0,
    )  # fmt: skip
    made = stream(cold, each_minute(10, 9, 7, 11, 12))
    assert made == [Episode(at(1), at(1), at(4), 9, 7, 12)]


def test_gap_longer_than_the_limit_ends_a_run() -> None:
    """Hot before and after twenty minutes of silence: nothing is known about the time between."""
    assert stream(HOT, series((0, 31), (20, 31), (25, 31))) == []


def test_series_that_is_slow_by_nature_still_opens() -> None:
    """A sensor that sends every half hour would otherwise never be hot for ten minutes."""
    made = stream(HOT, series((0, 31), (30, 31), (60, 31)))
    assert [(episode.since, episode.opened_at) for episode in made] == [(at(30), at(60))]


def test_repeated_sample_changes_nothing() -> None:
    state, _ = step(HOT, START, Sample(at(0), 31))
    assert step(HOT, state, Sample(at(0), 31)) == (state, ())


def test_tick_opens_no_threshold() -> None:
    state, _ = step(HOT, START, Sample(at(0), 31))
    assert step(HOT, state, Sample(at(60))) == (state, ())


RISE = AlertRule(
    rule_id="rise",
    signal="telemetry.temperature",
    condition="rises",
    threshold=4,
    window_s=1800,
    clear_for_s=0,
)


def test_rise_is_measured_from_the_lowest_of_the_window() -> None:
    made = stream(RISE, series((0, 22), (10, 20), (20, 24), (25, 24.5), (60, 24.5)))
    assert made == [Episode(at(25), at(25), at(60), 24.5, 24.5, 24.5)]


def test_slow_rise_opens_nothing() -> None:
    assert stream(RISE, [Sample(at(10 * n), 20 + n) for n in range(20)]) == []


def test_fall_is_measured_from_the_highest_of_the_window() -> None:
    rule = AlertRule(
        rule_id="fall", signal="telemetry.silo.weight", condition="falls", threshold=500,
        window_s=600, clear_for_s=0,
    )  # fmt: skip
    made = stream(rule, series((0, 4000), (5, 3600), (6, 3400), (20, 3400)))
    assert [(episode.opened_at, episode.resolved_at) for episode in made] == [(at(6), at(20))]


def test_window_is_remembered_in_bounded_space() -> None:
    state = START
    for second in range(4000):
        state, _ = step(RISE, state, Sample(BEGIN + timedelta(seconds=second), second % 7))
    assert len(state.recent) <= evaluation.SLOTS


LOSSES = with_defaults([])["default.edge.losses"]
DAY = 24 * 60


def test_total_that_rose_during_a_silence_longer_than_the_window_opens_for_a_window() -> None:
    """An edge that was out of sight for three days comes back and has lost something."""
    begin = 3 * DAY
    after = [(begin + 60 * hour, 5.0) for hour in range(30)]
    (made,) = stream(LOSSES, series((0, 2), *after))
    assert (made.opened_at, made.first_value) == (at(begin), 5)
    assert made.resolved_at is not None
    assert DAY <= (made.resolved_at - made.opened_at).total_seconds() / 60 <= DAY + 60


def test_total_that_is_the_same_after_a_silence_opens_nothing_again() -> None:
    made = stream(LOSSES, series((0, 2), (1, 5), (3 * DAY, 5), (6 * DAY, 5)))
    assert [episode.opened_at for episode in made] == [at(1)]


def test_temperature_after_a_silence_is_not_compared_with_the_one_before() -> None:
    """Warmer in the morning than in the evening is no rise within half an hour."""
    assert stream(RISE, series((0, 20), (300, 26), (301, 26))) == []


@pytest.mark.parametrize(
    ("condition", "values", "opens"),
    [
        ("differs", (109, 91), 0),
        ("differs", (111,), 1),
        ("differs", (89,), 1),
        ("above", (89, 110), 0),
        ("above", (111,), 1),
        ("below", (111, 90), 0),
        ("below", (89,), 1),
    ],
)
def test_baseline_is_compared_in_per_cent(
    condition: Condition, values: tuple[float, ...], opens: int
) -> None:
    rule = AlertRule(
        rule_id="r", signal="kpi.weight_mean", condition=condition, threshold=10,
        baseline="standard",
    )  # fmt: skip
    assert len(stream(rule, each_minute(*values), baseline=lambda _: 100)) == opens


@pytest.mark.parametrize("baseline", [None, 0.0])
def test_value_without_a_baseline_is_not_judged(baseline: float | None) -> None:
    rule = AlertRule(
        rule_id="r", signal="telemetry.water.flow", condition="below", threshold=50,
        baseline="same_hour",
    )  # fmt: skip
    assert step(rule, START, Sample(at(0), 0.0), baseline=baseline) == (START, ())


SILENT = AlertRule(rule_id="silent", signal="telemetry.x", condition="absent", for_s=600)


def test_absence_opens_by_a_tick_and_resolves_with_the_next_value() -> None:
    made = stream(SILENT, series((0, 5), (10, None), (11, None), (30, None), (31, 6)))
    assert made == [Episode(at(0), at(10), at(31), 5, None, 6)]


def test_absence_that_no_tick_saw_is_in_the_history() -> None:
    made = stream(SILENT, series((0, 5), (31, 6)))
    assert made == [Episode(at(0), at(10), at(31), 5, None, 6)]


def test_absence_of_a_series_that_never_was_opens_nothing() -> None:
    assert stream(SILENT, series((0, None), (100, None))) == []


def test_value_that_waited_elsewhere_resolves_an_absence_not_before_it_opened() -> None:
    state, _ = step(SILENT, START, Sample(at(0), 5))
    state, _ = step(SILENT, state, Sample(at(60)))
    state, changes = step(SILENT, state, Sample(at(1), 5))
    assert changes == [Resolved(at(10), 5)]
    assert state == State(last_at=at(1), last_value=5)


def test_absence_of_a_slow_series_does_not_come_back_with_every_value() -> None:
    """Its first two gaps say how slow it is."""
    made = stream(SILENT, series(*[(40 * n, 5) for n in range(20)]))
    assert [episode.opened_at for episode in made] == [at(10), at(50)]


def test_absence_of_a_slow_series_opens_after_twice_its_usual_gap() -> None:
    samples = series((0, 5), (40, 5), (80, 5), (120, 5), (199, None), (201, None))
    assert stream(SILENT, samples)[-1] == Episode(at(120), at(200), None, 5, None, 5)


def test_absence_after_a_single_outage_opens_as_soon_as_before() -> None:
    made = stream(SILENT, series((0, 5), (1, 5), (300, 5), (301, 5), (320, None)))
    assert [episode.opened_at for episode in made] == [at(11), at(311)]


def test_series_of_every_twenty_minutes_opens_with_the_value_that_completes_the_duration() -> None:
    rule = msgspec.structs.replace(HOT, for_s=1200)
    made = stream(rule, series((0, 28), (20, 31), (40, 32), (60, 32)))
    assert made == [Episode(at(20), at(40), None, 31, 32, 32)]


# Fields that a rule of this condition does not look at.
UNIMPORTANT = {"window_s", "threshold", "baseline", "condition"}
any_rule = st.builds(
    AlertRule,
    rule_id=st.just("r"),
    signal=st.sampled_from(["telemetry.x", "edge.losses"]),
    condition=st.sampled_from(["above", "below", "rises", "falls", "differs", "absent"]),
    threshold=st.sampled_from([0.0, 1.0, 2.0]),
    clear=st.none() | st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    for_s=st.sampled_from([0, 60, 600, 3600]),
    clear_for_s=st.sampled_from([0, 60, 600]),
    window_s=st.sampled_from([60, 600, 1000]),
    baseline=st.none() | st.just("same_hour"),
).filter(lambda rule: {field for field, _ in rules.problems(rule)} <= UNIMPORTANT)
steps_s = st.sampled_from([0, 1, 30, 60, 61, 300, 900, 901, 1800, 4000])
any_value = st.none() | st.sampled_from([-3.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0])
# Runs of the same kind: what a rule looks at rarely stands alone.
any_series = st.lists(st.tuples(steps_s, any_value, st.integers(1, 4)), max_size=20)


@given(rule=any_rule, drawn=any_series)
def test_stream_and_whole_series_give_the_same_episodes(
    rule: AlertRule, drawn: list[tuple[int, float | None, int]]
) -> None:
    samples = _samples(drawn)

    def baseline(sample: Sample) -> float | None:
        return (None, 1.0, 2.0)[sample.at.minute % 3]

    assert stream(rule, samples, baseline=baseline) == evaluation.episodes(
        rule, samples, baseline=baseline
    )


@given(rule=any_rule, drawn=any_series)
def test_idle_state_needs_only_the_last_sample(
    rule: AlertRule, drawn: list[tuple[int, float | None, int]]
) -> None:
    """What a store may leave out: an idle state is made again from its last sample."""
    state = START
    for sample in _samples(drawn):
        state, _ = step(rule, state, sample, baseline=1.0)
        if state.is_idle:
            assert state == State(last_at=state.last_at, last_value=state.last_value)


@given(rule=any_rule, drawn=any_series)
def test_quiet_value_leaves_an_idle_state_idle(
    rule: AlertRule, drawn: list[tuple[int, float | None, int]]
) -> None:
    """What an evaluation may leave out: nothing begins and nothing ends with such a value."""
    before = START
    for sample in _samples(drawn):
        after, changes = step(rule, before, sample, baseline=1.0)
        if before.is_idle and sample.value is not None and evaluation.is_quiet(rule, sample.value):
            assert changes == ()
            assert after.is_idle
        before = after


def _samples(drawn: list[tuple[int, float | None, int]]) -> list[Sample]:
    samples = []
    now = BEGIN
    for seconds, value, count in drawn:
        for _ in range(count):
            now += timedelta(seconds=seconds)
            samples.append(Sample(now, value))
    return samples
