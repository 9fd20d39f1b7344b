"""People of a company who may, or may not, change its cameras."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import psycopg

from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.plumbing import ids
from tests.sql import two_companies
from tests.sql.camera.farm import Farm


@contextmanager
def person(
    farm: Farm, role: str = "technician", *, company: UUID | None = None, super_admin: bool = False
) -> Iterator[psycopg.Connection]:
    """A transaction of somebody with this role; it commits."""
    email = f"{ids.new()}@example.com"
    add_user(
        farm.owner,
        email,
        company_id=company or farm.company,
        password=two_companies.PASSWORD,
        role=role,
        super_admin=super_admin,
    )
    token = open_sign_in(farm.owner, email, lasts=timedelta(hours=1))
    with two_companies.looking(farm.database.url, token) as connection:
        yield connection
