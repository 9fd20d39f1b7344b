"""Pure: the people of a company."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _

ROLES = ("viewer", "operator", "technician", "admin")
MAX_EMAIL_CHARS = 254
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def role_word(role: str | None) -> str:
    return {
        "viewer": _("viewer"),
        "operator": _("operator"),
        "technician": _("technician"),
        "admin": _("admin"),
        "super_admin": _("super admin"),
    }.get(role or "", _("no role"))


def role_choices() -> list[tuple[str, str]]:
    return [
        ("viewer", _("viewer: sees everything, changes nothing")),
        ("operator", _("operator: also enters records and feed, acknowledges alerts")),
        ("technician", _("technician: also edges, devices and schedules")),
        ("admin", _("admin: also people, alerts and dead letters")),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    user_id: UUID
    email: str
    role: str | None
    is_super_admin: bool
    created_at: datetime
    must_change_password: bool
    has_second_factor: bool = False

    @property
    def role_word(self) -> str:
        return role_word("super_admin" if self.is_super_admin else self.role)


@dataclass(frozen=True, slots=True)
class OneTimePassword:
    """Shown on this page once; nobody can read it again."""

    email: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    people: Sequence[Person]
    now: datetime
    where: ZoneInfo
    given: Mapping[str, str]
    errors: Mapping[str, str]
    made: OneTimePassword | None = None
    problem: str = ""
    page: str = "settings"

    @property
    def title(self) -> str:
        return words.title(_("People"), problems=0)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def choices(self) -> list[tuple[str, str]]:
        return role_choices()

    @property
    def roles(self) -> list[tuple[str, str]]:
        return [(role, role_word(role)) for role in ROLES]

    def is_self(self, person: Person) -> bool:
        return person.email == self.company.email

    def may_change(self, person: Person) -> bool:
        return not (person.is_super_admin or self.is_self(person))

    def is_last_admin(self, person: Person) -> bool:
        admins = [other for other in self.people if other.role == "admin"]
        return person.role == "admin" and len(admins) == 1


def read_person(form: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with a form that adds a person, by field."""
    errors = {}
    email = form.get("email", "").strip()
    if len(email) > MAX_EMAIL_CHARS or not _EMAIL.fullmatch(email) or "\0" in email:
        errors["email"] = _("Enter an e-mail address, such as anna@example.com.")
    if form.get("role") not in ROLES:
        errors["role"] = _("Choose a role.")
    return errors


def reason(text: str) -> str:
    """What the database says against a change, in the language of the page."""
    known = {
        "nobody changes or removes themselves: ask another admin": _(
            "Nobody changes or removes themselves: ask another admin."
        ),
        "a super admin is changed with the command farmiq user": _(
            "A super admin is changed with the command farmiq user."
        ),
        "this is the last admin: make somebody else an admin first": _(
            "This is the last admin: make somebody else an admin first."
        ),
        "somebody with this e-mail can sign in already": _(
            "Somebody with this e-mail can sign in already."
        ),
    }
    return known.get(text, text)
