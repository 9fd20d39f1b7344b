"""Pure: batches as people read them: figures in words, what is wrong, the list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

# As the alert rules that ship: a tenth behind is about three days of growth of a broiler.
BEHIND_PCT = -10.0
# Less than this is as the standard says.
SAME_PCT = 1.0
# Half as many dead again as the breed loses by this age.
MORTALITY_FACTOR = 1.5
# Weights and records of older days are shown with their age.
FRESH_DAYS = 1
CLOSED_PER_PAGE = 20
MAX_RUNNING = 200

# Decimals of each figure; None: by the size of the value.
_DECIMALS: Mapping[str, int | None] = {
    "head_count": 0,
    "weight_cv": 1,
    "weight_uniformity": 0,
    "adg": 0,
    "adg_7d": 0,
    "adg_30d": 0,
    "fcr": 2,
    "intake_kg": 0,
    "intake_per_head": 0,
    "water_to_feed": 2,
    "mortality_day_pct": 2,
    "mortality_pct": 2,
    "epef": 0,
    "thi_hours": 0,
    "vision_residual": 1,
    "data_coverage": 0,
}
# In the order of the page.
LABELS: Mapping[str, str] = {
    "head_count": marked("Animals"),
    "weight_mean": marked("Mean weight"),
    "weight_median": marked("Median weight"),
    "weight_p10": marked("Lightest tenth below"),
    "weight_p90": marked("Heaviest tenth above"),
    "weight_uniformity": marked("Uniformity"),
    "weight_cv": marked("Variation (CV)"),
    "adg": marked("Daily gain since placing"),
    "adg_7d": marked("Daily gain of a week"),
    "adg_30d": marked("Daily gain of a month"),
    "fcr": marked("Feed conversion"),
    "intake_kg": marked("Feed of the day"),
    "intake_per_head": marked("Feed per head"),
    "water_per_head": marked("Water per head"),
    "water_to_feed": marked("Water to feed"),
    "mortality_day_pct": marked("Mortality of the day"),
    "mortality_pct": marked("Mortality since placing"),
    "epef": marked("Production efficiency (EPEF)"),
    "thi_hours": marked("Hours of heat stress"),
    "vision_residual": marked("Estimates by camera against the scale"),
    "data_coverage": marked("Hours with readings"),
}
_UNITS: Mapping[str, str] = {
    "head": "",
    "1": "",
    "kg/kg": "",
    "g/d": marked("g/day"),
    "g/head": "g",
    "l/head": "l",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a batch on a date, with what its breed's standard expects."""

    batch_id: str
    kpi_type: str
    kpi_date: date
    value: float
    unit: str
    source_event_count: int
    expected_value: float | None = None
    difference: float | None = None

    @property
    def key(self) -> str:
        return f"{self.batch_id}|{self.kpi_date}"

    @property
    def name(self) -> str:
        return f"batch.{self.kpi_type}"

    @property
    def label(self) -> str:
        return _(LABELS[self.kpi_type])

    @property
    def text(self) -> str:
        return amount(self.kpi_type, self.value)

    @property
    def unit_text(self) -> str:
        return unit(self.unit)

    @property
    def expected_text(self) -> str:
        return "" if self.expected_value is None else amount(self.kpi_type, self.expected_value)

    @property
    def difference_pct(self) -> float | None:
        if self.difference is None or not self.expected_value:
            return None
        return 100 * self.difference / self.expected_value

    @property
    def difference_text(self) -> str:
        """Without a sign: the words around it say where it lies."""
        percent = self.difference_pct
        return "" if percent is None else percent_text(abs(percent))

    @property
    def against(self) -> str:
        """below, above or on the standard; nothing without one."""
        percent = self.difference_pct
        if percent is None:
            return ""
        return "on" if abs(percent) < SAME_PCT else "below" if percent < 0 else "above"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """When a batch reaches its target, or why nobody can say; `path`: (date, kg, low, high)."""

    target_kg: float | None = None
    reached_on: date | None = None
    earliest_on: date | None = None
    latest_on: date | None = None
    reason: str | None = None
    path: Sequence[tuple[date, float, float, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch with its animals of today and its latest figures by type."""

    batch_id: str
    farm_id: str
    farm_name: str
    barn_id: str
    barn_name: str
    timezone: str
    species: str
    breed: str | None
    sex: str
    placed_count: int
    placed_on: date
    closed_on: date | None
    target_weight_kg: float | None
    target_on: date | None
    today: date
    # Since they were placed, if the age is not known.
    age_days: int
    is_age_known: bool
    head_count: float
    dead: float
    culled: float
    weighed_count: int
    outlier_count: int
    safe_to_sell_from: date | None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    open_alerts: int = 0
    outlook: Outlook = field(default_factory=Outlook)

    @classmethod
    def of(cls, row: Mapping[str, Any], **more: Any) -> "Batch":
        """From a summary, whose figures are rows."""
        figures = {
            figure["kpi_type"]: Figure(batch_id=row["batch_id"], **figure)
            for figure in row["figures"]
        }
        return cls(**{**row, **more, "figures": figures})

    def age_on(self, on: date) -> int:
        last = min(self.today, self.closed_on or self.today)
        return self.age_days + (on - last).days

    @property
    def href(self) -> str:
        return address(self.batch_id)

    @property
    def status(self) -> str:
        if self.placed_on > self.today:
            return "planned"
        return "closed" if self.closed_on and self.closed_on < self.today else "running"

    @property
    def weight(self) -> Figure | None:
        return self.figures.get("weight_mean")

    @property
    def weight_age_days(self) -> int:
        """How many days ago the newest mean weight is from; of a closed batch, before its end."""
        if self.weight is None:
            return 0
        return (min(self.today, self.closed_on or self.today) - self.weight.kpi_date).days

    @property
    def weight_is_old(self) -> bool:
        return self.weight_age_days > FRESH_DAYS

    @property
    def standard_name(self) -> str:
        return _("the standard (%(breed)s)") % {"breed": words.cut(self.breed or self.species, 40)}

    @property
    def days_to_target(self) -> int | None:
        reached_on = self.outlook.reached_on
        return max(0, (reached_on - self.today).days) if reached_on else None

    @property
    def is_in_withdrawal(self) -> bool:
        return self.safe_to_sell_from is not None and self.safe_to_sell_from > self.today

    @property
    def is_behind(self) -> bool:
        percent = self.weight.difference_pct if self.weight else None
        return percent is not None and percent <= BEHIND_PCT

    @property
    def has_high_mortality(self) -> bool:
        """More dead than the breed loses by this age, by half."""
        mortality = self.figures.get("mortality_pct")
        if mortality is None or mortality.expected_value is None:
            return False
        return mortality.value > MORTALITY_FACTOR * mortality.expected_value > 0

    @property
    def problems(self) -> list[str]:
        """The names of what is wrong, worst first; withdrawal is no fault, but must be seen."""
        if self.status != "running":
            return ["withdrawal"] if self.is_in_withdrawal else []
        is_wrong = {
            "withdrawal": self.is_in_withdrawal,
            "mortality": self.has_high_mortality,
            "behind": self.is_behind,
            "alerts": self.open_alerts > 0,
        }
        return [name for name, is_so in is_wrong.items() if is_so]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The page of all batches: running ones with problems first."""

    company: Company
    now: datetime
    zone: str
    zone_key: str
    running: Sequence[Batch]
    planned: Sequence[Batch]
    closed: Sequence[Batch]
    closed_count: int
    page_number: int
    has_barns: bool
    page: str = "batches"

    @property
    def fragment(self) -> str:
        number = self.page_number
        return f"/batches/rows?page={number}" if number > 1 else "/batches/rows"

    @property
    def problems(self) -> int:
        return sum(bool(batch.problems) for batch in self.running)

    @property
    def title(self) -> str:
        return words.title(_("Batches"), problems=self.problems)

    @property
    def is_empty(self) -> bool:
        return not (self.running or self.planned or self.closed_count)

    @property
    def older(self) -> str:
        shown = self.page_number * CLOSED_PER_PAGE
        return f"/batches?page={self.page_number + 1}" if shown < self.closed_count else ""


def view(
    company: Company,
    batches: Sequence[Batch],
    *,
    closed_count: int,
    page_number: int,
    has_barns: bool,
    now: datetime,
) -> View:
    by_status: dict[str, list[Batch]] = {"running": [], "planned": [], "closed": []}
    for batch in batches:
        by_status[batch.status].append(batch)
    return View(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(company.timezone), now),
        zone_key=company.timezone,
        running=sorted(by_status["running"], key=_urgency),
        planned=sorted(by_status["planned"], key=lambda batch: batch.placed_on),
        closed=sorted(
            by_status["closed"], key=lambda batch: (batch.placed_on, batch.batch_id), reverse=True
        ),
        closed_count=closed_count,
        page_number=page_number,
        has_barns=has_barns,
    )


def _urgency(batch: Batch) -> tuple[object, ...]:
    order = ("mortality", "behind", "alerts", "withdrawal")
    worst = min((order.index(problem) for problem in batch.problems), default=len(order))
    return worst, batch.farm_name, batch.barn_name, batch.batch_id


def address(batch_id: str) -> str:
    return f"/batches/{quote(batch_id, safe='')}"


def amount(kpi_type: str, value: float) -> str:
    """A value with the decimals of its kind."""
    decimals = _DECIMALS.get(kpi_type)
    return words.number(value, _by_size(value) if decimals is None else decimals)


def kilograms(value: float) -> str:
    return words.number(value, _by_size(value))


def percent_text(value: float) -> str:
    return words.number(value, 0 if value >= 1 else 1)


def unit(name: str) -> str:
    text = _UNITS.get(name, name)
    return _(text) if text else ""


def _by_size(value: float) -> int:
    """Weights and litres: 0.042, 2.31, 23.1, 231.4."""
    size = abs(value)
    if size < 1:
        return 3
    return 2 if size < 10 else 1  # noqa: PLR2004 - as above
