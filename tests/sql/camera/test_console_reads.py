"""A day of many cameras is read with one look at who asks, not one per wake."""

import inspect
import re
from datetime import timedelta

import pytest

from farmiq.cloud.console import site_store
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from tests.sql import two_companies
from tests.sql.camera.farm import Farm


@pytest.mark.req("DB2-08")
def test_an_index_answers_the_policy_of_a_day(farm: Farm) -> None:
    site = farm.site()
    for _ in range(20):
        farm.device(site, "*/10 * * * *")
    opened = farm.call("fn_midnight_session_opener", site_id=site)
    farm.owner.execute("analyze")
    add_user(farm.owner, "a@b.cc", company_id=farm.company, password=two_companies.PASSWORD)
    token = open_sign_in(farm.owner, "a@b.cc", lasts=timedelta(hours=1))
    written = re.search(r'"""\n(\s+select .*?)"""', inspect.getsource(site_store.wakes), re.DOTALL)
    assert written
    with two_companies.looking(farm.database.url, token) as person:
        # Of a table with no rows yet a scan is always cheapest.
        person.execute("set local enable_seqscan = off")
        asked = {"sessions": [opened["session_id"]], "most": 50}
        rows = person.execute(f"explain {written[1]}".encode(), asked).fetchall()
    plan = "\n".join(row[0] for row in rows)
    asks = [line for line in plan.splitlines() if "get_active_company_id" in line]
    assert len(asks) == 2, plan
    assert all("Index Cond" in line for line in asks), plan
