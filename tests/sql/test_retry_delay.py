"""SQL that puts a row off waits as long as the policy in Python says."""

import psycopg
import pytest

from farmiq.plumbing import retry
from tests.conftest import Database


@pytest.mark.parametrize(("base_s", "cap_s"), [(0.5, 300.0), (1.0, 600.0), (5.0, 60.0)])
def test_retry_delay_of_sql_is_that_of_the_policy(
    cloud_db: Database, base_s: float, cap_s: float
) -> None:
    attempts = [*range(12), 64, 2**31 - 1]

    with psycopg.connect(cloud_db.url) as connection:
        rows = connection.execute(
            "select extract(epoch from fn_retry_delay(attempt, %s, %s))::float8 "
            "from unnest(%s::int[]) with ordinality as a(attempt, place) order by place",
            (base_s, cap_s, attempts),
        ).fetchall()

    expected = [retry.fixed_delay_s(attempt, base_s=base_s, cap_s=cap_s) for attempt in attempts]
    assert [delay_s for (delay_s,) in rows] == expected
