"""Who writes what."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.ingress import source


class Sent(NamedTuple):
    topic: str
    number: int
    payload: bytes = b""


topics = st.one_of(
    st.sampled_from(
        [f"iot/{kind}/t/f/b/d-{n}/x" for kind in ("telemetry", "event") for n in range(6)]
    ),
    st.text(max_size=30),
)


@given(st.lists(topics), st.integers(1, 4))
def test_everything_is_shared_out_once_and_in_order(sent: list[str], writers: int) -> None:
    messages = [Sent(topic, number) for number, topic in enumerate(sent)]
    parts = source.by_writer(messages, writers)

    assert sorted(one for part in parts.values() for one in part) == sorted(messages)
    assert all(part == sorted(part, key=lambda one: one.number) for part in parts.values())
    assert all(0 <= writer < writers and part for writer, part in parts.items())


def test_one_device_has_one_writer_whatever_it_sends() -> None:
    for number in range(50):
        found = {
            source.writer_of(f"iot/{kind}/t-1/f-1/b-1/d-{number}{rest}", 2)
            for kind, rest in (("telemetry", "/co2"), ("event", "/feed.dispensed"), ("status", ""))
        }
        assert len(found) == 1


def test_devices_are_spread_over_the_writers() -> None:
    count = [source.writer_of(f"iot/status/t/f/b/device-{n}", 2) for n in range(1000)].count(0)

    assert 400 < count < 600
