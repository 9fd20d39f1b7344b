"""The two companies that every test here looks at."""

import pytest

from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.psql import people
from tests.sql.two_companies import Two

__all__ = ["people", "two"]


@pytest.fixture
def two(cloud_db: Database) -> Two:
    return two_companies.make(cloud_db.admin_url)
