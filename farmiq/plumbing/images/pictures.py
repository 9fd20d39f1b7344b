"""Pictures as bytes: what they are, whether whole, without what they tell of a place, small.

JPEG, PNG and WebP. Nothing is decoded to find out what something is or to take its metadata away:
the parts of the file are walked, so a picture that is shown is bit for bit the one that was taken.
"""

import contextlib
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageOps, UnidentifiedImageError

JPEG, PNG, WEBP = "image/jpeg", "image/png", "image/webp"
# More is no photograph but an attack on its decoder.
MAX_PIXELS = 40_000_000
THUMBNAIL_PX = 320
# Each costs time for every pixel, and a file can hold thousands; encoders write about ten.
MAX_SCANS = 100

_NONE_OF_OURS = "its first bytes are those of no JPEG, PNG or WebP"
_PNG_HEAD = b"\x89PNG\r\n\x1a\n"
_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_APP0, _APP2, _APP14, _APP15, _COM = 0xE0, 0xE2, 0xEE, 0xEF, 0xFE
_RESTARTS = range(0xD0, 0xD8)
# How a picture is to be drawn; all other metadata may tell where it was taken, and by whom.
_JPEG_PARTS = {_APP0, _APP2, _APP14}
_PNG_PARTS = {
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB",
    b"bKGD", b"pHYs", b"cICP", b"acTL", b"fcTL", b"fdAT",
}  # fmt: skip
_WEBP_PARTS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"}
_WEBP_FLAGS = ~0x0C  # EXIF and XMP in the first byte of VP8X
_ORIENTATION = 0x0112
_UPRIGHT, _ORIENTATIONS = 1, range(2, 9)


class UnreadableError(Exception):
    """Not a picture that could be shown; the text says why.

    `too_costly`: what is wrong is how much there is of it, which no more bytes will mend.
    """

    def __init__(self, why: str, *, too_costly: bool = False) -> None:
        super().__init__(why)
        self.too_costly = too_costly


@dataclass(frozen=True, slots=True)
class Picture:
    mime_type: str
    width_px: int
    height_px: int


def kind(data: bytes) -> str | None:
    """What the first bytes say it is, or None."""
    if data[:3] == b"\xff\xd8\xff":
        return JPEG
    if data[:8] == _PNG_HEAD:
        return PNG
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return WEBP
    return None


def is_animated(data: bytes) -> bool:
    """Whether its head says that it holds more than one image."""
    if kind(data) == PNG:
        return b"acTL" in data[: data.find(b"IDAT")]
    return kind(data) == WEBP and data[12:16] == b"VP8X" and bool(data[20:21] and data[20] & 0x02)


def look(data: bytes) -> Picture:
    """Return kind and size. Raises UnreadableError if it is cut off, damaged or far too large."""
    content_type = kind(data)
    if content_type is None:
        raise UnreadableError(_NONE_OF_OURS if data else "empty")
    bare(data)
    if content_type == WEBP:
        # To open one, its library takes memory for all of its pixels.
        return Picture(content_type, *_webp_size(data))
    with _opened(data) as picture:
        return Picture(content_type, picture.width, picture.height)


def bare(data: bytes) -> bytes:
    """The same picture without EXIF (but for how to turn it), XMP, IPTC, comments and what follows.

    Raises UnreadableError.
    """
    strip = {JPEG: _bare_jpeg, PNG: _bare_png, WEBP: _bare_webp}.get(kind(data) or "")
    if strip is None:
        raise UnreadableError("no JPEG, PNG or WebP")
    try:
        return strip(data)
    except (IndexError, ValueError):
        raise UnreadableError("it is cut off") from None


# --- decoding: any memory and time may be taken here, so decoding.py has it done elsewhere


def thumbnail(data: bytes) -> bytes:
    """A small JPEG of it, upright and without metadata. Raises UnreadableError."""
    return as_jpeg(small(data))


def small(data: bytes, *, max_pixels: int = MAX_PIXELS, side_px: int = THUMBNAIL_PX) -> Image.Image:
    """It decoded, upright and at most `side_px` long. Raises UnreadableError."""
    with _decodable(data, max_pixels=max_pixels) as picture, _decoding():
        picture.draft("RGB", (side_px * 2, side_px * 2))
        # Made small before it is turned: turning makes a copy.
        picture.thumbnail((side_px, side_px))
        return _upright(picture).convert("RGB")


def _upright(picture: Image.Image) -> Image.Image:
    """Turned as its EXIF says; rubbish there says nothing, and the picture stays as it is."""
    try:
        return ImageOps.exif_transpose(picture)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever its parser makes of hostile bytes
        return picture


def check(data: bytes) -> Picture:
    """What it is, after it was decoded to its end. Raises UnreadableError."""
    with _decodable(data) as picture:
        checked = Picture(kind(data) or "", picture.width, picture.height)
        with _decoding():
            # All of a JPEG is read to make an eighth of it, and it takes a 64th of the memory.
            picture.draft(None, (1, 1))
            picture.load()
    return checked


def shrunk(data: bytes, *, side_px: int, quality: int) -> bytes:
    """A JPEG with a longer side of `side_px`; empty if it is no longer. Raises UnreadableError."""
    with _decodable(data) as picture, _decoding():
        if max(picture.size) <= side_px:
            return b""
        picture.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
        made = io.BytesIO()
        picture.convert("RGB").save(made, "JPEG", quality=quality)
    return made.getvalue()


def as_jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=80, optimize=True)
    return out.getvalue()


def scans(data: bytes) -> int:
    """How often a JPEG goes over its picture; more than MAX_SCANS are counted as one more."""
    count = at = 0
    while count <= MAX_SCANS and (at := data.find(b"\xff\xda", at)) >= 0:
        count, at = count + 1, at + 2
    return count


def _decodable(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open it, if its header is within the limits."""
    if kind(data) is None:
        raise UnreadableError(_NONE_OF_OURS)
    if kind(data) == WEBP:
        _webp_size(data, max_pixels=max_pixels)
    if kind(data) == JPEG and scans(data) > MAX_SCANS:
        raise UnreadableError(f"it is drawn more than {MAX_SCANS} times over", too_costly=True)
    return _opened(data, max_pixels=max_pixels)


@contextlib.contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a codec makes of hostile bytes
        raise UnreadableError(f"it cannot be decoded: {error}"[:300]) from None


def _opened(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    try:
        picture = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP"))
    except MemoryError:
        raise
    except UnidentifiedImageError:
        raise UnreadableError("it cannot be read: its beginning is damaged") from None
    except Exception as error:  # noqa: BLE001 - whatever a codec makes of hostile bytes
        raise UnreadableError(f"it cannot be read: {error}"[:300]) from None
    try:
        _refuse_large(picture.width, picture.height, max_pixels)
    except UnreadableError:
        picture.close()
        raise
    return picture


def _refuse_large(width_px: int, height_px: int, max_pixels: int) -> None:
    if width_px * height_px > max_pixels:
        raise UnreadableError(
            f"{width_px} x {height_px} pixels are more than {max_pixels}", too_costly=True
        )


# Larger ones are refused above, with a reason of ours.
Image.MAX_IMAGE_PIXELS = None


def _bare_jpeg(data: bytes) -> bytes:
    parts = [b"\xff\xd8"]
    turned = _turned(data)
    if turned:
        parts.append(turned)
    at, scanned = 2, False
    while True:
        if data[at] != 0xFF:  # noqa: PLR2004 - every marker begins so
            raise UnreadableError("a part of the JPEG does not begin where it should")
        marker = data[at + 1]
        if marker == 0xFF:  # noqa: PLR2004 - fill bytes are allowed before a marker
            at += 1
            continue
        if marker == _EOI:
            if not scanned:
                raise UnreadableError("the JPEG holds no picture")
            return b"".join([*parts, b"\xff\xd9"])
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _SOS:
            end, scanned = _end_of_scan(data, end), True
        if end > len(data) or end < at + 4:
            raise UnreadableError("it is cut off")
        if marker in _JPEG_PARTS or not (_APP0 <= marker <= _APP15 or marker == _COM):
            parts.append(data[at:end])
        at = end


def _end_of_scan(data: bytes, at: int) -> int:
    """Where the compressed part ends: at the next marker that is none of its own."""
    while True:
        at = data.index(b"\xff", at)
        following = data[at + 1]
        if following not in _RESTARTS and following not in (0x00, 0xFF):
            return at
        at += 1 if following == 0xFF else 2  # noqa: PLR2004


def _turned(data: bytes) -> bytes:
    """Return EXIF with the orientation alone; empty if the picture is upright."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as picture:
            orientation = picture.getexif().get(_ORIENTATION, _UPRIGHT)
    except Exception:  # noqa: BLE001 - hostile bytes again: nothing is said of turning it
        return b""
    if orientation not in _ORIENTATIONS:
        return b""
    tags = Image.Exif()
    tags[_ORIENTATION] = orientation
    body = tags.tobytes()
    return b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body


def _bare_png(data: bytes) -> bytes:
    parts = [_PNG_HEAD]
    at = len(_PNG_HEAD)
    while True:
        size = int.from_bytes(data[at : at + 4], "big")
        name, end = data[at + 4 : at + 8], at + 12 + size
        if len(name) < 4 or end > len(data):  # noqa: PLR2004
            raise UnreadableError("it is cut off")
        if zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise UnreadableError(f"the part {name!r} of the PNG is damaged")
        if name in _PNG_PARTS:
            parts.append(data[at:end])
        if name == b"IEND":
            return b"".join(parts)
        at = end


def _bare_webp(data: bytes) -> bytes:
    size = int.from_bytes(data[4:8], "little")
    if size + 8 > len(data):
        raise UnreadableError("it is cut off")
    content = b"".join(_webp_part(*part) for part in _webp_parts(data[12 : size + 8]))
    if not content:
        raise UnreadableError("the WebP holds no picture")
    return b"RIFF" + (len(content) + 4).to_bytes(4, "little") + b"WEBP" + content


def _webp_size(data: bytes, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Width and height as its first part says them. Raises UnreadableError."""
    name, part = data[12:16], data[20:30]
    if name == b"VP8X" and len(part) == len(range(20, 30)):
        width = int.from_bytes(part[4:7], "little") + 1
        height = int.from_bytes(part[7:10], "little") + 1
    elif name == b"VP8L" and part[:1] == b"\x2f":
        bits = int.from_bytes(part[1:5], "little")
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif name == b"VP8 " and part[3:6] == b"\x9d\x01\x2a":
        width = int.from_bytes(part[6:8], "little") & 0x3FFF
        height = int.from_bytes(part[8:10], "little") & 0x3FFF
    else:
        raise UnreadableError("the WebP does not say its size")
    _refuse_large(width, height, max_pixels)
    return width, height


def _webp_parts(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(body):
        name, size = body[at : at + 4], int.from_bytes(body[at + 4 : at + 8], "little")
        end = at + 8 + size
        if end > len(body):
            raise UnreadableError("it is cut off")
        yield name, body[at + 8 : end]
        at = end + size % 2


def _webp_part(name: bytes, body: bytes) -> bytes:
    if name not in _WEBP_PARTS:
        return b""
    if name == b"VP8X":
        body = bytes([body[0] & _WEBP_FLAGS & 0xFF]) + body[1:]
    return name + len(body).to_bytes(4, "little") + body + b"\0" * (len(body) % 2)
