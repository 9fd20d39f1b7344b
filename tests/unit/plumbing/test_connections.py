"""The table of open connections: who gets a place, and who makes room for it."""

from collections.abc import Callable
from functools import partial

import pytest

from farmiq.plumbing import connections
from farmiq.plumbing.connections import Connection, Connections, Limits


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def table() -> Connections:
    return Connections(Limits(total=4, per_address=2, proxies=()))


@pytest.fixture
def admit(table: Connections, closed: list[str]) -> Callable[..., Connection | None]:
    def admitted(host: str, now: float = 0.0) -> Connection | None:
        return table.admit(host, now=now, close=lambda: closed.append(f"{host} of {now:g}"))

    return admitted


def test_full_address_closes_its_own_longest_idle_connection(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    admit("10.0.0.9", 0)
    for second in (1, 2, 3):
        assert admit("10.0.0.1", second) is not None

    assert closed == ["10.0.0.1 of 1"]


def test_full_table_closes_a_stranger_before_an_authenticated_connection(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    known = admit("10.0.0.1", 0)
    known.authenticated = True
    for number in range(2, 6):
        assert admit(f"10.0.0.{number}", number) is not None

    assert closed == ["10.0.0.2 of 2"]


def test_full_table_of_authenticated_idle_connections_closes_the_longest_idle(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    for number in range(4):
        admit(f"10.0.0.{number}", number).authenticated = True
    assert admit("10.0.1.1", 9) is not None

    assert closed == ["10.0.0.0 of 0"]


def test_connections_at_work_are_not_closed_and_the_new_one_is_refused(
    table: Connections, admit: Callable[..., Connection], closed: list[str]
) -> None:
    at_work = [admit(f"10.0.0.{number}", 0) for number in range(4)]
    for connection in at_work:
        connection.waiting_since = None

    assert admit("10.0.1.1", 9) is None
    assert closed == []
    table.release(at_work[0])
    table.release(at_work[0])
    assert admit("10.0.1.1", 9) is not None


def test_stranger_who_sends_a_body_slowly_makes_room(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    for number in range(4):
        connection = admit(f"10.0.0.{number}", number)
        connection.in_request = True
    assert admit("10.0.1.1", 9) is not None

    assert closed == ["10.0.0.0 of 0"]


def test_proxy_is_bounded_in_all_but_not_per_address(closed: list[str]) -> None:
    table = Connections(Limits(total=4, per_address=1, proxies=connections.LOOPBACK))
    for second in range(5):
        table.admit("127.0.0.1", now=second, close=partial(closed.append, str(second)))

    assert closed == ["0"]


@pytest.mark.parametrize(
    ("host", "address", "network"),
    [
        ("192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7/32", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("fe80::1%eth0", "fe80::/64", "fe80::/48"),
        ("x" * 500, "x" * 64, "x" * 64),
    ],
)
def test_address_and_network_of_a_host(host: str, address: str, network: str) -> None:
    assert (connections.address_of(host), connections.network_of(host)) == (address, network)


def test_connection_waiting_for_a_body_is_closed_after_idle_ones(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    for number in range(4):
        connection = admit(f"10.0.0.{number}", number)
        connection.authenticated, connection.who = True, f"device-{number}"
        connection.in_request = number < 2
    for number in range(4):
        admit(f"10.0.1.{number}", 9).waiting_since = None

    assert closed == ["10.0.0.2 of 2", "10.0.0.3 of 3", "10.0.0.0 of 0", "10.0.0.1 of 1"]
    assert admit("10.0.2.1", 10) is None


def test_holder_of_too_many_connections_loses_one_first(
    admit: Callable[..., Connection], closed: list[str]
) -> None:
    for number, who in enumerate(["honest", "greedy", "greedy", "greedy"]):
        connection = admit(f"10.0.0.{number}", number)
        connection.authenticated, connection.who, connection.in_request = True, who, True
    for number in range(2):
        connection = admit(f"10.0.1.{number}", 9)
        connection.authenticated, connection.who = True, f"device-{number}"

    assert closed == ["10.0.0.1 of 1", "10.0.0.2 of 2"]
