import pytest

from farmiq.ui import look


@pytest.mark.parametrize(
    "address",
    ["/weighings?day=2025-01-15&state=INCOMPLETE", "/sites/018f1a84?date=2025-01-15", "/a/b%20c"],
)
def test_a_page_of_ours_is_shown_after_signing_in(address: str) -> None:
    assert look.own_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        None, "", "weighings", "https://evil.example/", "//evil.example/", "/\\evil.example",
        "\\\\evil.example", "/\t/evil.example", "/\n/evil.example", " //evil.example",
        "javascript:alert(1)", "/x\\y", "/sign-in", "/sign-in?next=/", "/sign-out", "/é",
        "/" + "x" * 2000,
    ],
)  # fmt: skip
def test_address_of_another_site_becomes_the_first_page(address: str | None) -> None:
    assert look.own_address(address) == "/"
