"""The simulated farm: curves within their bounds, messages that ingress accepts."""

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.lab.simulate import farm
from farmiq.lab.simulate.farm import CLIMATE, SILO, WATER, Metric
from farmiq.messages import bus, envelope, mqtt, telemetry, topics
from farmiq.messages.topics import TelemetryTopic

METRICS = (*CLIMATE, *WATER)
DAY = datetime(2025, 6, 1, tzinfo=UTC)
moments = st.datetimes(timezones=st.just(UTC))
chances = st.floats(0, 1, exclude_max=True)


@given(metric=st.sampled_from(METRICS), at=moments, chance=chances)
def test_a_reading_stays_within_swing_and_noise(
    metric: Metric, at: datetime, chance: float
) -> None:
    read = farm.value(metric, at=at, chance=chance)
    rounding = 0.5 * 10**-metric.decimals

    assert read >= 0
    assert abs(read - metric.middle) <= metric.swing + metric.noise + rounding


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_curve_is_highest_at_its_peak_and_lowest_half_a_day_away(metric: Metric) -> None:
    peak = DAY + timedelta(hours=metric.peak_hour)
    quiet = [farm.value(metric, at=DAY + timedelta(minutes=m), chance=0.5) for m in range(1440)]

    assert farm.value(metric, at=peak, chance=0.5) == max(quiet) == metric.middle + metric.swing
    low = farm.value(metric, at=peak + timedelta(hours=12), chance=0.5)
    assert low == min(quiet) == metric.middle - metric.swing


def test_a_value_is_never_below_zero() -> None:
    deep = Metric("x", "kg", 1.0, 50.0, 0.0, 1.0)

    assert farm.value(deep, at=DAY + timedelta(hours=12), chance=0.0) == 0.0


def test_each_barn_has_three_devices_and_only_the_last_is_flaky() -> None:
    devices = farm.farm("t-001", barns=3)

    assert len({device.place for device in devices if device.metrics}) == 9
    assert len({device.place for device in devices}) == len(devices)
    assert [device.place.device_id for device in devices if device.habits] == [
        "barn-1-feeder",
        "barn-1-tablet",
        "barn-3-feeder",
    ]
    assert {device.place.barn_id for device in devices if device.flaky} == {"barn-3"}
    assert not any(device.flaky for device in farm.farm("t-001", barns=1))


def test_a_silo_is_emptied_by_day_and_filled_by_night() -> None:
    (silo,) = SILO
    days = [DAY + timedelta(minutes=10 * n) for n in range(144 * silo.refill_days)]
    levels = [farm.value(silo, at=at, chance=0.5) for at in days]
    rises = [later - level for level, later in itertools.pairwise(levels) if later > level]

    assert max(levels) == silo.full
    assert min(levels) == silo.full - silo.eaten * silo.refill_days > 0
    assert sum(rises) in (0, silo.eaten * silo.refill_days)
    assert len(rises) <= 1
    nights = [level for at, level in zip(days, levels, strict=True) if at.hour < farm.MORNING]
    assert len(set(nights)) <= silo.refill_days + 1


@given(at=moments, chance=chances)
def test_noise_of_a_silo_is_below_what_counts_as_an_intake(at: datetime, chance: float) -> None:
    """The default noise_kg fits the simulated scale."""
    (silo,) = SILO
    assert abs(farm.value(silo, at=at, chance=chance) - farm.value(silo, at=at, chance=0.5)) < 5


@given(at=moments, chance=chances, seq=st.integers(1, 2**31))
def test_simulated_event_is_recorded_by_the_edge_as_sent(
    at: datetime, chance: float, seq: int
) -> None:
    for device in farm.farm("t-001", barns=1):
        for habit in device.habits:
            event_id, topic, raw, content = farm.happening(
                device, habit, at=at, event_id=UUID(int=seq), seq=seq, chance=chance
            )
            message = mqtt.read(topic, raw)

            assert (message.kind.name, message.envelope.event_id) == (habit.event_type, event_id)
            assert device.place.device_id in content


@given(at=moments, chance=chances, seq=st.integers(1, 2**31))
def test_a_message_is_one_that_the_edge_understands(at: datetime, chance: float, seq: int) -> None:
    for device in farm.farm("t-001", barns=1):
        for metric in device.metrics:
            _, topic, raw, _ = farm.message(
                device, metric, at=at, event_id=UUID(int=seq), seq=seq, chance=chance
            )
            where, worn = topics.parse(topic), envelope.read(raw)
            assert isinstance(where, TelemetryTopic)
            reading = telemetry.read(worn.payload, metric_type=where.metric_type)

            assert where.place == device.place
            assert (worn.event_id, worn.ts, worn.seq) == (UUID(int=seq), at, seq)
            assert reading.unit == metric.unit
            event = bus.from_reading(worn, where.place, reading)
            assert bus.content_hash(bus.read(bus.write(event))) == bus.content_hash(event)
