"""What may not become an event (WV-02)."""

import io
import math

import pytest
from PIL import Image

from farmiq.device.buffer import rules


def made(kind: str) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((64, 48), 40).convert("RGB").save(file, kind)
    return file.getvalue()


@pytest.mark.req("WV-02")
@pytest.mark.parametrize(
    ("weight_kg", "fits"),
    [
        (0.01, True), (2000, True), (0, False), (-1, False), (2000.1, False),
        (math.nan, False), (math.inf, False), (-math.inf, False),
    ],
)  # fmt: skip
def test_weight_that_is_no_animals_is_rejected_with_the_reason(
    weight_kg: float, *, fits: bool
) -> None:
    assert (rules.weight_problem(weight_kg, max_kg=2000) is None) is fits


@pytest.mark.req("WV-02")
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_picture_that_is_damaged_or_wrong_is_rejected_with_the_reason(kind: str) -> None:
    data, content_type = made(kind), f"image/{kind}"
    assert rules.picture_problem(data, content_type) is None
    assert "cut off" in (rules.picture_problem(data[:-20], content_type) or "")
    assert rules.picture_problem(b"", content_type) == "an empty picture"
    assert "no JPEG" in (rules.picture_problem(b"x" * 500, content_type) or "")
    other = "image/png" if kind != "png" else "image/jpeg"
    assert "was called" in (rules.picture_problem(data, other) or "")
    assert "only image/jpeg" in (rules.picture_problem(data, "image/gif") or "")
    assert "larger" in (rules.picture_problem(data + bytes(11 * 2**20), content_type) or "")


def test_jpeg_with_zeros_behind_its_end_is_accepted() -> None:
    assert rules.picture_problem(made("jpeg") + bytes(512), "image/jpeg") is None
