"""Pure: how delivery goes, dead letters, and the quarantine with every reason."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.edge.console.delivery.queries import Backlog
from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.edge.console.today.view import Link, link, link_sentence
from farmiq.edge.sync import rules
from farmiq.ui import sentences, words
from farmiq.ui.i18n import gettext as _

# What a page shows of a message; the rest is a download away (`farmiq quarantine show`).
MAX_SHOWN_CHARS = 4000


def tabs(tenant: Tenant) -> list[tuple[str, str, str]]:
    """Those that the key may read."""
    allowed = []
    if tenant.reads("sync"):
        allowed += [
            ("outbox", _("Outbox"), "/delivery"),
            ("dead-letters", _("Dead letters"), "/delivery/dead-letters"),
        ]
    if tenant.reads("quarantine"):
        allowed.append(("quarantine", _("Quarantine"), "/delivery/quarantine"))
    if tenant.reads("losses"):
        allowed.append(("losses", _("Losses"), "/delivery/losses"))
    return allowed


def kind_word(kind: str) -> str:
    return {
        "security": _("Security"),
        "conflict": _("Conflict"),
        "format": _("Not readable"),
        "size": _("Too large"),
        "not_recorded": _("Waits for an update"),
        "database": _("Rejected by the database"),
    }[kind]


def advice(kind: str) -> str:
    """What a person does about a message of this kind."""
    return {
        "security": _(
            "Somebody speaks for somebody else, or the device is not registered there. Find out "
            "who sends it; register the device, then redrive."
        ),
        "conflict": _(
            "The device made one id twice. The first content counts; repair the device and discard "
            "this message."
        ),
        "format": _("The device sends what is not valid. Repair it, or update this edge."),
        "size": _("Only the first part is stored. Repair the device and discard this message."),
        "not_recorded": _("The message is valid. Update this edge, then redrive."),
        "database": _("The message is valid. Report it; redrive after the fix."),
    }[kind]


_TONES = {"security": "bad", "conflict": "warn", "not_recorded": "info", "database": "warn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView(PageView):
    backlog: Backlog
    link: Link
    link_text: str
    tone: str
    why: str
    paused: str
    tabs: Sequence[tuple[str, str, str]]


def delivery_view(
    tenant: Tenant, backlog: Backlog, *, now: datetime, patience_s: float
) -> DeliveryView:
    to_cloud = link(backlog, now=now, patience_s=patience_s)
    zone = words.zone(tenant.timezone)
    since = words.instant(to_cloud.since, now=now, zone=zone) if to_cloud.since else ""
    problems = int(to_cloud.state == "refused") + int(backlog.dead > 0)
    paused = backlog.paused_until
    return DeliveryView(
        company=tenant,
        now=now,
        title=words.title(_("Delivery"), problems=problems),
        page="delivery",
        backlog=backlog,
        link=to_cloud,
        link_text=link_sentence(to_cloud, backlog, since=since),
        tone={"reached": "good", "away": "info", "refused": "bad", "never": "muted"}[
            to_cloud.state
        ],
        why=(
            sentences.translated(rules.describe_error(backlog.error_code, backlog.error_message))
            if backlog.failures
            else ""
        ),
        paused=words.instant(paused, now=now, zone=zone) if paused and paused > now else "",
        tabs=tabs(tenant),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRow:
    id: UUID
    event_type: str
    device_id: str
    reason: str
    attempts: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersView(PageView):
    total: int
    by_reason: Sequence[tuple[str, str, int]]
    rows: Sequence[DeadLetterRow]
    may_act: bool
    done: str
    tabs: Sequence[tuple[str, str, str]]


def dead_letters_view(
    tenant: Tenant,
    by_reason: Sequence[tuple[str, str, int]],
    rows: Sequence[Mapping[str, Any]],
    *,
    total: int,
    now: datetime,
    done: str,
) -> DeadLettersView:
    return DeadLettersView(
        company=tenant,
        now=now,
        title=words.title(_("Dead letters"), problems=total),
        page="delivery",
        total=total,
        by_reason=by_reason,
        rows=[
            DeadLetterRow(
                id=row["id"],
                event_type=row["event_type"],
                device_id=row["device_id"] or "",
                reason=row["dlq_reason"] or row["last_error_message"] or "",
                attempts=row["attempt_count"],
                created_at=row["created_at"],
            )
            for row in rows
        ],
        may_act=tenant.may("sync", "admin"),
        done=done,
        tabs=tabs(tenant),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    id: UUID
    topic: str
    kind: str
    word: str
    tone: str
    reasons: Sequence[str]
    count: int
    last_at: datetime
    size_bytes: int
    is_cut: bool
    redriven: int
    can_redrive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineView(PageView):
    total: int
    by_reason: Sequence[Mapping[str, Any]]
    rows: Sequence[RejectedRow]
    kind: str | None
    next_href: str
    may_act: bool
    done: str
    tabs: Sequence[tuple[str, str, str]]


def rejected_row(row: Mapping[str, Any]) -> RejectedRow:
    kind = row["kind"]
    return RejectedRow(
        id=row["quarantine_id"],
        topic=row["topic"],
        kind=kind,
        word=kind_word(kind),
        tone=_TONES.get(kind, "warn"),
        reasons=row["reasons"],
        count=row["received_count"],
        last_at=row["last_received_at"],
        size_bytes=row["raw_size_bytes"],
        is_cut=row["truncated"],
        redriven=row["redriven_count"],
        can_redrive=not row["truncated"] and kind != "conflict",
    )


def quarantine_view(
    tenant: Tenant,
    rows: Sequence[Mapping[str, Any]],
    by_reason: Sequence[Mapping[str, Any]],
    *,
    max_rows: int,
    kind: str | None,
    now: datetime,
    done: str,
) -> QuarantineView:
    shown = [rejected_row(row) for row in rows[:max_rows]]
    total = sum(group["rows"] for group in by_reason)
    more = f"/delivery/quarantine?before={shown[-1].id}" if len(rows) > max_rows else ""
    return QuarantineView(
        company=tenant,
        now=now,
        title=words.title(_("Quarantine"), problems=total),
        page="delivery",
        total=total,
        by_reason=by_reason,
        rows=shown,
        kind=kind,
        next_href=f"{more}&kind={kind}" if more and kind else more,
        may_act=tenant.may("quarantine", "operator"),
        done=done,
        tabs=tabs(tenant),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesView(PageView):
    total: int
    rows: Sequence[Mapping[str, Any]]
    next_href: str
    tabs: Sequence[tuple[str, str, str]]


def losses_view(
    tenant: Tenant, rows: Sequence[Mapping[str, Any]], *, total: int, max_rows: int, now: datetime
) -> LossesView:
    """`rows`: one more than a page has, if there is a next page."""
    shown = rows[:max_rows]
    return LossesView(
        company=tenant,
        now=now,
        title=_("Losses"),
        page="delivery",
        total=total,
        rows=shown,
        next_href=(
            f"/delivery/losses?before={shown[-1]['loss_id']}" if len(rows) > max_rows else ""
        ),
        tabs=tabs(tenant),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedView(PageView):
    row: RejectedRow
    advice: str
    content: str
    is_shortened: bool
    may_act: bool
    done: str


def rejected_view(
    tenant: Tenant, row: Mapping[str, Any], *, now: datetime, done: str
) -> RejectedView:
    content = readable(bytes(row["raw"]))
    shown = rejected_row(row)
    return RejectedView(
        company=tenant,
        now=now,
        title=_("Message in quarantine"),
        page="delivery",
        row=shown,
        advice=advice(shown.kind),
        content=content[:MAX_SHOWN_CHARS],
        is_shortened=len(content) > MAX_SHOWN_CHARS,
        may_act=tenant.may("quarantine", "operator"),
        done=done,
    )


def readable(raw: bytes) -> str:
    """The bytes of a message as text: JSON with indents, other text as it is, else as hex."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw[:MAX_SHOWN_CHARS].hex(" ")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def outcome(result: Mapping[str, Any], *, discarded: bool) -> str:
    """What became of the chosen messages, for the page after the redirect: `1-0-0`."""
    if discarded:
        return f"discarded-{result['gone']}"
    return f"redriven-{result['accepted']}-{result['refused']}-{result['gone']}"


def outcome_text(code: str) -> str:
    """The sentence of an outcome of the address; empty for what is none of ours."""
    word, *numbers = code.split("-")
    if not all(number.isascii() and number.isdigit() and len(number) < 8 for number in numbers):  # noqa: PLR2004
        return ""
    counts = [int(number) for number in numbers]
    match word, counts:
        case "discarded", [count]:
            text = _("%(count)s discarded and noted in the loss ledger.")
            return text % {"count": words.number(count)}
        case "redriven", [accepted, refused, gone]:
            text = _("%(accepted)s accepted, %(refused)s rejected again, %(gone)s gone meanwhile.")
            return text % {
                "accepted": words.number(accepted),
                "refused": words.number(refused),
                "gone": words.number(gone),
            }
        case "moved", [count]:
            return _("%(count)s wait for the cloud again.") % {"count": words.number(count)}
    return ""
