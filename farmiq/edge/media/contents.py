"""Pure: are these the bytes that were spoken of? All that is wrong with them, in words."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the store. `mime_type` is by its first bytes; `broken`: why it is no image."""

    size_bytes: int
    etag: str
    sha256: str | None = None
    mime_type: str | None = None
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody said of it: whoever asked for the address, or announced it."""

    by: str
    mime_type: str | None
    size_bytes: int | None
    sha256: str | None


def problems(found: Found, said: tuple[Said, ...], *, most_bytes: int) -> list[str]:
    """Why the bytes cannot count as the image that was meant; empty if they can."""
    return list(_problems(found, said, most_bytes))


def _problems(found: Found, said: tuple[Said, ...], most_bytes: int) -> Iterator[str]:
    if found.size_bytes == 0:
        yield "it is empty"
        return
    if found.size_bytes > most_bytes:
        yield f"it has {found.size_bytes} bytes, at most {most_bytes} are taken"
        return
    if found.broken:
        yield f"it is no image: {found.broken}"
    for each in said:
        yield from _contradictions(found, each)


def _contradictions(found: Found, said: Said) -> Iterator[str]:
    if found.mime_type and said.mime_type not in (None, found.mime_type):
        yield f"{said.by} says {said.mime_type}, its first bytes say {found.mime_type}"
    if said.size_bytes not in (None, found.size_bytes):
        yield f"{said.by} says {said.size_bytes} bytes, it has {found.size_bytes}"
    if said.sha256 not in (None, found.sha256):
        yield f"{said.by} says sha256 {said.sha256}, it has {found.sha256}"
