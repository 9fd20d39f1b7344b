"""MAC addresses in every usual spelling."""

import pytest

from farmiq.cloud.camera import mac


@pytest.mark.parametrize(
    "text",
    ["a0:b1:c2:d3:e4:f5", "A0-B1-C2-D3-E4-F5", "a0b1.c2d3.e4f5", "a0B1c2D3e4F5", " a0b1c2d3e4f5\n"],
)
def test_every_usual_spelling_is_one_address(text: str) -> None:
    assert mac.normal(text) == "A0B1C2D3E4F5"


@pytest.mark.parametrize(
    "text",
    ["", "a0b1c2d3e4f", "a0b1c2d3e4f5a", "a0:b1:c2:d3:e4:g5", "a0:b1-c2:d3:e4:f5", "a0:b1c2d3e4f5",
     "\u06600b1c2d3e4f5", "a0b1.c2d3:e4f5"],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MAC address"):
        mac.normal(text)
