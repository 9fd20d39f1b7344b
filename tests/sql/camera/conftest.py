"""A company with a program, sites and cameras as a test wants them, and a clock that it moves."""

from collections.abc import Iterator

import pytest

from tests.conftest import Database
from tests.sql.camera.farm import Farm

# Noon in Bangkok, where `farm.site()` stands unless told otherwise.
NOON = "2026-03-10T12:00:00+07:00"


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=NOON) as made:
        yield made
