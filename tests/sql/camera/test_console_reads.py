"""A day of many cameras is read with one look at who asks, not one per wake."""

import inspect
import re
from datetime import timedelta

import pytest

from farmiq.cloud.console.sites import queries as site_store
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from tests.sql import two_companies
from tests.sql.camera.farm import Farm


@pytest.mark.req("DB2-08")
def test_an_index_answers_the_policy_of_a_day(farm: Farm) -> None:
    site = farm.site()
    cameras = [farm.device(site, "*/10 * * * *") for _ in range(20)]
    opened = farm.call("fn_midnight_session_opener", site_id=site)
    for camera in cameras:
        for minute in range(0, 60, 6):
            farm.wake(camera, f"2026-03-10T11:{minute:02}:00+07:00", f"{minute}.jpg")
    farm.owner.execute("analyze")
    add_user(farm.owner, "a@b.cc", company_id=farm.company, password=two_companies.PASSWORD)
    token = open_sign_in(farm.owner, "a@b.cc", lasts=timedelta(hours=1))
    written = re.search(r'"""\n(\s+select .*?)"""', inspect.getsource(site_store.wakes), re.DOTALL)
    assert written
    with two_companies.looking(farm.database.url, token) as person:
        asked = {"sessions": [opened["session_id"]], "limit": 50}
        rows = person.execute(f"explain {written[1]}".encode(), asked).fetchall()
    plan = "\n".join(row[0] for row in rows)
    asks = [line for line in plan.splitlines() if "get_active_company_id" in line]
    assert len(asks) == 2, plan
    assert all("Index Cond" in line for line in asks), plan
