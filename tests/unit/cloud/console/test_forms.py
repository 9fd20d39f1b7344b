import pytest

from farmiq.plumbing import http
from farmiq.ui import forms


def test_the_first_value_of_each_field_counts() -> None:
    assert forms.parse(b"a=1&b=%C3%A9+x&a=2&c=") == {"a": "1", "b": "é x", "c": ""}


def test_form_that_is_not_utf8_is_read_with_replacements() -> None:
    assert forms.parse(b"a=%ff\xff") == {"a": "��"}


def test_too_many_fields_are_refused() -> None:
    with pytest.raises(http.HttpError, match="cannot be read"):
        forms.parse(b"&".join(b"a=1" for _ in range(forms.MAX_FIELDS + 1)))


@pytest.mark.parametrize(
    ("sent", "token", "expected"),
    [("t", "t", True), ("x", "t", False), ("", "t", False), ("", "", False), ("é", "t", False)],
)
def test_a_form_needs_the_token_of_its_browser(
    sent: str,
    token: str,
    expected: bool,  # noqa: FBT001 - a table of cases
) -> None:
    assert forms.came_from_us({"csrf": sent}, token) is expected


def test_form_without_a_csrf_token_is_rejected() -> None:
    assert not forms.came_from_us({}, None)
    assert not forms.came_from_us({}, "t")
