from collections.abc import AsyncIterator

import pytest

from farmiq.plumbing import db
from tests.conftest import Database


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test", max_size=8) as opened:
        yield opened
