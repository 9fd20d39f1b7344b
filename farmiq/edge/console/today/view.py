"""Pure: Today at the barn as sentences, worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from farmiq.edge.console.delivery.queries import Backlog
from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.edge.console.today.queries import Day, Silent
from farmiq.edge.sync import rules
from farmiq.ui import sentences, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

Tone = Literal["good", "warn", "bad", "info", "muted"]
LinkState = Literal["reached", "away", "refused", "never"]
MAX_REASONS = 7
MAX_NAMED = 3
_TONES: dict[str, Tone] = {"security": "bad", "critical": "bad", "warning": "warn", "info": "info"}

_ORDER = ("bad", "warn", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Whether the cloud is reached; `since` is when it last answered, None if it never did."""

    state: LinkState
    since: datetime | None
    reason: str = ""


def link(backlog: Backlog, *, now: datetime, patience_s: float) -> Link:
    """The cloud is away when nothing reached it for so long, or the last attempts failed."""
    since, code = backlog.contact_at, backlog.error_code
    if backlog.failures and code and rules.needs_operator(code):
        reason = rules.describe_error(code, backlog.error_message)
        return Link(state="refused", since=since, reason=reason)
    if since is None:
        return Link(state="never", since=None)
    if backlog.failures or now - since > timedelta(seconds=patience_s):
        return Link(state="away", since=since)
    return Link(state="reached", since=since)


def link_sentence(to_cloud: Link, backlog: Backlog, *, since: str) -> str:
    """`since` is the moment since when, in the farm's time."""
    if to_cloud.state == "never":
        return _("This edge has not reached the cloud yet. What arrives is stored here.")
    if to_cloud.state == "refused":
        return _("The cloud does not let this edge in: %(reason)s.") % {
            "reason": sentences.translated(to_cloud.reason)
        }
    values = {"since": since, "count": words.number(backlog.waiting)}
    return (_online_text if to_cloud.state == "reached" else _offline_text)(backlog) % values


def _online_text(backlog: Backlog) -> str:
    if not backlog.waiting:
        return _("The cloud is reached and has everything.")
    return ngettext(
        "The cloud is reached; %(count)s event is on its way.",
        "The cloud is reached; %(count)s events are on their way.",
        backlog.waiting,
    )


def _offline_text(backlog: Backlog) -> str:
    if not backlog.waiting:
        return _("No internet since %(since)s; nothing waits.")
    if backlog.is_capped:
        return _("No internet since %(since)s; more than %(count)s events wait here, none is lost.")
    return ngettext(
        "No internet since %(since)s; %(count)s event waits here, none is lost.",
        "No internet since %(since)s; %(count)s events wait here, none is lost.",
        backlog.waiting,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Something that needs a person. `closes`: kind and subject of an alert that may be closed.

    `count` is what its words count, `counts` the name of that figure.
    """

    tone: Tone
    word: str
    where: str
    why: str
    since: datetime | None
    href: str = ""
    action: str = ""
    closes: tuple[str, str] | None = None
    key: str = ""
    count: int | None = None
    counts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TodayView(PageView):
    sentence: str
    tone: Tone
    link: Link
    link_text: str
    reasons: Sequence[Reason]
    # Also those of alerts that are too many to list.
    reason_count: int
    backlog: Backlog
    device_count: int
    silent_count: int
    day: Day
    rejected: int
    may_enter: bool

    @property
    def shown(self) -> Sequence[Reason]:
        return self.reasons[:MAX_REASONS]

    @property
    def others(self) -> Sequence[Reason]:
        """Behind one press."""
        return self.reasons[MAX_REASONS:]

    @property
    def unlisted(self) -> int:
        return self.reason_count - len(self.reasons)


def view(
    tenant: Tenant,
    *,
    now: datetime,
    backlog: Backlog,
    alerts: Sequence[Mapping[str, Any]],
    alert_count: int,
    device_count: int,
    silent: Sequence[Silent],
    day: Day,
    rejected: int,
    patience_s: float,
) -> TodayView:
    to_cloud = link(backlog, now=now, patience_s=patience_s)
    # A key for other areas than devices sees nothing of them.
    silent = silent if tenant.reads("devices") else ()
    reasons = sorted(
        [*_of_alerts(alerts, tenant), *_others(tenant, silent, day, backlog, rejected)],
        key=lambda reason: _ORDER.index(reason.tone),
    )
    # More alerts than are listed count too.
    problems = len(reasons) + alert_count - len(alerts)
    clock = words.zone(tenant.timezone)
    since = words.instant(to_cloud.since, now=now, zone=clock) if to_cloud.since else ""
    return TodayView(
        company=tenant,
        now=now,
        title=words.title(_("Today"), problems=problems),
        page="today",
        sentence=_sentence(problems, device_count if tenant.reads("devices") else None),
        tone="warn" if problems else "good",
        link=to_cloud,
        link_text=link_sentence(to_cloud, backlog, since=since),
        reasons=reasons,
        reason_count=problems,
        backlog=backlog,
        device_count=device_count,
        silent_count=len(silent),
        day=day,
        rejected=rejected,
        may_enter=tenant.may("barn", "operator") or tenant.may("feed", "operator"),
    )


def _sentence(problems: int, devices: int | None) -> str:
    if not problems:
        if devices is None:
            return _("Nothing needs you")
        if not devices:
            return _("No device is registered yet")
        text = ngettext(
            "The only device reports and nothing needs you",
            "All %(count)s devices report and nothing needs you",
            devices,
        )
        return text % {"count": devices}
    text = ngettext("%(count)s thing needs attention", "%(count)s things need attention", problems)
    return text % {"count": problems}


def _of_alerts(alerts: Sequence[Mapping[str, Any]], tenant: Tenant) -> list[Reason]:
    severities = {
        "security": _("Security"),
        "critical": _("Critical"),
        "warning": _("Warning"),
        "info": _("Notice"),
    }
    return [
        Reason(
            tone=_TONES[alert["severity"]],
            word=severities[alert["severity"]],
            where=place(alert["subject"], tenant.tenant_id),
            why=sentences.shown(alert["message"], tenant.timezone),
            since=alert["raised_at"],
            closes=(alert["kind"], alert["subject"]) if tenant.may("alerts", "operator") else None,
            key=str(alert["alert_id"]),
        )
        for alert in alerts
    ]


def place(subject: str, tenant_id: str) -> str:
    """An alert's subject without the tenant in front: `farm/barn/device` as people say it."""
    own = subject.removeprefix(f"{tenant_id}/")
    return _("This edge") if own == tenant_id else own.replace("/", " · ")


def _others(
    tenant: Tenant, silent: Sequence[Silent], day: Day, backlog: Backlog, rejected: int
) -> list[Reason]:
    """What is not right without an alert saying so."""
    reasons = []
    if silent:
        named = ", ".join(device.device_id for device in silent[:MAX_NAMED])
        more = len(silent) - MAX_NAMED
        if more > 0:
            named = _("%(names)s and %(count)s more") % {"names": named, "count": more}
        text = ngettext(
            "%(count)s device is silent. Look at its power and its network.",
            "%(count)s devices are silent. Look at their power and their network.",
            len(silent),
        )
        reasons.append(
            Reason(
                tone="warn", word=_("Silent"), where=named, why=text % {"count": len(silent)},
                since=silent[0].last_seen_at, href="/devices", action=_("Look at the devices"),
                count=len(silent), counts="edge.devices.silent",
            )
        )  # fmt: skip
    if day.incomplete and tenant.reads("weighvision"):
        text = ngettext(
            "%(count)s weighing of today lacks a part.",
            "%(count)s weighings of today lack a part.",
            day.incomplete,
        )
        reasons.append(
            Reason(
                tone="warn", word=_("Incomplete"), where=_("Weighings"),
                why=text % {"count": day.incomplete}, since=None,
                href="/weighings?state=INCOMPLETE", action=_("Look at them"),
                count=day.incomplete, counts="edge.incomplete",
            )
        )  # fmt: skip
    if backlog.dead and tenant.reads("sync"):
        text = ngettext(
            "%(count)s event was rejected by the cloud and waits for a decision.",
            "%(count)s events were rejected by the cloud and wait for a decision.",
            backlog.dead,
        )
        reasons.append(
            Reason(
                tone="warn", word=_("Not delivered"), where=_("Delivery"),
                why=text % {"count": words.number(backlog.dead)}, since=None,
                href="/delivery/dead-letters", action=_("Look at them"),
                count=backlog.dead, counts="edge.dead_letters",
            )
        )  # fmt: skip
    if rejected and tenant.reads("quarantine"):
        text = ngettext(
            "%(count)s message could not be read and waits in quarantine.",
            "%(count)s messages could not be read and wait in quarantine.",
            rejected,
        )
        reasons.append(
            Reason(
                tone="warn", word=_("Quarantine"), where=_("Delivery"),
                why=text % {"count": words.number(rejected)}, since=None,
                href="/delivery/quarantine", action=_("Look at them"),
                count=rejected, counts="edge.quarantine",
            )
        )  # fmt: skip
    return reasons
