"""Pictures are made smaller only where the settings ask for it, and never below what was asked."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from farmiq.device.buffer import rules
from farmiq.device.buffer.recorder import Picture, RejectedError
from farmiq.device.capture import camera
from tests.support import station


def photo(width: int, height: int, kind: str = "jpeg") -> Picture:
    file = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(file, kind)
    made = station.picture(None)
    return replace(made, content_type=f"image/{kind}", data=file.getvalue())


@pytest.mark.req("WV-33")
def test_large_picture_is_scaled_down_and_a_small_one_is_unchanged() -> None:
    large = photo(1600, 900, "png")
    small = camera.scaled(large, side_px=800, quality=90)
    with Image.open(io.BytesIO(small.data)) as image:
        assert image.size == (800, 450)
    assert rules.picture_problem(small.data, small.content_type) is None
    assert small.image_id == large.image_id
    assert camera.scaled(large, side_px=1600, quality=90) is large


@pytest.mark.req("WV-02")
def test_picture_that_cannot_be_decoded_is_rejected() -> None:
    with pytest.raises(RejectedError, match="decoded"):
        camera.scaled(station.picture(None), side_px=800, quality=90)
    cut = photo(1600, 900, "png")
    with pytest.raises(RejectedError, match="decoded"):
        camera.scaled(replace(cut, data=cut.data[:2000]), side_px=800, quality=90)


@pytest.mark.req("WV-33")
async def test_picture_is_not_scaled_by_default(tmp_path: Path) -> None:
    book = await station.recorder(tmp_path)
    original = photo(2000, 1500)
    await book.photograph(original)
    assert book.buffer.pictures.read(str(original.image_id)) == original.data
    await book.buffer.close()
