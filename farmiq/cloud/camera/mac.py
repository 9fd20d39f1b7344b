"""Pure: a camera's hardware address, however people and labels spell it."""

import re

_SPELLINGS = re.compile(
    r"[0-9a-f]{12}|[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4}|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}",
    re.ASCII | re.IGNORECASE,
)


def normal(text: str) -> str:
    """Twelve hexadecimal digits in upper case. Raises ValueError."""
    trimmed = text.strip()
    if not _SPELLINGS.fullmatch(trimmed):
        raise ValueError("is not a MAC address such as A0:B1:C2:D3:E4:F5")
    return re.sub(r"[:.-]", "", trimmed).upper()
