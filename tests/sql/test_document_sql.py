"""The SQL that 004 shows, typed into psql by people: it behaves as the document says."""

import pytest

from tests.sql.psql import Person
from tests.sql.two_companies import Two

# 004's test of row level security, and its query of a camera's trend, as they are printed; each
# inside the transaction that says who is looking.
SESSIONS = "SELECT * FROM site_device_sessions;"
SWITCH = "SELECT set_active_company_context('company-b-uuid');"
TREND = """
SELECT
  captured_at::date AS date,
  AVG(temperature) AS avg_temp,
  MIN(temperature) AS min_temp,
  MAX(temperature) AS max_temp
FROM device_wake_payloads
WHERE device_id = :device_id
  AND captured_at >= NOW() - INTERVAL '30 days'
GROUP BY captured_at::date
ORDER BY date;
"""


def _asks(person: Person, script: str) -> list[list[str]]:
    """What psql shows after the line of begin_session."""
    _, *rows = person.types(f"begin;\nselect begin_session('TOKEN');\n{script}\ncommit;\n")
    return rows


@pytest.mark.req("DB2-08", "DB2-09", "FN-12")
def test_a_regular_user_sees_only_the_sessions_of_company_a(
    people: dict[str, Person], two: Two
) -> None:
    ((_, company, *_),) = _asks(people["ann"], SESSIONS)
    assert company == str(two.one)


@pytest.mark.req("DB2-08", "DB2-09", "FN-12")
def test_a_super_admin_switched_to_b_sees_only_the_sessions_of_b(
    people: dict[str, Person], two: Two
) -> None:
    switch = SWITCH.replace("company-b-uuid", str(two.two))
    (chosen,), (_, company, *_) = _asks(people["sue"], switch + SESSIONS)
    assert (chosen, company) == (str(two.two), str(two.two))
    with pytest.raises(AssertionError, match="you may look at your own company only"):
        _asks(people["ann"], switch)


@pytest.mark.req("DB2-09", "DB2-17")
def test_a_trend_as_printed_is_that_of_ones_own_camera(people: dict[str, Person]) -> None:
    ((device,),) = _asks(people["ann"], "select device_id from devices;")
    asked = TREND.replace(":device_id", f"'{device}'")
    assert len(_asks(people["ann"], asked)) == 1
    assert _asks(people["bea"], asked) == []
