"""Pure: whose page it is."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Whose page it is."""

    company_id: UUID
    name: str
    tenant_id: str
    timezone: str
    email: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectableCompany:
    """A company that a super admin can switch to."""

    company_id: UUID
    name: str
