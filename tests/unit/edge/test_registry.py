"""Who a message may be of: the device as registered, at its place and its station, and no other."""

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from farmiq.edge import registry
from farmiq.edge.arrival import Arrival, accept
from farmiq.edge.registry import Entry
from tests.unit.messages import samples
from tests.unit.messages.examples import AT, PLACE
from tests.unit.messages.test_catalogue import encoded

ENTRY = Entry(
    PLACE.tenant_id, PLACE.farm_id, PLACE.barn_id, PLACE.device_id, "station-1", 60,
    wants_receipts=True, revoked=False,
)  # fmt: skip


def arrival(kind: str = "telemetry.reading") -> Arrival:
    sample = samples.from_device(kind)
    return accept(sample.topic, encoded(sample.envelope), now=AT)


SESSION = "weighvision.session.created"


@pytest.mark.parametrize("kind", ["telemetry.reading", "device.status", "feed.dispensed", SESSION])
def test_a_device_at_its_place_is_let_in(kind: str) -> None:
    assert registry.problem(arrival(kind), ENTRY) is None


@pytest.mark.parametrize(
    ("kind", "entry", "words"),
    [
        ("telemetry.reading", None, "is not known"),
        ("telemetry.reading", replace(ENTRY, revoked=True), "was revoked"),
        ("telemetry.reading", replace(ENTRY, barn_id="b-9"), "is registered at farm"),
        ("device.status", replace(ENTRY, farm_id="f-9"), "is registered at farm"),
        (SESSION, replace(ENTRY, station_id="station-2"), "does not stand at station"),
        (SESSION, replace(ENTRY, station_id=None), "does not stand at station"),
        (SESSION, None, "is not known"),
    ],
)
def test_everybody_else_is_refused_with_the_reason(
    kind: str, entry: Entry | None, words: str
) -> None:
    why = registry.problem(arrival(kind), entry)
    assert why is not None
    assert why.startswith("NOT_REGISTERED: ")
    assert words in why


def test_every_device_is_noted_often_enough_although_batches_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hundred devices, a message every ten seconds each, one message at a time."""
    clock = 0.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    entries = [replace(ENTRY, device_id=f"d-{n}") for n in range(200)]
    copy = registry.Registry()
    monkeypatch.setattr(copy, "_entries", {entry.key: entry for entry in entries})
    noted: dict[str, list[float]] = {entry.device_id: [] for entry in entries}
    message = arrival()
    for step in range(200 * 30):
        clock = step * 0.05
        device_id = f"d-{step % 200}"
        place = replace(message.place, device_id=device_id)
        heard = copy.to_note([msgspec.structs.replace(message, place=place)])
        for _, one in heard:
            noted[one].append(clock)
    for moments in noted.values():
        gaps = [later - earlier for earlier, later in pairwise([0.0, *moments, 300.0])]
        assert max(gaps) <= ENTRY.heartbeat_s / 2
        assert len(moments) <= 300 / (ENTRY.heartbeat_s / 4) + 1
