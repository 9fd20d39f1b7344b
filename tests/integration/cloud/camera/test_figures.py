"""Figures at six levels agree with each other and with a recount."""

from datetime import date, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from farmiq.cloud.camera.accounts.kinds import LEVELS
from tests.integration.cloud.camera.conftest import Accounts
from tests.support import databases

FIRST = date(2026, 3, 1)
SPAN = {"from_": "2026-03-01", "to": "2026-03-04"}
COUNTS = ("received", "completed", "failed", "pending", "extra", "on_schedule")


def generated(accounts: Accounts) -> dict[str, UUID]:
    """Days of two programs in two zones; one expects nothing, one lies outside the span."""
    chance = Random(3)
    with accounts.days() as days:
        for kind in ("control", "experimental"):
            program = days.program(kind, kind)
            site = days.site(program, kind, "Asia/Bangkok" if kind == "control" else "UTC")
            cameras = [days.camera(site, f"{kind} {n}") for n in range(2)]
            for ahead in range(6):
                expected = {} if ahead == 1 else {each: chance.randrange(1, 5) for each in cameras}
                session = days.day(site, FIRST + timedelta(days=ahead), expected)
                for camera in cameras:
                    for index in [*range(1, expected.get(camera, 0) + 1), None]:
                        if chance.random() < 0.8:
                            status = chance.choice(["complete", "complete", "failed", "pending"])
                            degrees = chance.choice([None, chance.uniform(0, 30)])
                            days.wake(session, camera, index, status=status, temperature=degrees)
    with accounts.days(accounts.two) as days:
        site = days.site(days.program("theirs"), "theirs")
        camera = days.camera(site, "theirs")
        days.wake(days.day(site, FIRST, {camera: 1}), camera, 1, temperature=99)
    return {"site": site}


@pytest.mark.req("DB2-16")
async def test_the_totals_of_all_levels_are_the_same_and_those_of_the_tables(
    accounts: Accounts,
) -> None:
    generated(accounts)
    found = {level: await accounts.got(f"rollups/{level}", limit=500, **SPAN) for level in LEVELS}
    totals = found["company"]["totals"]
    for level, answer in found.items():
        assert answer["totals"] == totals, level
        for name in COUNTS:
            assert sum(row[name] for row in answer["rows"]) == totals[name], (level, name)
        if level != "payload":
            assert sum(row["expected"] for row in answer["rows"]) == totals["expected"], level
    assert len(found["company"]["rows"]) == 1
    assert len(found["program"]["rows"]) == len(found["site"]["rows"]) == 2
    assert (len(found["session"]["rows"]), len(found["device"]["rows"])) == (8, 4)
    with databases.connected(accounts.database.admin_url) as owner:
        recount = owner.execute(
            """
            select count(*)::int, sum(expected_wake_count)::int, sum(completed_wake_count)::int,
              sum(failed_wake_count)::int, sum(extra_wake_count)::int
            from site_device_sessions
            where company_id = %s and session_date between '2026-03-01' and '2026-03-04'
            """,
            (accounts.one,),
        ).fetchone()
    names = ("sessions", "expected", "completed", "failed", "extra")
    assert tuple(totals[name] for name in names) == recount
    nothing = [row for row in found["session"]["rows"] if row["day"] == "2026-03-02"]
    assert {row["completeness"]["band"] for row in nothing} == {"n/a"}


async def test_figures_of_one_program_site_or_camera(accounts: Accounts) -> None:
    generated(accounts)
    program, _ = (await accounts.got("rollups/program", **SPAN))["rows"]
    of_it = await accounts.got("rollups/site", program=program["id"], **SPAN)
    assert [row["received"] for row in of_it["rows"]] == [program["received"]]
    assert of_it["totals"]["received"] == program["received"]
    site = of_it["rows"][0]["id"]
    camera = (await accounts.got("rollups/device", site=site, **SPAN))["rows"][0]
    wakes = await accounts.got("rollups/payload", device=camera["id"], **SPAN)
    assert wakes["totals"]["received"] == len(wakes["rows"]) == camera["received"]
    assert wakes["totals"]["expected"] == camera["expected"]
    assert {row["name"] for row in wakes["rows"]} == {camera["name"]}
    refused = await accounts.get("rollups/site", device=camera["id"])
    assert refused.status_code == 400


@pytest.mark.parametrize("level", LEVELS)
async def test_pages_of_a_level_follow_each_other(accounts: Accounts, level: str) -> None:
    generated(accounts)
    whole = (await accounts.got(f"rollups/{level}", limit=500, **SPAN))["rows"]
    seen: list[Any] = []
    query: dict[str, Any] = {"limit": max(1, len(whole) // 3)}
    while True:
        page = await accounts.got(f"rollups/{level}", **SPAN, **query)
        seen += page["rows"]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == whole


async def test_which_cameras_woke_more_than_expected(accounts: Accounts) -> None:
    generated(accounts)
    found = (await accounts.got("overage", limit=500, **SPAN))["overage"]
    with databases.connected(accounts.database.admin_url) as owner:
        expected = owner.execute(
            """
            select s.session_date::text, p.device_id::text, count(*)::int,
              count(*) filter (where p.overage_flag)::int
            from device_wake_payloads p
            join site_device_sessions s on s.session_id = p.site_device_session_id
            where p.company_id = %s and s.session_date between '2026-03-01' and '2026-03-04'
            group by 1, 2 having bool_or(p.overage_flag)
            """,
            (accounts.one,),
        ).fetchall()
    names = ("session_date", "device_id", "received", "extra")
    assert sorted(tuple(row[name] for name in names) for row in found) == sorted(expected)
    assert all(("⚠️" in row["text"]) == (row["received"] > row["expected"]) for row in found)
    page = await accounts.got("overage", limit=1, **SPAN)
    following = await accounts.got("overage", limit=500, cursor=page["next_cursor"], **SPAN)
    assert [*page["overage"], *following["overage"]] == found


@pytest.mark.req("DB2-17", "DB2-18", "DB2-19")
async def test_trend_summary_and_comparison_of_the_last_days(accounts: Accounts) -> None:
    with accounts.days() as days:
        site = days.site(days.program("P", "experimental"), "S", "UTC")
        camera = days.camera(site, "C")
        # The last noon: no midnight passes meanwhile.
        days.connection.execute(
            "insert into test_clock (ahead) select date_trunc('day', now() - interval '12 hours',"
            " 'UTC') + interval '12 hours' - now()"
        )
        (today,) = days.connection.execute("select (fn_now() at time zone 'UTC')::date").fetchone()  # type: ignore[misc]
        session = days.day(site, today, {camera: 3})
        for index in (1, 2):
            days.wake(session, camera, index, temperature=10 * index, humidity=50)
        days.day(site, today - timedelta(days=40), {camera: 1})
    trend = await accounts.got(f"devices/{camera}/trend")
    assert [(row["avg_temp"], row["max_temp"], row["wakes"]) for row in trend["days"]] == [
        (15.0, 20.0, 2)
    ]
    (row,) = (await accounts.got(f"sites/{site}/summary"))["days"]
    assert (row["completeness_pct"], row["band"], row["avg_humidity"]) == (66.67, "warning", 50.0)
    assert len((await accounts.got(f"sites/{site}/summary", days=60))["days"]) == 2
    (program,) = (await accounts.got("comparison"))["programs"]
    assert (program["program_type"], program["total_sessions"]) == ("experimental", 1)
    assert (program["avg_completed_wakes"], program["avg_temperature"]) == (2.0, 15.0)
    assert program["completeness"]["band"] == "warning"
    assert (await accounts.got("comparison", who="other"))["programs"] == []
    assert (await accounts.get("comparison", days=0)).status_code == 400
    bare = await accounts.got("rollups/session")
    assert [row["day"] for row in bare["rows"]] == [str(today)], "30 days if none are given"


async def test_span_that_is_too_long_is_rejected(accounts: Accounts) -> None:
    long = await accounts.get("rollups/company", from_="2024-01-01", to="2026-01-01")
    assert long.status_code == 400
    assert (await accounts.got("rollups/company", from_="2024-01-01"))["to"] == "2024-12-31"
    assert (await accounts.got("rollups/company", to="2024-01-31"))["from"] == "2024-01-01"
