"""A sheet of paper: fonts, colours, and text that fits. Lengths are in points, y grows upwards.

Fonts are Noto Sans (Latin, Greek, Cyrillic) and Noto Sans Thai, shipped with the package. A letter
that neither has is drawn as a box.
"""

import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

FONTS = Path(__file__).parent / "fonts"
WIDTH, HEIGHT = A4
MARGIN = 42.0
INNER = WIDTH - 2 * MARGIN
_TAB, _SOFT_HYPHEN = "\t", "\u00ad"

TEXT, MUTED, LINE, SOFT = "#1d2421", "#5d6762", "#d9d6cd", "#f1efe9"
GOOD, WARN, BAD, ACCENT = "#1f7a4d", "#8a5a00", "#b3261e", "#1f5f8b"
BAND, FORECAST_BAND = "#cfe3d6", "#d5e3ee"


@functools.cache
def _faces() -> dict[bool, tuple[tuple[str, frozenset[int]], ...]]:
    """By boldness: the names of the fonts and the letters that each has, in order of preference."""
    loaded = {}
    for bold, style in ((False, "Regular"), (True, "Bold")):
        faces = []
        for family in ("NotoSans", "NotoSansThai"):
            font = TTFont(f"{family}-{style}", str(FONTS / f"{family}-{style}.ttf"))
            pdfmetrics.registerFont(font)
            faces.append((font.fontName, frozenset(font.face.charToGlyph)))
        loaded[bold] = tuple(faces)
    return loaded


def _runs(text: str, *, bold: bool) -> Iterator[tuple[str, str]]:
    """(font, text) of stretches in one font."""
    faces = _faces()[bold]
    name, run = faces[0][0], ""
    for letter in text:
        fitting = next((face for face, has in faces if ord(letter) in has), None)
        shown, face = (letter, fitting) if fitting else ("\ufffd", faces[0][0])
        if face != name and run:
            yield name, run
            run = ""
        name, run = face, run + shown
    if run:
        yield name, run


def plain(text: str) -> str:
    """One line without control characters and marks that turn the direction of writing."""
    shown = "".join(
        letter if letter.isprintable() and letter != _SOFT_HYPHEN else " " for letter in text
    )
    return " ".join(shown.split())


@functools.lru_cache(maxsize=4096)
def width(text: str, size: float, *, bold: bool = False) -> float:
    return float(
        sum(pdfmetrics.stringWidth(run, font, size) for font, run in _runs(text, bold=bold))
    )


def cut(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """The text, shortened with … until it fits."""
    # No line of a page has more: a name of 4 KB is not measured letter by letter.
    text = plain(text[:2000])[:400]
    if width(text, size, bold=bold) <= room:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if width(text[:middle].rstrip() + "…", size, bold=bold) <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + "…"


def wrapped(
    text: str, size: float, room: float, *, max_lines: int, bold: bool = False
) -> list[str]:
    """The text in lines that fit; the last one says … if there is more."""
    lines: list[str] = []
    words = plain(text[:4000]).split(" ")
    while words and len(lines) < max_lines:
        taken = 1
        while taken < len(words) and width(" ".join(words[: taken + 1]), size, bold=bold) <= room:
            taken += 1
        line = " ".join(words[:taken])
        if len(lines) == max_lines - 1 and taken < len(words):
            line += " …"
            if width(line, size, bold=bold) > room:
                line = cut(line, size, room, bold=bold)
        lines.append(cut(line, size, room, bold=bold))
        words = words[taken:]
    return lines


@dataclass
class Sheet:
    """A PDF that is being drawn; `y` is where the next block begins."""

    title: str
    author: str
    language: str
    footer: str = ""
    y: float = HEIGHT - MARGIN
    page: int = 1
    _buffer: io.BytesIO = field(default_factory=io.BytesIO)
    canvas: Any = field(init=False)

    def __post_init__(self) -> None:
        # Invariant: equal reports are equal bytes.
        self.canvas = Canvas(
            self._buffer, pagesize=A4, invariant=1, pageCompression=1, lang=self.language
        )
        self.canvas.setTitle(plain(self.title))
        self.canvas.setAuthor(plain(self.author))
        self.canvas.setCreator("FarmIQ")

    def text(
        self, x: float, y: float, text: str, size: float = 9, *, color: str = TEXT,
        bold: bool = False, align: str = "left",
    ) -> None:  # fmt: skip
        if align != "left":
            taken = width(text, size, bold=bold)
            x -= taken if align == "right" else taken / 2
        self.canvas.setFillColor(color)
        for font, run in _runs(text, bold=bold):
            self.canvas.setFont(font, size)
            self.canvas.drawString(x, y, run)
            x += pdfmetrics.stringWidth(run, font, size)

    def paragraph(
        self, text: str, size: float, *, color: str = TEXT, bold: bool = False, max_lines: int = 4
    ) -> None:
        leading = size * 1.36
        for line in wrapped(text, size, INNER, max_lines=max_lines, bold=bold):
            self.y -= leading
            self.text(MARGIN, self.y + leading * 0.25, line, size, color=color, bold=bold)

    def rule(self, y: float, *, color: str = LINE, begin: float = MARGIN, end: float = 0) -> None:
        self.canvas.setStrokeColor(color)
        self.canvas.setLineWidth(0.6)
        self.canvas.setDash()
        self.canvas.line(begin, y, end or WIDTH - MARGIN, y)

    def heading(self, text: str, note: str = "") -> None:
        self.y -= 22
        self.text(MARGIN, self.y, text, 11, bold=True)
        if note:
            room = INNER - width(text, 11, bold=True) - 16
            self.text(WIDTH - MARGIN, self.y, cut(note, 8, room), 8, color=MUTED, align="right")
        self.y -= 6

    def has_room(self, height: float) -> bool:
        return self.y - height >= MARGIN + 16

    def end_page(self) -> None:
        """The line at the bottom, and a new sheet."""
        self.rule(MARGIN - 2)
        self.text(MARGIN, MARGIN - 14, cut(self.footer, 7.5, INNER - 24), 7.5, color=MUTED)
        self.text(WIDTH - MARGIN, MARGIN - 14, str(self.page), 7.5, color=MUTED, align="right")
        self.canvas.showPage()
        self.page += 1
        self.y = HEIGHT - MARGIN

    def content(self) -> bytes:
        self.canvas.save()
        return self._buffer.getvalue()
