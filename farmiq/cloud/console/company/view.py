"""Pure: whose page it is."""

from dataclasses import dataclass
from uuid import UUID

RANKS = ("viewer", "operator", "technician", "admin", "super_admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """Whose page it is."""

    company_id: UUID
    name: str
    tenant_id: str
    timezone: str
    email: str
    # Of ROLES of cloud/identity, or super_admin.
    role: str = "viewer"

    def may(self, role: str) -> bool:
        """Whether the person has this role or a higher one."""
        return RANKS.index(self.role) >= RANKS.index(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectableCompany:
    """A company that a super admin can switch to."""

    company_id: UUID
    name: str
