"""A list of devices as CSV: taken whole, or every problem with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.devices.device import parse_csv
from farmiq.roster import RosterError

HEADER = "tenant_id,farm_id,barn_id,device_id,station_id,kind,wants_receipts,heartbeat_s\n"


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(RosterError) as raised:
        parse_csv(text)
    return [(each.line, each.field) for each in raised.value.problems]


def test_a_list_gives_devices_with_their_lines() -> None:
    text = "\ufeff" + HEADER + "t,f,b,d1,,,,\n\nt,f,b,d2, s-1 ,station,yes,5\n"
    (first, one), (second, two) = parse_csv(text)
    assert (first, one.device_id, one.kind, one.heartbeat_s) == (2, "d1", "sensor", 60)
    assert (second, two.station_id, two.wants_receipts, two.heartbeat_s) == (4, "s-1", True, 5)


def test_columns_may_stand_in_any_order() -> None:
    ((_, device),) = parse_csv("device_id,barn_id,farm_id,tenant_id\nd,b,f,t\n")
    assert (device.tenant_id, device.device_id) == ("t", "d")


def test_every_problem_of_every_line_is_told() -> None:
    text = HEADER + "t,f,b,d1,,,,\nt,f,,d/2,,toaster,perhaps,0\nt,f,b,d1,,,,\nt,f,b\n"
    assert problems(text) == [
        (3, "barn_id"), (3, "device_id"), (3, "heartbeat_s"), (3, "kind"), (3, "wants_receipts"),
        (4, "device_id"), (5, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [(1, "barn_id"), (1, "device_id"), (1, "farm_id"), (1, "tenant_id")]),
        (HEADER, [(1, "")]),
        ("tenant_id,farm_id,barn_id,device_id,colour\n", [(1, "colour")]),
        ("tenant_id,farm_id,barn_id,device_id,device_id\n", [(1, "device_id")]),
        (HEADER + 't,f,b,"d1\n', [(2, "")]),
    ],
)
def test_a_file_that_is_no_list_is_told_why(text: str, found: list[tuple[int, str]]) -> None:
    assert problems(text) == found


@given(st.text(max_size=300))
def test_any_text_is_a_list_or_a_list_of_problems(text: str) -> None:
    found: list[object] = []
    try:
        found += parse_csv(HEADER + text)
    except RosterError as unusable:
        found += unusable.problems
    assert found
