"""A device as a person writes it: every mistake is told, and no two devices share a login."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.devices import device as devices
from farmiq.edge.devices.device import Device

GOOD = {"tenant_id": "t", "farm_id": "f", "barn_id": "b", "device_id": "d.1:x"}
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,12}", fullmatch=True)


def wrong(**changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(devices.InvalidDeviceError) as raised:
        devices.parse_device({**GOOD, **changes})
    return raised.value.reasons


def test_the_four_names_are_enough() -> None:
    assert devices.parse_device(GOOD) == Device(
        tenant_id="t", farm_id="f", barn_id="b", device_id="d.1:x"
    )


def test_everything_can_be_said_as_text() -> None:
    said = {
        **GOOD, "kind": "station", "station_id": "s-1", "firmware": "2.1", "place": "by the door",
        "zone": "north", "wants_receipts": "yes", "derive_intake": "0", "heartbeat_s": "5",
    }  # fmt: skip
    device = devices.parse_device(said)
    assert (device.station, device.wants_receipts) == (("t", "f", "b", "s-1"), True)
    assert (device.derive_intake, device.heartbeat_s) == (False, 5)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tenant_id": ""}, "tenant_id"),
        ({"device_id": "a/b"}, "device_id"),
        ({"device_id": "#"}, "device_id"),
        ({"device_id": "d\n"}, "device_id"),
        ({"barn_id": 7}, "barn_id"),
        ({"kind": "toaster"}, "kind"),
        ({"kind": "station"}, "station_id"),
        ({"derive_intake": True}, "derive_intake"),
        ({"wants_receipts": "maybe"}, "wants_receipts"),
        ({"heartbeat_s": 0}, "heartbeat_s"),
        ({"heartbeat_s": 1.5}, "heartbeat_s"),
        ({"heartbeat_s": True}, "heartbeat_s"),
        ({"heartbeat_s": "1e3"}, "heartbeat_s"),
        ({"place": "x" * 257}, "place"),
        ({"zone": "a\x00b"}, "zone"),
        ({"password": "mine"}, "password"),
    ],
)
def test_what_is_wrong_is_told_by_its_field(changes: dict[str, Any], field: str) -> None:
    assert [name for name, _ in wrong(**changes)] == [field]


def test_all_mistakes_are_told_at_once() -> None:
    told = wrong(tenant_id="", farm_id="a b", kind="?", heartbeat_s="soon")
    assert [name for name, _ in told] == ["tenant_id", "farm_id", "kind", "heartbeat_s"]


@given(st.lists(st.tuples(IDS, IDS), unique=True, min_size=2, max_size=6))
def test_no_two_devices_share_a_login(keys: list[tuple[str, str]]) -> None:
    users = [
        Device(tenant_id=tenant, farm_id="f", barn_id="b", device_id=device).broker_user
        for tenant, device in keys
    ]
    assert len(set(users)) == len(users)
    assert not any(":" in user for user in users)


def test_a_list_is_searched_for_what_stands_twice() -> None:
    one, same = devices.parse_device(GOOD), devices.parse_device({**GOOD, "barn_id": "b2"})
    here = devices.parse_device({**GOOD, "device_id": "x", "station_id": "s"})
    there = devices.parse_device({**GOOD, "device_id": "y", "station_id": "s"})
    found = devices.find_duplicates([(2, one), (3, here), (4, same), (5, there)])
    assert [(line, field) for line, field, _ in found] == [(4, "device_id"), (5, "station_id")]


@pytest.mark.parametrize("args", [{"a": float("nan")}, {"a": "\x00"}, {"a": "x" * 70_000}])
def test_arguments_that_could_not_be_kept_are_refused(args: dict[str, Any]) -> None:
    assert devices.args_problems(args)
    assert not devices.args_problems({"seconds": 5, "since": "2025-01-01T00:00:00Z"})
