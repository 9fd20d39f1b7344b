"""Pictures as bytes: known by their first ones, whole or not, bare of what tells a place."""

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.pictures import UnreadableError

FORMS = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
SECRET = b"52.5200 north"


def made(form: str, *, size: tuple[int, int] = (40, 30), **options: object) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(out, form, **options)
    return out.getvalue()


def told() -> Image.Exif:
    exif = Image.Exif()
    exif[0x010E] = SECRET.decode()
    return exif


def pixels(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as opened:
        return opened.convert("RGB").tobytes()


SAMPLES = [
    made("JPEG"), made("JPEG", progressive=True), made("PNG"), made("WEBP"),
    made("WEBP", lossless=True),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_picture_type_is_known_by_its_first_bytes(form: str) -> None:
    found = pictures.look(made(form))
    assert (found.mime_type, found.width_px, found.height_px) == (FORMS[form], 40, 30)


@pytest.mark.parametrize("data", [b"", b"GIF89a....", b"<svg/>", b"\xff\xd8", b"RIFF0000WAVE"])
def test_bytes_of_another_type_are_no_picture(data: bytes) -> None:
    assert pictures.kind(data) is None
    for use in (pictures.look, pictures.bare, pictures.thumbnail):
        with pytest.raises(UnreadableError):
            use(data)


@pytest.mark.parametrize("form", FORMS)
def test_bare_picture_has_no_metadata_and_the_same_pixels(form: str) -> None:
    data = made(form, exif=told().tobytes(), xmp=b"<x>" + SECRET + b"</x>")
    assert SECRET in data
    bare = pictures.bare(data)
    assert SECRET not in bare
    assert pixels(bare) == pixels(data)
    assert pictures.bare(bare) == bare


def test_bare_picture_has_no_comments_and_no_bytes_behind_its_end() -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("place", SECRET.decode())
    text.add_itxt("place", SECRET.decode())
    for data in (
        made("JPEG", comment=SECRET),
        made("PNG", pnginfo=text),
        made("JPEG") + SECRET,
        made("PNG") + SECRET,
        made("WEBP") + SECRET,
    ):
        assert SECRET in data
        assert SECRET not in pictures.bare(data)


def test_a_second_picture_behind_the_first_goes_with_its_place() -> None:
    """As phones append one for depth: it has EXIF of its own."""
    data = made("JPEG") + made("JPEG", exif=told().tobytes())
    assert SECRET in data
    assert SECRET not in pictures.bare(data)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_bare_picture_keeps_its_orientation(orientation: int) -> None:
    exif = told()
    exif[0x0112] = orientation
    data = made("JPEG", exif=exif.tobytes())
    with Image.open(io.BytesIO(pictures.bare(data))) as opened:
        assert opened.getexif().get(0x0112, 1) == orientation
        assert 0x010E not in opened.getexif()
    with Image.open(io.BytesIO(pictures.thumbnail(data))) as small:
        assert small.size == ((30, 40) if orientation >= 5 else (40, 30))


@pytest.mark.parametrize("data", SAMPLES)
def test_truncated_picture_is_rejected(data: bytes) -> None:
    for end in range(0, len(data), max(1, len(data) // 50)):
        with pytest.raises(UnreadableError):
            pictures.look(data[:end])


def test_a_bomb_is_not_unpacked() -> None:
    out = io.BytesIO()
    Image.new("1", (9000, 9000)).save(out, "PNG")
    for use in (pictures.look, pictures.thumbnail):
        with pytest.raises(UnreadableError, match="pixels"):
            use(out.getvalue())


@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_picture_is_rejected_and_raises_nothing_else(
    data: bytes, draw: st.DataObject
) -> None:
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 6))):
        damaged[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    for use in (pictures.look, pictures.bare, pictures.thumbnail):
        with contextlib.suppress(UnreadableError):
            use(bytes(damaged))


@given(st.sampled_from([b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x10\0\0\0WEBP"]), st.binary())
def test_anything_after_a_right_beginning_is_answered(head: bytes, rest: bytes) -> None:
    for use in (pictures.look, pictures.bare, pictures.thumbnail):
        with contextlib.suppress(UnreadableError):
            use(head + rest)
