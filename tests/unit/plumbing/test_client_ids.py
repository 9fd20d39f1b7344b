"""Which client ids are a login's own."""

import pytest

from farmiq.cloud.camera.gateway import logins
from farmiq.plumbing.broker_callout import MAX_SESSIONS, Sessions, not_anothers, own_client_id

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
    assert logins.not_anothers(client_id, MAC, ours=["cloud-camera-gateway"]) is harmless


def test_ninth_session_of_a_login_ends_its_oldest() -> None:
    sessions = Sessions()
    ended = [sessions.admit("t/d", f"t/d/{number}") for number in range(MAX_SESSIONS)]
    assert ended == [None] * MAX_SESSIONS
    assert sessions.admit("t/d", "t/d/0") is None
    assert sessions.admit("t/e", "t/e/0") is None
    assert sessions.admit("t/d", "t/d/new") == "t/d/1"
