"""Pictures are made smaller only where the settings ask for it, and never below what was asked."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from farmiq.device import scaling, validation
from farmiq.device.notebook import Picture, Refused
from tests.support import station


def photo(width: int, height: int, kind: str = "jpeg") -> Picture:
    file = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(file, kind)
    made = station.picture(None)
    return replace(made, content_type=f"image/{kind}", data=file.getvalue())


@pytest.mark.req("WV-33")
def test_the_longer_side_shrinks_and_what_fits_stays_byte_for_byte() -> None:
    large = photo(1600, 900, "png")
    small = scaling.scaled(large, side_px=800, quality=90)
    with Image.open(io.BytesIO(small.data)) as image:
        assert image.size == (800, 450)
    assert validation.picture_problem(small.data, small.content_type) is None
    assert small.image_id == large.image_id
    assert scaling.scaled(large, side_px=1600, quality=90) is large


@pytest.mark.req("WV-02")
def test_what_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(Refused, match="decoded"):
        scaling.scaled(station.picture(None), side_px=800, quality=90)
    cut = photo(1600, 900, "png")
    with pytest.raises(Refused, match="decoded"):
        scaling.scaled(replace(cut, data=cut.data[:2000]), side_px=800, quality=90)


@pytest.mark.req("WV-33")
async def test_by_default_the_original_is_kept(tmp_path: Path) -> None:
    book = await station.notebook(tmp_path)
    original = photo(2000, 1500)
    await book.photograph(original)
    assert book.buffer.pictures.read(str(original.image_id)) == original.data
    await book.buffer.close()
