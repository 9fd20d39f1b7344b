"""Pure: the page of reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.reports import periods, wording
from farmiq.cloud.reports.periods import Period
from farmiq.cloud.reports.queries import Batch, Farm
from farmiq.cloud.reports.store import SentReport, Subscription
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

WEEKS, MONTHS = 12, 6
_STATES = {
    "sent": ("good", marked("Sent")),
    "pending": ("info", marked("On its way")),
    "failed": ("bad", marked("Not sent")),
    "dropped": ("muted", marked("Dropped")),
}
DONE = {
    "subscribed": marked("Saved. The first report comes when the week or month is over."),
    "unsubscribed": marked("Removed. No more reports go there."),
}


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    subscription: Subscription
    is_mine: bool

    @property
    def what(self) -> str:
        named = self.subscription
        if named.batch_id is None:
            return named.farm
        return _("%(farm)s, batch %(batch)s") % {"farm": named.farm, "batch": named.batch_id}

    @property
    def how_often(self) -> str:
        if self.subscription.period == "week":
            return _("every Monday at 06:00")
        return _("on the first of the month at 06:00")


@dataclass(frozen=True, slots=True)
class SentRow:
    report: SentReport
    farm: str

    @property
    def what(self) -> str:
        if self.report.batch_id is None:
            return self.farm
        return _("%(farm)s, batch %(batch)s") % {
            "farm": self.farm,
            "batch": self.report.batch_id,
        }

    @property
    def period(self) -> str:
        return wording.span(periods.containing(self.report.period, self.report.first_day))

    @property
    def tone(self) -> str:
        return _STATES.get(self.report.state or "", ("muted", ""))[0]

    @property
    def word(self) -> str:
        return _(_STATES[self.report.state][1]) if self.report.state in _STATES else _("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    farms: Sequence[Farm]
    batches: Sequence[Batch]
    subscriptions: Sequence[SubscriptionRow]
    sent: Sequence[SentRow]
    # What the form holds.
    given: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    done: str = ""
    page: str = "reports"

    @property
    def title(self) -> str:
        failed = sum(row.report.state == "failed" for row in self.sent)
        return words.title(_("Reports"), problems=failed)

    @property
    def where(self) -> ZoneInfo:
        return words.zone(self.company.timezone)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def headline(self) -> str:
        if not self.farms:
            return _("There is no farm to report on yet")
        return _("Weekly and monthly reports")

    @property
    def subjects(self) -> list[tuple[str, str]]:
        farms = [(f"farm:{farm.farm_id}", words.cut(farm.name)) for farm in self.farms]
        batches = [
            (
                f"batch:{batch.batch_id}",
                _("%(barn)s, batch %(batch)s (%(farm)s)")
                % {
                    "barn": words.cut(batch.barn, 40),
                    "batch": batch.batch_id,
                    "farm": words.cut(batch.farm, 40),
                },
            )
            for batch in self.batches
        ]
        return farms + batches

    @property
    def periods(self) -> list[tuple[str, str]]:
        """The last weeks and months, and those that are not over yet."""
        today = self.now.astimezone(self.where).date()
        shown: list[tuple[str, str]] = []
        for kind, count in (("week", WEEKS), ("month", MONTHS)):
            period = periods.containing(kind, today)  # type: ignore[arg-type]
            for place in range(count):
                label = self._label(period)
                if place == 0:
                    label = _("%(period)s (not over yet)") % {"period": label}
                shown.append((period.name, label))
                period = period.before()
        return shown

    def _label(self, period: Period) -> str:
        if period.kind == "week":
            return _("week %(span)s") % {"span": wording.span(period)}
        return _("month %(span)s") % {"span": wording.span(period)}

    @property
    def chosen_period(self) -> str:
        """The last week that is over, unless another one was chosen."""
        today = self.now.astimezone(self.where).date()
        return self.given.get("period") or periods.containing("week", today).before().name

    @property
    def done_text(self) -> str:
        return _(DONE[self.done]) if self.done in DONE else ""

    def error(self, name: str) -> str:
        return self.errors.get(name, "")

    def value(self, name: str, otherwise: str = "") -> str:
        return self.given.get(name, otherwise)

    def when(self, at: datetime) -> str:
        return words.instant(at, now=self.now, zone=self.where)
