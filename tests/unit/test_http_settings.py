"""Settings of the HTTP addresses that are more than a number."""

import pytest

from farmiq.config import CloudSettings, SettingsError
from farmiq.plumbing import connections

REQUIRED = {"FARMIQ_CLOUD_DB_URL": "unused", "FARMIQ_AMQP_URL": "unused"}


@pytest.mark.parametrize(
    ("given", "proxy", "stranger"),
    [
        ("", "127.0.0.1", "192.0.2.1"),
        ("10.0.0.0/8, 2001:db8::7", "2001:db8::7", "127.0.0.1"),
        ("10.0.0.0/8, 2001:db8::7", "10.200.0.1", "192.0.2.1"),
    ],
)
def test_trusted_proxies_are_addresses_and_networks(given: str, proxy: str, stranger: str) -> None:
    limits = CloudSettings.load({**REQUIRED, "API_TRUSTED_PROXIES": given}).limits

    assert connections.is_within(proxy, limits.proxies)
    assert not connections.is_within(stranger, limits.proxies)


def test_dash_for_trusted_proxies_trusts_none() -> None:
    assert CloudSettings.load({**REQUIRED, "API_TRUSTED_PROXIES": "-"}).limits.proxies == ()


@pytest.mark.parametrize(
    ("name", "value"), [("API_TRUSTED_PROXIES", "proxy.example"), ("API_METRICS_TOKEN", "short")]
)
def test_impossible_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        CloudSettings.load({**REQUIRED, name: value})
