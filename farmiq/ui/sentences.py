"""Sentences of `farmiq/messages/wording.py` in the language of the page, by their patterns.

They come from a row, from an edge of an older version or from an error as English text. A pattern
of the catalogue that fits gives the values, and its translation gets them; a text that none fits
stays as it is. A value whose name has patterns of its own (`phrase`) is one of these and is
translated too; a number gets the separators of the language.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from babel.messages.pofile import read_po

from farmiq.ui import i18n, words

# What tools/texts writes above a pattern in a catalogue.
MARK = "sentence"
# A value of this name is a sentence itself; a reason may be one.
WHOLE, REASON = "sentence", "why"
# Names that a stranger may choose must not make the search long: texts, and values in them, that
# are longer than this stay as they are.
MAX_CHARS, MAX_VALUE_CHARS = 2000, 80
# Values that are known by how they look.
_NUMBER = r"-?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?"
_SHAPES = {
    "number": _NUMBER,
    "quantity": rf"{_NUMBER}(?: \S+){{0,2}}",
    "window": rf"{_NUMBER}(?: \S+){{0,2}}",
    "quoted": r"'[^']*'",
    "instant": r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]{5,8}Z",
}
# Values that are often a name, and stay as they are then. What a farm or barn is called may be any
# words; a signal or a list of many is looked for by its own words first.
_PLACES = ("barn", "farm")
_NAMES = ("signal", "many", *_PLACES)
# Values that are texts themselves.
_LONG = (WHOLE, REASON, "text", "missing", "reasons", "known")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%(%)")
_QUANTITY = re.compile(rf"({_NUMBER})(?: (.+))?", re.ASCII)
_INSTANT = re.compile(rf"\b{_SHAPES['instant']}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Pattern:
    """`strict` knows values that have patterns of their own; `regex` takes any name for them."""

    english: str
    translation: str
    strict: re.Pattern[str]
    regex: re.Pattern[str]


def translated(text: str, zone: str | None = None) -> str:
    """A sentence in the language of the page; English, or a text that nobody knows, as it is.

    With the name of a zone, moments that it names are in that zone's time.
    """
    text = translated_phrase("", text)
    if zone is None:
        return text
    return _INSTANT.sub(lambda match: _local(match[0], zone), text)


def _local(instant: str, zone: str) -> str:
    try:
        return words.local(datetime.fromisoformat(instant), zone)
    except (ValueError, OverflowError):
        return instant


def shown(text: str, zone: str | None = None) -> str:
    """Translated, and with a capital, as a line of its own."""
    text = translated(text, zone)
    return text[:1].upper() + text[1:]


def translated_phrase(name: str, text: str) -> str:
    """The same for what stands for a value of this name."""
    language = i18n.language()
    if language == "en" or len(text) > MAX_CHARS:
        return text
    return _recognized(language, name, text) or text


@functools.lru_cache(maxsize=4096)
def _recognized(language: str, name: str, text: str) -> str | None:
    patterns = _patterns(language).get(name, ())
    for is_strict in (True, False):
        for pattern in patterns:
            match = (pattern.strict if is_strict else pattern.regex).fullmatch(text)
            filled = match and _filled(language, pattern, match.groupdict())
            if filled:
                return filled
    return None


def _filled(language: str, pattern: _Pattern, values: Mapping[str, str]) -> str | None:
    """The translation with these values; None if one that has to be a sentence is none."""
    known = {}
    for name, value in values.items():
        inner = "" if name in (WHOLE, REASON) else name
        text = _recognized(language, inner, value) if inner in _patterns(language) else None
        if text is None and name == WHOLE:
            return None
        known[name] = text or (_localized(language, value) if _shape(name) else value)
    return pattern.translation % known if known else pattern.translation


def quantity(text: str) -> str:
    """The English text of a number and its unit in the language of the page."""
    return text if i18n.language() == "en" else _localized(i18n.language(), text)


def _localized(language: str, value: str) -> str:
    match = _QUANTITY.fullmatch(value)
    if match is None:
        return value
    number, unit = words.localized(match[1]), match[2]
    return f"{number} {_recognized(language, 'unit', unit) or unit}" if unit else number


@functools.cache
def _patterns(language: str) -> Mapping[str, Sequence[_Pattern]]:
    """Those of a catalogue by the name that they stand for, the most specific first."""
    with (i18n.FOLDER / language / "messages.po").open("rb") as text:
        messages = [
            message for message in read_po(text, locale=language) if MARK in message.auto_comments
        ]
    by_name: dict[str, list[str]] = {}
    for message in messages:
        by_name.setdefault(message.context or "", []).append(str(message.id))
    unplaced = {name: known for name, known in by_name.items() if name not in _PLACES}
    unnamed = {name: known for name, known in by_name.items() if name not in _NAMES}
    made: dict[str, list[_Pattern]] = {}
    for message in messages:
        english = str(message.id)
        strict = re.compile(_regex(english, unplaced, named=True), re.DOTALL)
        regex = re.compile(_regex(english, unnamed, named=True), re.DOTALL)
        pattern = _Pattern(english, str(message.string), strict, regex)
        made.setdefault(message.context or "", []).append(pattern)
    for patterns in made.values():
        patterns.sort(key=lambda pattern: _specificity(pattern.english, by_name), reverse=True)
    return made


def _specificity(english: str, by_name: Mapping[str, Sequence[str]]) -> tuple[int, int]:
    """How much a fitting text says: its own letters, then its values of a known form."""
    names = [match[1] for match in _PLACEHOLDER.finditer(english) if match[1]]
    known = sum(name in by_name or _shape(name) is not None for name in names)
    return len(_PLACEHOLDER.sub("", english)), known


def _regex(english: str, by_name: Mapping[str, Sequence[str]], *, named: bool) -> str:
    """The regular expression of a pattern; in a `named` one each value is a group."""
    parts, end, seen = [], 0, set[str]()
    for match in _PLACEHOLDER.finditer(english):
        parts.append(re.escape(english[end : match.start()]))
        end, name = match.end(), match[1]
        if name is None:
            parts.append("%")
        elif not named:
            parts.append(_value(name, by_name))
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(name)
            parts.append(f"(?P<{name}>{_value(name, by_name)})")
    return "".join((*parts, re.escape(english[end:])))


def _shape(name: str) -> str | None:
    """Of two values of a form the second is called number2."""
    return _SHAPES.get(name.rstrip("0123456789"))


def _value(name: str, by_name: Mapping[str, Sequence[str]]) -> str:
    if (shape := _shape(name)) is not None:
        return f"(?:{shape})"
    if name in _LONG:
        return ".+?"
    if name not in by_name:
        return f".{{1,{MAX_VALUE_CHARS}}}?"
    return f"(?:{'|'.join(_regex(pattern, by_name, named=False) for pattern in by_name[name])})"
