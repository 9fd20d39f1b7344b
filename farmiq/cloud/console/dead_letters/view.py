"""Pure: dead letters by reason, an order about them as a form gives it, and what became of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import bus
from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

QUEUES = frozenset(work.dead_letters for work in bus.WORKS)
# Letters whose reasons are too many to be told apart cannot be chosen by reason.
OTHER_REASONS = "other reasons"
MAX_CHOSEN = 20
MAX_REASON_CHARS = 200
MAX_NOTE_CHARS = 500
MAX_LETTERS = 100_000
DEFAULT_LETTERS = 1000
RATES_PER_S = (1, 10, 50, 200)
DEFAULT_RATE_PER_S = 50
# Nobody has begun with an order for so long: the service that does it is not there.
UNTOUCHED_AFTER = timedelta(seconds=30)
_ID = re.compile(r"[!-~]{1,200}")

Action = Literal["redrive", "discard"]
State = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """One of the first letters of a group, with the beginning of its bytes."""

    event_id: str | None
    event_type: str | None
    failed_at: str | None
    attempts: int
    size_bytes: int
    reason: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Letters of one queue that died of the same reason."""

    queue: str
    reason: str
    is_of_no_company: bool
    count: int
    oldest_at: datetime | None
    newest_at: datetime | None
    event_types: Sequence[str]
    letters: Sequence[ShownLetter]
    is_whole: bool
    looked_at: datetime

    @property
    def service(self) -> str:
        """Who did not take them."""
        return self.queue.split(".")[1] if self.queue.count(".") else self.queue

    @property
    def key(self) -> str:
        return f"{self.queue}|{self.reason}|{'none' if self.is_of_no_company else 'own'}"

    @property
    def can_be_ordered(self) -> bool:
        return not self.is_of_no_company and self.queue in QUEUES and self.reason != OTHER_REASONS

    @property
    def command(self) -> str:
        """For operators of the cloud."""
        return f"farmiq dlq redrive --queue {self.queue}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one letter: as the order wrote it, and where its event is now."""

    event_id: str | None
    event_type: str | None
    outcome: str
    why: str
    stored_at: datetime | None = None
    died_again: str = ""

    @property
    def tone(self) -> str:
        if self.why or self.died_again:
            return "bad"
        if self.stored_at:
            return "good"
        return "info"

    @property
    def word(self) -> str:
        if self.died_again:
            return _("died again")
        if self.stored_at:
            return _("stored")
        return {
            "redriven": _("sent again"),
            "discarded": _("discarded"),
            "failed": _("failed"),
            "would redrive": _("would be sent again"),
            "would discard": _("would be discarded"),
        }.get(self.outcome, self.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    order_id: UUID
    action: Action
    dry_run: bool
    queue: str
    reason: str | None
    event_ids: Sequence[str]
    note: str
    max_letters: int
    rate_per_s: float
    ordered_by: str
    ordered_at: datetime
    state: State
    ended_at: datetime | None
    done: int
    failed: int
    error: str | None

    @property
    def service(self) -> str:
        return self.queue.split(".")[1] if self.queue.count(".") else self.queue

    @property
    def what(self) -> str:
        if self.dry_run:
            return _("Try a redrive") if self.action == "redrive" else _("Try a discard")
        return _("Redrive") if self.action == "redrive" else _("Discard")

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")

    @property
    def tone(self) -> str:
        if self.state == "failed" or self.failed:
            return "bad"
        return "info" if self.is_open else "good"

    @property
    def word(self) -> str:
        return {
            "queued": _("waits"),
            "running": _("runs"),
            "done": _("done with failures") if self.failed else _("done"),
            "failed": _("stopped"),
        }[self.state]

    @property
    def summary(self) -> str:
        """What came of it, in one sentence."""
        if self.state == "queued":
            return _("Nothing has happened yet.")
        if self.dry_run:
            text = ngettext(
                "%(count)s letter would be moved; nothing happened to it.",
                "%(count)s letters would be moved; nothing happened to them.",
                self.done,
            )
        elif self.action == "redrive":
            text = ngettext(
                "%(count)s letter was sent again.", "%(count)s letters were sent again.", self.done
            )
        else:
            text = ngettext(
                "%(count)s letter was discarded; the audit log has its bytes.",
                "%(count)s letters were discarded; the audit log has their bytes.",
                self.done,
            )
        return text % {"count": words.number(self.done)}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`given` and `errors` are of a form that was not accepted."""

    company: Company
    groups: Sequence[Group]
    orders: Sequence[Order]
    now: datetime
    where: ZoneInfo
    given: Mapping[str, str]
    errors: Mapping[str, str]
    page: str = "delivery"

    @property
    def total(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def title(self) -> str:
        return words.title(_("Dead letters"), problems=self.total)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def sentence(self) -> str:
        if not self.groups:
            return _("No dead letter waits.")
        text = ngettext(
            "%(count)s dead letter waits for a decision.",
            "%(count)s dead letters wait for a decision.",
            self.total,
        )
        return text % {"count": words.number(self.total)}

    @property
    def looked_at(self) -> datetime | None:
        return min((group.looked_at for group in self.groups), default=None)

    @property
    def may_act(self) -> bool:
        return self.company.may("admin")

    @property
    def rates(self) -> list[tuple[str, str]]:
        return [(str(rate), _("%(count)s a second") % {"count": rate}) for rate in RATES_PER_S]

    def error(self, group: Group, name: str) -> str:
        """Of the form of this group."""
        return self.errors.get(name, "") if self.given.get("group") == group.key else ""

    def value(self, group: Group, name: str, otherwise: str = "") -> str:
        is_this = self.given.get("group") == group.key
        return self.given.get(name, otherwise) if is_this else otherwise

    def is_open(self, group: Group) -> bool:
        return len(self.groups) == 1 or self.given.get("group") == group.key


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderView:
    company: Company
    order: Order
    outcomes: Sequence[Outcome]
    now: datetime
    where: ZoneInfo
    page: str = "delivery"

    @property
    def title(self) -> str:
        return words.title(self.order.what, problems=self.order.failed)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def is_untouched(self) -> bool:
        waited = self.now - self.order.ordered_at
        return self.order.state == "queued" and waited > UNTOUCHED_AFTER

    @property
    def not_shown(self) -> int:
        return max(0, self.order.done + self.order.failed - len(self.outcomes))

    @property
    def may_act(self) -> bool:
        return self.company.may("admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOrder:
    """An order as a person gave it, checked."""

    action: Action
    dry_run: bool
    queue: str
    reason: str
    event_ids: tuple[str, ...]
    note: str
    max_letters: int
    rate_per_s: float


def read_order(form: Mapping[str, str]) -> tuple[NewOrder | None, dict[str, str]]:
    """The order of a form, or what is wrong with it by the name of the field."""
    action, queue, reason = (form.get(name, "") for name in ("action", "queue", "reason"))
    event_ids, note = _chosen(form), form.get("note", "").strip()
    max_letters = _whole(form.get("max_letters", str(DEFAULT_LETTERS)))
    rate_per_s = _whole(form.get("rate_per_s", str(DEFAULT_RATE_PER_S)))
    errors = {
        "action": _wrong_letters(action, queue, reason),
        "which": _wrong_selection(form, event_ids),
        "note": _wrong_note(action, note),
    }
    if max_letters is None or not 1 <= max_letters <= MAX_LETTERS:
        maximum = words.number(MAX_LETTERS)
        errors["max_letters"] = _("A whole number from 1 to %(most)s.") % {"most": maximum}
    if rate_per_s not in RATES_PER_S:
        errors["rate_per_s"] = _("Choose one of the rates.")
    errors = {name: text for name, text in errors.items() if text}
    if errors or max_letters is None or rate_per_s is None:
        return None, errors
    return NewOrder(
        action="discard" if action == "discard" else "redrive",
        dry_run=action == "try",
        queue=queue,
        reason=reason,
        event_ids=event_ids,
        note=note,
        max_letters=max_letters,
        rate_per_s=rate_per_s,
    ), {}


def _chosen(form: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of marked letters, if only those are meant."""
    if form.get("which") != "some":
        return ()
    return tuple(text for name, text in sorted(form.items()) if name.startswith("letter_") and text)


def _wrong_letters(action: str, queue: str, reason: str) -> str:
    if queue not in QUEUES or not 0 < len(reason) <= MAX_REASON_CHARS or "\0" in reason:
        return _("These letters are not known: load the page again.")
    known = action in ("try", "redrive", "discard")
    return "" if known else _("Choose what to do with the letters.")


def _wrong_selection(form: Mapping[str, str], event_ids: Sequence[str]) -> str:
    if form.get("which") == "some" and not event_ids:
        return _("Mark at least one letter, or choose all with this reason.")
    known = len(event_ids) <= MAX_CHOSEN and all(map(_ID.fullmatch, event_ids))
    return "" if known else _("These letters are not known: load the page again.")


def _wrong_note(action: str, note: str) -> str:
    if len(note) > MAX_NOTE_CHARS or "\0" in note:
        return _("At most %(most)s characters.") % {"most": MAX_NOTE_CHARS}
    if action == "discard" and not note:
        return _("Say why they may be discarded: the audit log keeps it.")
    return ""


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text.strip(), re.ASCII) else None


def outcomes(
    written: Sequence[Mapping[str, Any]],
    *,
    stored: Mapping[str, datetime],
    dead: Mapping[str, str],
) -> list[Outcome]:
    """What an order wrote about each letter; an event that it sent again may be stored by now."""
    shown = []
    for entry in written:
        event_id = entry.get("event_id")
        is_sent = entry.get("outcome") == "redriven"
        shown.append(
            Outcome(
                event_id=event_id,
                event_type=entry.get("event_type"),
                outcome=str(entry.get("outcome", "")),
                why=str(entry.get("why") or ""),
                stored_at=stored.get(event_id or "") if is_sent else None,
                died_again=dead.get(event_id or "", "") if is_sent else "",
            )
        )
    return shown
