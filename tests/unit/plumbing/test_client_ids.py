"""Which client ids are a login's own."""

import pytest

from farmiq.cloud.camera.gateway import logins
from farmiq.plumbing.broker.callout import (
    MAX_ENDINGS,
    MAX_SESSIONS,
    Sessions,
    not_anothers,
    own_client_id,
)

MAC = "AABBCCDDEE01"


@pytest.mark.parametrize(
    ("client_id", "own", "harmless"),
    [
        ("t/d", True, True),
        ("t/d/agent-1", True, True),
        ("swZVJLsOYBRsCji1OqBhzB", True, True),
        ("t/d1", False, False),
        ("t2/d", False, False),
        ("", False, True),
        ("esp32-7", False, True),
        ("edge-ingress-gateway", False, False),
    ],
)
def test_device_connects_under_ids_of_its_own(client_id: str, *, own: bool, harmless: bool) -> None:
    assert own_client_id(client_id, "t/d") is own
    assert not_anothers(client_id, "t/d", ours=["edge-ingress-gateway"]) is harmless


@pytest.mark.parametrize(
    ("client_id", "own", "harmless"),
    [
        (f"camera-{MAC}", True, True),
        ("aa:bb:cc:dd:ee:01", True, True),
        ("ESP32CAM-AA-BB-CC-DD-EE-01-2", True, True),
        ("camera-AABBCCDDEE02", False, False),
        ("camera-7", False, True),
        ("cloud-camera-gateway", False, False),
    ],
)
def test_camera_connects_under_ids_that_hold_its_address(
    client_id: str, *, own: bool, harmless: bool
) -> None:
    assert logins.own_client_id(client_id, MAC) is own
    assert not own or logins.has_mac(client_id)
    assert logins.not_anothers(client_id, MAC, ours=["cloud-camera-gateway"]) is harmless


def full(sessions: Sessions) -> None:
    for number in range(MAX_SESSIONS):
        assert sessions.admit("t/d", f"t/d/{number}", now=float(number)) is None


def test_ninth_session_of_a_login_ends_the_one_heard_longest_ago_that_is_not_connected() -> None:
    sessions = Sessions()
    full(sessions)
    assert sessions.admit("t/d", "t/d/0", now=9.0) is None
    assert sessions.admit("t/e", "t/e/0", now=9.0) is None
    assert sessions.admit("t/d", "t/d/new", now=99.0, connected={"t/d/1"}) is None
    assert sessions.endings == {"t/d/2": "t/d"}
    assert sessions.admit("t/d", "t/d/2", now=99.0) is not None


def test_ninth_session_of_a_login_is_refused_while_all_are_connected_or_just_came() -> None:
    sessions = Sessions()
    full(sessions)
    used = {f"t/d/{number}" for number in range(MAX_SESSIONS)}
    assert "8 sessions" in (sessions.admit("t/d", "t/d/new", now=99.0, connected=used) or "")
    assert sessions.admit("t/d", "t/d/new", now=0.0) is not None
    assert sessions.endings == {}


def test_clients_without_an_id_end_no_session_of_one_that_has_an_id() -> None:
    sessions = Sessions()
    full(sessions)
    ended: set[str] = set()
    for number in range(3 * MAX_SESSIONS):
        assert sessions.admit("t/d", f"{number:022}", now=100.0 * number) is None
        ended |= sessions.endings.keys()
        sessions.endings.clear()
    assert ended == {f"{number:022}" for number in range(2 * MAX_SESSIONS)}


def test_login_that_makes_sessions_faster_than_they_end_is_refused_and_none_is_forgotten() -> None:
    sessions = Sessions()
    full(sessions)
    refused = [sessions.admit("t/d", f"t/d/more-{number}", now=100.0) for number in range(1500)]
    assert refused.count(None) == len(sessions.endings) == MAX_ENDINGS
    sessions.endings.popitem()
    assert sessions.admit("t/d", "t/d/late", now=100.0) is None
