"""Pure: whose page it is, and with which rights somebody looks at it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from farmiq.edge.api_keys import ROLES, Role
from farmiq.ui import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """The tenant whose page it is, as the shared templates want it.

    `only_tenant_id` is the one tenant that the key reaches, None if it reaches all.
    """

    tenant_id: str
    name: str
    timezone: str
    email: str
    role: Role
    areas: Sequence[str] | None = None
    only_tenant_id: str | None = None

    @property
    def company_id(self) -> str:
        """By this name the address and the switch of the page have it."""
        return self.tenant_id

    def reads(self, area: str) -> bool:
        """Whether the key is for this area of the API (`/api/v1/{area}/…`)."""
        return self.areas is None or area in self.areas

    def may(self, area: str, role: Role) -> bool:
        return self.reads(area) and ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectableTenant:
    """A tenant that a key of all tenants can switch to."""

    company_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """What every page shows beside its own; `page` is its entry in the way to the pages."""

    company: Tenant
    now: datetime
    title: str
    page: str

    @property
    def clock(self) -> ZoneInfo:
        return words.zone(self.company.timezone)

    @property
    def zone(self) -> str:
        return words.zone_name(self.clock, self.now)

    def local(self, at: datetime) -> str:
        """A moment in the tenant's time."""
        return words.instant(at, now=self.now, zone=self.clock)


def bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The midnights at which a local day begins and ends."""
    begin = datetime.combine(day, time(), tzinfo=zone)
    return begin, datetime.combine(day + timedelta(days=1), time(), tzinfo=zone)
