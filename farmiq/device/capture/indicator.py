"""Pure: the lines of a weighing indicator, as weights in kilograms.

bytes from the cable → frames → a `Reading`, or `Malformed` with the reason. Nothing here raises on
what comes over a cable: noise, parts of lines and other protocols are counted.

Formats, as the indicators' manuals name them (docs/operate/hardware.md has sample lines):
`toledo` (continuous output: STX, three status bytes, six digits of weight, six of tare), `and`
(A&D and the many that copy it: ST,GS,+0012.34kg), `ohaus` (12.34 kg ? NET: weight, unit, `?` while
it moves; a bare number too), `rinstrum` (STX sign weight status ETX), `regex` (yours).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

KG_OF = {
    "kg": 1.0,
    "k": 1.0,
    "g": 0.001,
    "lb": 0.45359237,
    "lbs": 0.45359237,
    "l": 0.45359237,
    "t": 1000.0,
}
Unit = Literal["kg", "g", "lb", "t"]
# No indicator sends a longer line: more without an end is noise.
MAX_FRAME = 128
_STX, _ENDS = 0x02, b"\r\n\x03"
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """`weight_kg` is None when the indicator shows none (overload, error).

    `stable` is None if the indicator's format does not have it.
    """

    weight_kg: float | None
    stable: bool | None = None
    overload: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    reason: str


Parse = Callable[[bytes], Reading | Malformed]


class BadPatternError(ValueError):
    """The settings' regular expression cannot be one, or has no group `weight`."""


@dataclass
class Frames:
    """Cuts a stream into frames at CR, LF or ETX; what stands before an STX is not part of one.

    Never holds more than MAX_FRAME bytes; `dropped` counts the bytes of frames that were
    longer.
    """

    dropped: int = 0
    _rest: bytes = b""
    _skipping: bool = False

    def feed(self, data: bytes) -> list[bytes]:
        frames = []
        begin = 0
        for match in _ANY_END.finditer(data):
            self._append(data[begin : match.start()])
            begin = match.end()
            if not self._skipping and self._rest:
                frames.append(self._rest.rpartition(b"\x02")[2])
            self._rest, self._skipping = b"", False
        self._append(data[begin:])
        return [frame for frame in frames if frame.strip()]

    def _append(self, part: bytes) -> None:
        if self._skipping:
            self.dropped += len(part)
        elif len(self._rest) + len(part) > MAX_FRAME:
            self.dropped += len(self._rest) + len(part)
            self._rest, self._skipping = b"", True
        else:
            self._rest += part


_ANY_END = re.compile(b"[" + re.escape(_ENDS) + b"]")


def parser(name: str, *, unit: Unit = "kg", pattern: str | None = None) -> Parse:
    """The parser of a format; `unit` counts where a line names none.

    Raises BadPatternError, and KeyError for a format that nobody knows.
    """
    if name == "toledo":
        return _toledo
    patterns = (_compiled(pattern),) if name == "regex" else _PATTERNS[name]

    def parse(frame: bytes) -> Reading | Malformed:
        readings = [_read(frame, pattern, unit) for pattern in patterns]
        return next((item for item in readings if isinstance(item, Reading)), readings[0])

    return parse


FORMATS = ("toledo", "and", "ohaus", "rinstrum", "regex")

# Position of the decimal point in six digits, by the low bits of Toledo's first status byte.
_TOLEDO_FACTOR = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001)
_TOLEDO_UNIT = {1: "g", 2: "t"}
_TOLEDO_LENGTH = 9


def _toledo(frame: bytes) -> Reading | Malformed:
    """Parity may be left in the eighth bit; tare and checksum are not needed."""
    seven = bytes(byte & 0x7F for byte in frame)
    if len(seven) < _TOLEDO_LENGTH:
        return Malformed("too short for three status bytes and six digits")
    a, b, c = seven[:3]
    if not (a & b & c & 0x20):
        return Malformed("not status bytes: each has bit 5")
    digits = seven[3:9].decode("ascii").strip()
    if b & 0x04:
        return Reading(None, stable=False, overload=True)
    if not digits.isdigit():
        return Malformed(f"not six digits: {digits!r}")
    name = _TOLEDO_UNIT.get(c & 0x07, "kg" if b & 0x10 else "lb") if c & 0x07 <= 2 else None  # noqa: PLR2004
    if name is None:
        return Malformed("a unit that is no kg, g, lb or t")
    sign = -1.0 if b & 0x02 else 1.0
    return _kg(sign * int(digits) * _TOLEDO_FACTOR[a & 0x07], name, stable=not b & 0x08)


# Lines as patterns, with the groups that a pattern of the settings may have too, and some more:
# see `_read`.
#
# ST,GS,+0012.34kg · ST,+00123.45  g · OL,GS,+9999.99kg · US,NT,-   0.5,kg · STGR  12.34kg
_AND = re.compile(
    r"(?:(?P<stable>ST)|US|(?P<overload>OL)|(?P<is_pieces>QT))[ ,]?"
    r"(?:GS|GR|NT|(?P<is_tare>TR)|G|N)?[ ,]*"
    r"(?P<sign>[+-]?)[ ]*(?P<weight>\d*\.?\d*)[ ,]*(?P<unit>[a-zA-Z%]*)[ ]*"
)
#   12.34 kg · -  0.5 lb ?  NET · 00012.5 · ? 12.3 kg
_OHAUS = re.compile(
    r"[ ]*(?:(?P<overload>-{3,}|\^{3,}|_{3,}|O\.?L\.?|OVER(?:LOAD)?|Err(?:or)?\.?[ ]*8\.3)|"
    r"(?P<is_moving>\?)?[ ]*(?P<sign>[+-]?)[ ]*(?P<weight>\d*\.?\d*)[ ]*(?P<unit>[a-zA-Z%]*)"
    r"[ ]*(?P<unstable>\?)?[ ]*(?:G|B|N|(?P<is_tare>T|TARE|PT)|NET|GROSS)?)[ ]*"
)
# One status letter; or four, and a unit that is blank while it moves.
_RINSTRUM = re.compile(
    r"(?P<sign>[ +-])(?P<weight>[ ]*\d*\.?\d*)[ ]*"
    r"(?:[GN]|(?P<unstable>M)|(?P<overload>O)|(?P<is_blank>[UE]))"
    r"(?:(?:(?P<is_moving>M)|[ ])[Z ][-12 ][ ]*(?P<unit>[a-zA-Z]*)[ ]*)?[ ]*"
)
# Some formats of Rinstrum are those of A&D without the commas.
_PATTERNS = {"and": (_AND,), "ohaus": (_OHAUS,), "rinstrum": (_RINSTRUM, _AND)}


def _read(frame: bytes, pattern: re.Pattern[str], unit: Unit) -> Reading | Malformed:
    """Groups: weight (needed), sign, unit; not empty: stable, unstable, overload.

    In our own patterns also: is_moving, is_blank (it shows no weight), is_pieces, is_tare.
    """
    match = _matched(pattern, frame)
    if isinstance(match, Malformed):
        return match
    fields = match.groupdict()
    if fields.get("overload") or fields.get("is_blank"):
        return Reading(None, stable=False, overload=bool(fields.get("overload")))
    if fields.get("is_pieces"):
        return Malformed("pieces, not a weight")
    if fields.get("is_tare"):
        return Malformed("the tare, not a weight")
    weight = (fields["weight"] or "").strip()
    sign, digits = (weight[:1], weight[1:]) if weight[:1] in {"+", "-"} else ("", weight)
    return _number(
        (fields.get("sign") or sign).strip(),
        digits.strip().replace(",", "."),
        (fields.get("unit") or unit).strip(),
        _is_stable(fields),
    )


def _is_stable(fields: dict[str, str | None]) -> bool | None:
    if fields.get("unstable") or fields.get("is_moving"):
        return False
    if "stable" in fields:
        return bool(fields["stable"])
    return True if "unstable" in fields else None


def _compiled(pattern: str | None) -> re.Pattern[str]:
    try:
        made = re.compile(pattern or "")
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPatternError(f"is no regular expression: {error}") from None
    if "weight" not in made.groupindex:
        raise BadPatternError("has no group (?P<weight>…)")
    return made


def _matched(pattern: re.Pattern[str], frame: bytes) -> re.Match[str] | Malformed:
    try:
        text = frame.decode("ascii")
    except UnicodeDecodeError:
        return Malformed("bytes that are no ASCII: wrong speed, parity or data bits?")
    match = pattern.fullmatch(text)
    return match or Malformed("a line of another format")


def _number(sign: str, digits: str, unit: str, stable: bool | None) -> Reading | Malformed:  # noqa: FBT001
    try:
        value = float(digits)
    except ValueError:
        return Malformed(f"no number: {digits!r}")
    return _kg(-value if sign == "-" else value, unit, stable=stable)


def _kg(value: float, unit: str, *, stable: bool | None) -> Reading | Malformed:
    factor = KG_OF.get(unit.lower())
    if factor is None:
        return Malformed(f"a unit that is no kg, g, lb or t: {unit!r}")
    if not math.isfinite(value):
        return Malformed("not a finite number")
    return Reading(round(value * factor, _DECIMALS), stable=stable)
