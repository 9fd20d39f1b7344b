"""Pure: numbers, ages and times as text for people. console.js formats ages in the same way."""

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_THOUSAND = 1000
_UGLY_ABOVE, _UGLY_BELOW = 1e9, 1e-3


def duration(seconds: float) -> str:
    """Rounded down."""
    whole = max(0, math.floor(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h"
    return f"{whole // _DAY} days"


def ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def count(number_of: int, thing: str) -> str:
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"


def cut(text: str, max_chars: int = 60) -> str:
    """Shorten a name of a person, camera or firmware for a page."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1].rstrip()}…"


def title(page: str, *, problems: int) -> str:
    return f"({problems}) {page}" if problems else page


def number(value: float) -> str:
    """Rounded; the exact value is in the title and in the JSON."""
    size = abs(value)
    if not math.isfinite(value):
        return "no number"
    if size >= _UGLY_ABOVE or 0 < size < _UGLY_BELOW:
        return f"{value:.3g}"
    digits = 1 if size >= _THOUSAND else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def zone(name: str) -> ZoneInfo:
    """A company's time zone; UTC if this machine does not know it, which the page shows."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def zone_name(where: ZoneInfo, now: datetime) -> str:
    offset = now.astimezone(where).utcoffset() or timedelta(0)
    name = where.key.replace("_", " ")
    return name if name == "UTC" else f"{name} ({_offset(offset)})"


def instant(at: datetime, *, now: datetime, zone: ZoneInfo) -> str:
    """Today only the time; another day with its date; another year with the year."""
    here, today = at.astimezone(zone), now.astimezone(zone)
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    if here.year == today.year:
        return f"{here.day} {here:%b %H:%M}"
    return f"{here.day} {here:%b %Y %H:%M}"


def _offset(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / _MINUTE)
    sign = "-" if minutes < 0 else "+"
    hours, rest = divmod(abs(minutes), _MINUTE)
    return f"UTC{sign}{hours}" + (f":{rest:02}" if rest else "")
