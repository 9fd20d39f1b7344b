"""The commands of docs/integrate/psql.md work as printed: read from the page, run in psql."""

import pytest

from tests.sql.psql import LOOK, LOOK_ELSEWHERE, Person
from tests.sql.two_companies import Two

ASK = "select * from telemetry_latest;"


@pytest.mark.req("DB2-09", "FN-12")
def test_two_people_see_the_rows_of_their_company_and_no_other(people: dict[str, Person]) -> None:
    for name, tenant in (("ann", "one"), ("bea", "two")):
        user, *rows = people[name].types(LOOK)
        assert len(user) == 1
        assert [row[0] for row in rows] == [tenant]


@pytest.mark.req("DB2-09")
def test_a_super_admin_sees_home_and_then_the_chosen_one(
    people: dict[str, Person], two: Two
) -> None:
    _, *rows = people["sue"].types(LOOK)
    assert [row[0] for row in rows] == ["one"]
    for company in (two.one, two.two):
        _, first, second, chosen, *rows = people["sue"].types(LOOK_ELSEWHERE, company=company)
        assert [first[:2], second[:2]] == [[str(two.one), "one"], [str(two.two), "two"]]
        assert chosen == [str(company)]
        assert [row[0] for row in rows] == [two.tenant(company)]


@pytest.mark.req("DB2-09", "FN-12")
def test_a_regular_user_may_not_choose_another(people: dict[str, Person], two: Two) -> None:
    _, only, chosen, *rows = people["ann"].types(LOOK_ELSEWHERE, company=two.one)
    assert only[:2] == [str(two.one), "one"]
    assert chosen == [str(two.one)]
    assert [row[0] for row in rows] == ["one"]
    with pytest.raises(AssertionError, match="you may look at your own company only"):
        people["ann"].types(LOOK_ELSEWHERE, company=two.two)


def test_nobody_sees_anything_outside_a_transaction_or_without_a_token(
    people: dict[str, Person],
) -> None:
    ann = people["ann"]
    assert ann.runs(ASK) == []
    without = [line for line in LOOK.splitlines() if line not in {"begin;", "commit;"}]
    assert [len(row) for row in ann.types("\n".join(without))] == [1]
    with pytest.raises(AssertionError, match="nobody is signed in with this token"):
        ann.runs(LOOK)


def test_the_page_asks_what_these_tests_look_at() -> None:
    for block in (LOOK, LOOK_ELSEWHERE):
        assert ASK in block
        assert block.splitlines()[0] == "begin;"
        assert block.splitlines()[-1] == "commit;"
