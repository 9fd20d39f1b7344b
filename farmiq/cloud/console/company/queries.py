"""SQL of companies, with the person's rights (row level security)."""

from datetime import UTC, datetime

from farmiq.cloud.console.company.view import Company, SelectableCompany
from farmiq.plumbing import db


async def company(connection: db.Connection, *, email: str) -> Company | None:
    """The company of this transaction, for the person of this e-mail; None if it is gone."""
    rows = await db.fetch_all(
        connection, "select company_id, name, tenant_id, timezone from companies"
    )
    if not rows:
        return None
    company_id, name, tenant_id, timezone = rows[0]
    return Company(
        company_id=company_id, name=name, tenant_id=tenant_id, timezone=timezone, email=email
    )


async def choices(connection: db.Connection) -> list[SelectableCompany]:
    """The companies that the person may look at, by name."""
    rows = await db.fetch_all(connection, "select company_id, name from get_selectable_companies()")
    return [SelectableCompany(company_id=company_id, name=name) for company_id, name in rows]


async def now(connection: db.Connection) -> datetime:
    """The database's clock."""
    at: datetime = await db.fetch_value(connection, "select fn_now()")
    return at.astimezone(UTC)
