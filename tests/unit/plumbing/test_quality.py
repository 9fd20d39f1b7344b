"""How good pictures are: sharp or not, too dark or too bright, or nothing anybody can read."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest
from PIL import Image, ImageEnhance, ImageFilter

from farmiq.lab.simulate import pictures as simulated
from farmiq.plumbing.images import pictures, quality

AT = datetime(2026, 3, 10, 8, tzinfo=UTC)
Change = Callable[[Image.Image], Image.Image]


@cache
def sharp() -> list[bytes]:
    """Drawn when a test needs them, not by every process that collects tests."""
    return [
        *(simulated.dish(camera_id=f"c-{n}", number=n, at=AT) for n in range(8)),
        *(
            simulated.render(station_id="s", number=n, at=AT, animal=n, weight_kg=20.0 + n)
            for n in range(4)
        ),
    ]


def changed(data: bytes, change: Change) -> bytes:
    out = io.BytesIO()
    with Image.open(io.BytesIO(data)) as opened:
        change(opened.convert("RGB")).save(out, "JPEG", quality=80)
    return out.getvalue()


def blurred(picture: Image.Image) -> Image.Image:
    return picture.filter(ImageFilter.GaussianBlur(0.006 * max(picture.size)))


def lit(factor: float) -> Change:
    return lambda picture: ImageEnhance.Brightness(picture).enhance(factor)


def verdicts(change: Change | None = None) -> set[str]:
    found = (quality.assess(changed(each, change) if change else each)[0] for each in sharp())
    return {each.grade for each in found}


def test_pictures_as_they_should_be_are_ok() -> None:
    assert verdicts() == {"ok"}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(blurred, "blurred"), (lit(0.1), "dark"), (lit(3.0), "bright")],
)
def test_picture_of_poor_quality_is_rated_with_its_reason(change: Change, verdict: str) -> None:
    assert verdicts(change) == {verdict}


def test_a_dim_picture_is_not_called_blurred() -> None:
    assert verdicts(lit(0.35)) == {"ok"}
    dim_and_blurred: Change = lambda picture: lit(0.35)(blurred(picture))  # noqa: E731
    assert verdicts(dim_and_blurred) == {"blurred"}


def test_assessment_has_size_bytes_and_a_small_copy() -> None:
    data = changed(sharp()[0], lambda picture: picture.resize((1600, 1200)))
    found, small = quality.assess(data)
    assert (found.size_bytes, found.measures and found.measures.width_px) == (len(data), 1600)
    assert small is not None
    assert pictures.look(small).width_px == pictures.THUMBNAIL_PX


def claiming(width: int, height: int) -> bytes:
    """A JPEG whose header claims another size than it has."""
    data = sharp()[0]
    at = data.index(b"\xff\xc0") + 5
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return data[:at] + size + data[at + 4 :]


def drawn_over_and_over() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 64)).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    at = data.rindex(b"\xff\xda")
    return data[:at] + data[at:-2] * 200 + data[-2:]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\xff\xd8\xff\xd9", "holds no picture"),
        (simulated.dish(camera_id="c-0", number=0, at=AT)[:2000], "cut off"),
        (b"not a picture", "no JPEG"),
        (claiming(60_000, 60_000), "60000 x 60000"),
        (claiming(4_001, 4_000), "4001 x 4000"),
        (drawn_over_and_over(), "times over"),
    ],
    ids=["empty", "bare", "cut", "text", "bomb", "large", "scans"],
)
def test_unreadable_picture_is_not_decoded_and_has_a_reason(data: bytes, why: str) -> None:
    found, small = quality.assess(data)
    assert (found.grade, found.measures, small) == ("unreadable", None, None)
    assert found.size_bytes == len(data)
    assert why in str(found.reason)
