"""The address of a broker: what a person pastes, and what they are told if it cannot be one."""

import pytest

from farmiq.config import DeviceSettings, SettingsError
from farmiq.plumbing.messaging import mqtt_address
from farmiq.plumbing.messaging.mqtt_address import address, login_url


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("mqtt://edge", ("edge", 1883)),
        ("mqtts://u:p@edge", ("edge", 8883)),
        ("mqtt://u:p@edge:2883/", ("edge", 2883)),
        ("mqtt://", ("127.0.0.1", 1883)),
    ],
)
def test_address_of_a_broker_is_read(url: str, found: tuple[str, int]) -> None:
    assert address(url) == found


@pytest.mark.parametrize(
    "url",
    [
        "mqtts://hillside/thermo-7:secret@edge:8883",
        "mqtts://user:sec/ret@edge:8883",
        "mqtts://user:sec#ret@edge:8883",
        "mqtts://user:sec?ret@edge:8883",
        "mqtt://edge:port",
        "mqtt://[edge",
    ],
)
def test_pasted_login_that_is_not_encoded_is_explained_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match="a / is written %2F") as told:
        address(url)
    assert "ret" not in str(told.value).replace("secret", "")


def test_ready_url_is_read_back_whatever_stands_in_the_login() -> None:
    url = login_url("hill%3Aside/thermo-7", "p/w:@#?%", url="mqtts://[::1]:9883")
    assert address(url) == ("::1", 9883)
    assert url == "mqtts://hill%253Aside%2Fthermo-7:p%2Fw%3A%40%23%3F%25@[::1]:9883"


def test_agent_with_a_login_that_is_not_encoded_does_not_start_and_says_why() -> None:
    with pytest.raises(SettingsError, match=r"AGENT_MQTT_URL is wrong: .*%2F") as told:
        DeviceSettings.load({"AGENT_MQTT_URL": "mqtts://hillside/thermo-7:geheim@edge:8883"})
    assert "geheim" not in str(told.value)
    assert mqtt_address.DEFAULT_PORTS["mqtts"] == 8883
