"""Pure: what the account page shows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import RANKS, Company
from farmiq.cloud.identity.account import Setup
from farmiq.cloud.identity.store import SecondFactor, Session, Step
from farmiq.ui import words
from farmiq.ui.i18n import LANGUAGES, marked
from farmiq.ui.i18n import gettext as _

_SYSTEMS = (
    (r"iPhone|iPad", "iOS"),
    (r"Android", "Android"),
    (r"Windows", "Windows"),
    (r"Mac OS X|Macintosh", "macOS"),
    (r"CrOS", "ChromeOS"),
    (r"Linux|X11", "Linux"),
)
# In this order: each of them also names some of those after it.
_BROWSERS = (
    (r"Edg(?:e|A|iOS)?/", "Edge"),
    (r"OPR/|Opera", "Opera"),
    (r"Firefox/|FxiOS/", "Firefox"),
    (r"SamsungBrowser/", "Samsung Internet"),
    (r"Chrome/|CriOS/|Chromium/", "Chrome"),
    (r"Safari/", "Safari"),
    (r"curl/", "curl"),
    (r"[Pp]ython", "Python"),
)
_METHODS = {
    "password": marked("password"),
    "code": marked("password and code"),
    "recovery_code": marked("password and recovery code"),
    "command": marked("made by a command"),
}
ROLES = {
    "viewer": marked("everybody"),
    "operator": marked("operators and above"),
    "technician": marked("technicians and above"),
    "admin": marked("admins and above"),
    "super_admin": marked("super admins"),
}
# What an address may say after something was done (?done=…).
DONE = {
    "password": marked("Your password is changed. Other sessions have ended."),
    "second-factor-off": marked("The second factor is off."),
    "session": marked("The session has ended."),
    "sessions": marked("All other sessions have ended."),
    "language": marked("The language is changed."),
    "rule": marked("The rule is changed."),
}


def device(user_agent: str) -> str:
    """Firefox on Android; what a browser says of itself is not proven."""
    browser = next((name for text, name in _BROWSERS if re.search(text, user_agent)), None)
    system = next((name for text, name in _SYSTEMS if re.search(text, user_agent)), None)
    if browser and system:
        return _("%(browser)s on %(system)s") % {"browser": browser, "system": system}
    return browser or system or _("Unknown device")


@dataclass(frozen=True, slots=True)
class SessionRow:
    session: Session
    is_this: bool

    @property
    def device(self) -> str:
        return device(self.session.user_agent)

    @property
    def method(self) -> str:
        return _(_METHODS[self.session.method])


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    sessions: Sequence[SessionRow] = ()
    factor: SecondFactor | None = None
    # Whether secrets can be sealed here.
    has_key: bool = True
    rule: str | None = None
    language: str | None = None
    required_step: Step | None = None
    done: str = ""
    problem: str = ""
    # By field.
    errors: Mapping[str, str] = field(default_factory=dict)
    page: str = "settings"

    @property
    def title(self) -> str:
        return words.title(_("Your account"), problems=1 if self.required_step else 0)

    @property
    def where(self) -> ZoneInfo:
        return words.zone(self.company.timezone)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def is_on(self) -> bool:
        return self.factor is not None and self.factor.confirmed_at is not None

    @property
    def done_text(self) -> str:
        return _(DONE[self.done]) if self.done in DONE else ""

    @property
    def languages(self) -> list[tuple[str, str]]:
        return [("", _("As the browser asks")), *LANGUAGES.items()]

    @property
    def rules(self) -> list[tuple[str, str]]:
        """Roles that the person may name: nobody forces those above them."""
        mine = RANKS.index(self.company.role)
        return [
            ("", _("nobody")),
            *((role, _(ROLES[role])) for role in RANKS if RANKS.index(role) <= mine),
        ]

    def error(self, name: str) -> str:
        return self.errors.get(name, "")

    def when(self, at: datetime) -> str:
        return words.instant(at, now=self.now, zone=self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupView:
    """The page that shows a secret until a first code confirms it."""

    company: Company
    now: datetime
    setup: Setup
    # An SVG of the QR code.
    qr: str
    error: str = ""
    page: str = "settings"

    @property
    def title(self) -> str:
        return _("Set up the second factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodesView:
    """Recovery codes, which are shown once."""

    company: Company
    now: datetime
    codes: Sequence[str]
    page: str = "settings"

    @property
    def title(self) -> str:
        return _("Recovery codes")
