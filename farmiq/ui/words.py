"""Numbers, ages and times as text for people, in the language of the page.

console.js formats ages in the same way.
"""

import functools
import math
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel import dates, numbers

from farmiq.ui import i18n
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

# Of alerts, the gravest first.
SEVERITIES = {
    "security": marked("Security"),
    "critical": marked("Critical"),
    "warning": marked("Warning"),
    "info": marked("Info"),
}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_THOUSAND = 1000
_UGLY_ABOVE, _UGLY_BELOW = 1e9, 1e-3


def severity(name: str) -> str:
    """Of an alert; one of a newer version as it is."""
    return _(SEVERITIES[name]) if name in SEVERITIES else name.capitalize()


def duration(seconds: float) -> str:
    """Rounded down."""
    whole = max(0, math.floor(seconds))
    if whole < _MINUTE:
        return _("%(count)s s") % {"count": whole}
    if whole < _HOUR:
        return _("%(count)s min") % {"count": whole // _MINUTE}
    if whole < 2 * _DAY:
        return _("%(count)s h") % {"count": whole // _HOUR}
    return _("%(count)s days") % {"count": whole // _DAY}


def ago(seconds: float) -> str:
    if seconds < 1:
        return _("just now")
    if seconds >= 2 * _DAY:
        return _("%(count)s days ago") % {"count": math.floor(seconds) // _DAY}
    return _("%(time)s ago") % {"time": duration(seconds)}


def count(number_of: int, thing: str) -> str:
    return f"{number_of:,} {thing}{'' if number_of == 1 else 's'}"


def cut(text: str, max_chars: int = 60) -> str:
    """Shorten a name of a person, camera or firmware for a page."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1].rstrip()}…"


def title(page: str, *, problems: int) -> str:
    return f"({problems}) {page}" if problems else page


def number(value: float, decimals: int | None = None) -> str:
    """Rounded; with `decimals` exactly so many. The exact value is in data-value and the JSON."""
    size = abs(value)
    if not math.isfinite(value):
        return _("no number")
    if size >= _UGLY_ABOVE or 0 < size < _UGLY_BELOW:
        return localized(f"{value:.3g}")
    if decimals is not None:
        return localized(f"{round(value, decimals) + 0.0:,.{decimals}f}")
    digits = 1 if size >= _THOUSAND else 2 if size >= 1 else 3
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".")
    return localized("0" if text == "-0" else text)


def percent(share: float, decimals: int = 0) -> str:
    """Of 0.123: 12 %."""
    return f"{number(100 * share, decimals)}\u00a0%"


def localized(text: str) -> str:
    """The text of an English number with the separators of the page's language."""
    decimal, group = _separators(i18n.locale())
    return text.translate({ord("."): decimal, ord(","): group})


@functools.cache
def _separators(locale: str) -> tuple[str, str]:
    return numbers.get_decimal_symbol(locale), numbers.get_group_symbol(locale)


def day(of: date, *, today: date | None = None) -> str:
    """18 Nov; with the year unless it is that of `today`."""
    fields = "MMMd" if today is not None and of.year == today.year else "yMMMd"
    return str(dates.format_skeleton(fields, of, locale=i18n.locale()))


def weekday(of: date) -> str:
    return str(dates.format_date(of, "EEEE", locale=i18n.locale()))


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
    return f"{day(here.date(), today=today.date())} {here:%H:%M}"


def utc(at: datetime) -> str:
    """RFC 3339 with Z, as everywhere in JSON."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def local(at: datetime, zone_name: str) -> str:
    """Date and time in a zone, for tables."""
    here = at.astimezone(zone(zone_name))
    return f"{day(here.date())} {here:%H:%M}"


def _offset(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / _MINUTE)
    sign = "-" if minutes < 0 else "+"
    hours, rest = divmod(abs(minutes), _MINUTE)
    return f"UTC{sign}{hours}" + (f":{rest:02}" if rest else "")
