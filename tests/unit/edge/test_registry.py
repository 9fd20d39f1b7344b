"""Who a message may be of: the device as registered, at its place and its station, and no other."""

from dataclasses import replace

import pytest

from farmiq.edge import registry
from farmiq.edge.arrival import Arrival
from farmiq.edge.ingress.accept import accept
from farmiq.edge.registry import Entry
from tests.unit.messages import samples
from tests.unit.messages.examples import AT, PLACE
from tests.unit.messages.test_catalogue import encoded

ENTRY = Entry(
    PLACE.tenant_id, PLACE.farm_id, PLACE.barn_id, PLACE.device_id, "station-1", 60,
    wants_receipts=True, derive_intake=False, revoked=False,
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
