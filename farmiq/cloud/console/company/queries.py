"""SQL of companies, with the person's rights (row level security)."""

from datetime import UTC, datetime

from farmiq.cloud.console.company.view import Company, SelectableCompany
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db


async def company(connection: db.Connection, signed_in: SignIn) -> Company | None:
    """The company of this transaction, with the person's role in it; None if it is gone.

    Its clock is that of its farms if they all have one zone: pages show the time of the barns.
    """
    rows = await db.fetch_all(
        connection,
        """
        select c.company_id, c.name, c.tenant_id, m.role, coalesce(
          (select min(f.timezone) from farms f having min(f.timezone) = max(f.timezone)),
          c.timezone)
        from companies c
        left join memberships m on m.company_id = c.company_id and m.user_id = %s
        """,
        signed_in.user_id,
    )
    if not rows:
        return None
    company_id, name, tenant_id, role, timezone = rows[0]
    return Company(
        company_id=company_id,
        name=name,
        tenant_id=tenant_id,
        timezone=timezone,
        email=signed_in.email,
        role="super_admin" if signed_in.is_super_admin else role or "viewer",
    )


async def choices(connection: db.Connection) -> list[SelectableCompany]:
    """The companies that the person may look at, by name."""
    rows = await db.fetch_all(connection, "select company_id, name from get_selectable_companies()")
    return [SelectableCompany(company_id=company_id, name=name) for company_id, name in rows]


async def now(connection: db.Connection) -> datetime:
    """The database's clock."""
    at: datetime = await db.fetch_value(connection, "select fn_now()")
    return at.astimezone(UTC)
