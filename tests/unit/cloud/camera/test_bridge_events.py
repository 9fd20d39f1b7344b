"""A wake of a camera as events of its farm: the same each time, and such as the bus carries."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from farmiq.cloud.camera.bridge import events
from farmiq.cloud.camera.bridge.events import Wake
from farmiq.messages import bus
from farmiq.plumbing import ids

AT = datetime(2026, 3, 10, 8, tzinfo=UTC)


def wake(**changes: Any) -> Wake:
    image_id = ids.new()
    made = Wake(
        observation_id=ids.new(), tenant_id="t-001", program_id=ids.new(), site_id=ids.new(),
        device_id=ids.new(), payload_id=ids.new(), image_id=image_id, occurred_at=AT,
        numbers={"temperature": 21.5, "wifi_rssi": -70.0},
        image_url=f"camera/c/d/{image_id}.jpg", size_bytes=1234, sha256="a" * 64,
    )  # fmt: skip
    return replace(made, **changes)


def test_its_numbers_are_readings_and_its_image_is_told() -> None:
    one = wake()
    found = [bus.read(bus.write(each)) for each in events.of(one)]
    assert [each.event_type for each in found] == [
        "telemetry.ingested", "telemetry.ingested", "media.stored",
    ]  # fmt: skip
    assert {(e.tenant_id, e.farm_id, e.barn_id, e.device_id) for e in found} == {
        ("t-001", str(one.program_id), str(one.site_id), str(one.device_id))
    }
    assert [bus.write(each) for each in found] == [bus.write(each) for each in events.of(one)]
    assert len({each.event_id for each in found}) == 3


def test_what_cannot_be_a_reading_is_none_and_the_known_ones_go_first() -> None:
    odd = {"image_size": 5.0, "a b": 1.0, "x" * 200: 1.0, "": 1.0}
    many = {f"probe_{n:02}": float(n) for n in range(40)}
    found = events.readings(wake(numbers={**odd, **many, "wifi_rssi": -70.0}))
    assert len(found) == events.MAX_READINGS
    assert (found[0].metric_type, found[0].unit) == ("wifi_rssi", "dBm")
    assert not {each.metric_type for each in found} & odd.keys()


def test_an_image_that_is_not_there_is_not_told() -> None:
    assert [e.event_type for e in events.of(wake(sha256=None, numbers={}))] == []
