"""Pure: what may not become an event (WV-02). Each function says what is wrong, or None."""

import math

MOST_PICTURE_BYTES = 10 * 2**20
TYPES = ("image/jpeg", "image/png", "image/webp")

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_SHORTEST = 64


def weight_problem(weight_kg: float, *, most_kg: float) -> str | None:
    if not math.isfinite(weight_kg):
        return f"a weight of {weight_kg} kg is not a number"
    if weight_kg <= 0:
        return f"a weight of {weight_kg:g} kg is not above 0"
    if weight_kg > most_kg:
        return f"a weight of {weight_kg:g} kg is above {most_kg:g} kg (AGENT_MOST_WEIGHT_KG)"
    return None


def picture_problem(data: bytes, content_type: str) -> str | None:
    """By its first and last bytes: empty, too large, no picture, another type, cut off."""
    if content_type not in TYPES:
        return f"a picture of type {content_type!r}; only {', '.join(TYPES)} are taken"
    if not data:
        return "an empty picture"
    if len(data) > MOST_PICTURE_BYTES:
        return f"a picture of {len(data)} bytes is larger than {MOST_PICTURE_BYTES}"
    found = _type_of(data)
    if found is None:
        return "bytes that are no JPEG, PNG or WebP picture"
    if found != content_type:
        return f"a picture that is {found} and was called {content_type}"
    return "a picture that is cut off" if _cut_off(data, found) else None


def _type_of(data: bytes) -> str | None:
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(_PNG):
        return "image/png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def _cut_off(data: bytes, content_type: str) -> bool:
    if len(data) < _SHORTEST:
        return True
    if content_type == "image/jpeg":
        # Some cameras fill up with zeros behind the end mark.
        return not data.rstrip(b"\0").endswith(b"\xff\xd9")
    if content_type == "image/png":
        return not data.endswith(_PNG_END)
    return len(data) < int.from_bytes(data[4:8], "little") + 8
