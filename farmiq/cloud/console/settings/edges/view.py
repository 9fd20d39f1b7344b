"""Pure: the edges of a company, their keys, and an invitation with its command and QR code."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import segno
from markupsafe import Markup

from farmiq.cloud.console.company.view import Company
from farmiq.messages.ids import ID_PATTERN
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _

HOURS = (1, 24, 72, 168)
DEFAULT_HOURS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    key_id: str
    enrolled_at: datetime
    valid_until: datetime | None
    revoked_at: datetime | None
    replaced_by: str | None
    good: bool

    @property
    def tone(self) -> str:
        if self.good:
            return "warn" if self.replaced_by else "good"
        return "muted"

    @property
    def word(self) -> str:
        if self.revoked_at:
            return _("revoked")
        if not self.good:
            return _("over")
        return _("replaced, good for a while") if self.replaced_by else _("good")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    edge_id: str
    state: str
    heard_at: datetime | None
    keys: Sequence[Key]

    @property
    def good_keys(self) -> int:
        return sum(key.good for key in self.keys)

    @property
    def is_rotating(self) -> bool:
        return any(key.good and key.replaced_by for key in self.keys)

    @property
    def tone(self) -> str:
        if not self.good_keys:
            return "muted"
        return {"heard": "good", "silent": "bad"}.get(self.state, "warn")

    @property
    def word(self) -> str:
        if not self.good_keys:
            return _("revoked")
        return {"heard": _("heard"), "silent": _("silent")}.get(self.state, _("never heard"))


@dataclass(frozen=True, slots=True)
class Invited:
    """Somebody was given a code for this edge, and nobody has used it yet."""

    edge_id: str
    at: datetime
    actor: str


@dataclass(frozen=True, slots=True)
class Invitation:
    """A code that is good once; it is shown on one page only."""

    edge_id: str
    code: str = field(repr=False)
    expires_at: datetime
    cloud_url: str

    @property
    def command(self) -> str:
        return f"farmiq edge enroll --cloud {self.cloud_url} --code {self.code}"

    @property
    def qr(self) -> Markup:
        """The command as a QR code: dark on light in both themes, as readers expect it."""
        drawn = segno.make(self.command, error="m", micro=False)
        return Markup(  # noqa: S704 - numbers that segno draws, no text of others
            drawn.svg_inline(border=4, dark="#000", light="#fff", omitsize=True, svgclass="qr")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    edges: Sequence[Edge]
    invited: Sequence[Invited]
    now: datetime
    where: ZoneInfo
    given: Mapping[str, str]
    errors: Mapping[str, str]
    invitation: Invitation | None = None
    page: str = "settings"

    @property
    def title(self) -> str:
        return words.title(_("Edges"), problems=sum(edge.tone == "bad" for edge in self.edges))

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def may_act(self) -> bool:
        return self.company.may("technician")

    @property
    def expires(self) -> str:
        """When the code of the invitation is over."""
        made = self.invitation
        return words.instant(made.expires_at, now=self.now, zone=self.where) if made else ""

    @property
    def hours(self) -> list[tuple[str, str]]:
        return [(str(hours), words.duration(hours * 3600)) for hours in HOURS]


def read_invitation(form: Mapping[str, str]) -> tuple[str, timedelta, dict[str, str]]:
    """The edge and how long its code is good, and what is wrong with the form by field."""
    errors = {}
    edge_id, hours = form.get("edge_id", "").strip(), form.get("hours", str(DEFAULT_HOURS))
    if not re.match(ID_PATTERN, edge_id):
        errors["edge_id"] = _(
            "Letters, digits and . _ : -, at most 128, such as hill-farm-1; it begins with a "
            "letter or a digit."
        )
    if hours not in {str(known) for known in HOURS}:
        errors["hours"] = _("Choose how long the code is good.")
    return edge_id, timedelta(hours=0 if errors else int(hours)), errors
