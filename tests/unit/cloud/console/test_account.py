"""The account page: what a browser says of itself becomes a name that people know."""

import pytest

from farmiq.cloud.console.account import routes, view

AGENTS = {
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 "
    "Safari/537.36": "Chrome on Linux",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/18.1 Mobile/15E148 Safari/604.1": "Safari on iOS",
    "Mozilla/5.0 (Android 15; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0": "Firefox on Android",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0": "Edge on Windows",
    "curl/8.5.0": "curl",
    "<script>": "Unknown device",
    "": "Unknown device",
}


@pytest.mark.parametrize(("agent", "name"), AGENTS.items())
def test_browser_is_named_as_people_know_it(agent: str, name: str) -> None:
    assert view.device(agent) == name


def test_qr_code_has_nothing_that_the_policy_of_pages_refuses() -> None:
    drawn = routes.qr_code("otpauth://totp/FarmIQ:ann@hill.farm?secret=GEZDGNBV")

    assert drawn.startswith("<svg")
    assert "style=" not in drawn
    assert "<script" not in drawn
