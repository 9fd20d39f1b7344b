"""Pure: what a metric is called and how its values are written.

A company's catalogue (`metrics`) comes first, then what is known here, then the metric's own name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from farmiq.ui import words
from farmiq.ui.i18n import gettext as _

# A metric nobody described: its line is at least this share of its values high.
_UNKNOWN_SPAN = 0.05


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A row of the company's catalogue."""

    metric_type: str
    label: str
    decimals: int
    unit: str = ""
    min_plausible: float | None = None
    max_plausible: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """`min_span`: a small line shows at least so much, so that noise looks like noise.

    Without `decimals` a value is rounded by its size. In `unit`, values from `low` to `high` are
    plausible; None is no limit.
    """

    label: str
    decimals: int | None
    min_span: float
    unit: str = ""
    low: float | None = None
    high: float | None = None

    def text(self, value: float) -> str:
        if self.decimals is None and abs(value) >= 1:
            return words.number(value, 1)
        return words.number(value, self.decimals)

    def has_implausible(self, lowest: float, highest: float, unit: str) -> bool:
        """Whether some of the values between these cannot be right."""
        return unit == self.unit and (
            (self.low is not None and lowest < self.low)
            or (self.high is not None and highest > self.high)
        )

    def span(self, values: Iterable[float]) -> float:
        if self.min_span:
            return self.min_span
        return _UNKNOWN_SPAN * max((abs(value) for value in values), default=0.0)


def _known() -> dict[str, Metric]:
    silo = Metric(_("Silo"), 0, 500)
    return {
        "temperature": Metric(_("Temperature"), 1, 4),
        "humidity": Metric(_("Humidity"), 0, 20),
        "co2": Metric(_("CO₂"), 0, 800),
        "ammonia": Metric(_("Ammonia"), 1, 10),
        "dust": Metric(_("Dust"), 0, 100),
        "light": Metric(_("Light"), 0, 20),
        "pressure": Metric(_("Pressure"), 0, 20),
        "air.speed": Metric(_("Air speed"), 1, 2),
        "ventilation": Metric(_("Ventilation"), 0, 40),
        "mains": Metric(_("Mains power"), 0, 1),
        "water.flow": Metric(_("Water flow"), 1, 5),
        "water.total": Metric(_("Water"), 0, 100),
        "feed.flow": Metric(_("Feed flow"), 1, 5),
        "silo.weight": silo,
        "silo_level": silo,
        "battery": Metric(_("Battery"), 2, 0.5),
        "battery_voltage": Metric(_("Battery"), 2, 0.5),
    }


class Catalogue:
    """The metrics of a company, for one page in one language."""

    def __init__(self, entries: Iterable[CatalogueEntry] = ()) -> None:
        self._known: Mapping[str, Metric] = _known()
        self._own = {entry.metric_type: entry for entry in entries}

    def of(self, metric_type: str) -> Metric:
        known = self._known.get(metric_type)
        entry = self._own.get(metric_type)
        if entry is not None:
            return Metric(
                entry.label,
                entry.decimals,
                known.min_span if known else 0.0,
                entry.unit,
                entry.min_plausible,
                entry.max_plausible,
            )
        return known or Metric(_own_name(metric_type), None, 0.0)


def _own_name(metric_type: str) -> str:
    text = metric_type.replace(".", " ").replace("_", " ").strip() or metric_type
    return text[:1].upper() + text[1:]


def device_label(device_id: str, barn_id: str) -> str:
    """A device's id without its barn's, under the barn's name: "barn-1-climate" is "climate"."""
    rest = device_id.removeprefix(barn_id)
    if rest != device_id and len(rest) > 1 and rest[0] in "-_.:":
        return rest[1:]
    return device_id
