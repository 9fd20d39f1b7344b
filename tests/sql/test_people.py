"""Admins change the people of their company by functions; rules hold in psql too."""

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_user, remove_user
from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.two_companies import PASSWORD, Two, email, looking

HASH = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaA"


@pytest.fixture
def two(cloud_db: Database) -> Two:
    """Ann is the only admin of one, besides a viewer; bea is a technician of two."""
    made = two_companies.make(cloud_db.admin_url)
    with psycopg.connect(cloud_db.admin_url) as connection:
        for name, role in (("ann", "admin"), ("vic", "viewer")):
            add_user(connection, email(name), company_id=made.one, password=PASSWORD, role=role)
        made.tokens["ann"] = two_companies.token(connection, "ann")
        made.tokens["vic"] = two_companies.token(connection, "vic")
    return made


@pytest.fixture
def ids(cloud_db: Database, two: Two) -> dict[str, UUID]:
    del two
    with psycopg.connect(cloud_db.admin_url) as connection:
        rows = connection.execute("select email, user_id from users").fetchall()
    return {address.partition("@")[0]: user_id for address, user_id in rows}


@pytest.fixture
def as_ann(cloud_db: Database, two: Two) -> Iterator[psycopg.Connection]:
    with looking(cloud_db.url, two.tokens["ann"]) as connection:
        yield connection
        connection.rollback()


def test_admin_adds_changes_resets_and_removes_a_person_and_all_is_audited(
    as_ann: psycopg.Connection, ids: dict[str, UUID]
) -> None:
    as_ann.execute("select fn_add_person(' New@Example.com ', 'viewer', %s)", (HASH,))
    rows = as_ann.execute(
        "select user_id, must_change_password from users where email = 'new@example.com'"
    ).fetchall()
    ((new, must_change),) = rows
    assert must_change
    as_ann.execute("select fn_change_person_role(%s, 'admin')", (new,))
    ended = as_ann.execute("select fn_reset_person_password(%s, %s)", (ids["vic"], HASH))
    assert ended.fetchone() == (1,)
    as_ann.execute("select fn_remove_person(%s)", (new,))
    audit = as_ann.execute(
        "select action, email, detail from user_actions where actor = %s", (email("ann"),)
    ).fetchall()
    assert sorted(audit) == [
        ("add", "new@example.com", "viewer"),
        ("change", "new@example.com", "admin"),
        ("password", email("vic"), "reset"),
        ("remove", "new@example.com", ""),
    ]


def test_browsers_of_a_person_who_is_removed_are_told_no_more(
    cloud_db: Database, as_ann: psycopg.Connection, ids: dict[str, UUID]
) -> None:
    known = "select contact_id from alert_contacts order by tenant_id, contact_id"
    with psycopg.connect(cloud_db.admin_url) as connection:
        before = connection.execute(known).fetchall()
        for name in ("vic", "bea"):
            connection.execute(
                """
                insert into alert_contacts (tenant_id, contact_id, name, level, severities,
                  addresses, quiet_passed_by, changed_at, changed_by, user_id)
                select k.tenant_id, 'device-' || u.email, u.email || ', phone', 1, '{critical}',
                  '{}', '{}', now(), 'a', u.user_id
                from users u join companies k using (company_id) where u.user_id = %s
                """,
                (ids[name],),
            )
    as_ann.execute("select fn_remove_person(%s)", (ids["vic"],))
    mine = as_ann.execute("select contact_id from alert_contacts").fetchall()
    assert mine == [("ann",)]
    as_ann.commit()
    with psycopg.connect(cloud_db.admin_url) as connection:
        remove_user(connection, email("bea"), actor="test")
        assert connection.execute(known).fetchall() == before


@pytest.mark.parametrize(
    ("call", "who", "reason"),
    [
        ("select fn_change_person_role(%(id)s, 'viewer')", "ann", "nobody changes or removes"),
        ("select fn_remove_person(%(id)s)", "ann", "nobody changes or removes"),
        ("select fn_reset_person_password(%(id)s, %(hash)s)", "sue", "a super admin is changed"),
        ("select fn_remove_person(%(id)s)", "sue", "a super admin is changed"),
        ("select fn_remove_person(%(id)s)", "bea", "there is no such person"),
        ("select fn_change_person_role(%(id)s, 'owner')", "vic", "memberships_role_known"),
        ("select fn_reset_person_password(%(id)s, 'plain text')", "vic", "argon2id"),
        (
            "select fn_add_person('bea@example.com', 'viewer', %(hash)s)",
            "vic",
            "somebody with this",
        ),
        ("select fn_add_person('nobody', 'viewer', %(hash)s)", "vic", "not an e-mail"),
    ],
)
def test_change_that_would_break_a_rule_is_refused(
    as_ann: psycopg.Connection, ids: dict[str, UUID], call: str, who: str, reason: str
) -> None:
    with pytest.raises(psycopg.Error, match=reason):
        as_ann.execute(call.encode(), {"id": ids[who], "hash": HASH})


def test_last_admin_is_neither_demoted_nor_removed_by_a_super_admin(
    cloud_db: Database, two: Two, ids: dict[str, UUID]
) -> None:
    for call in ("fn_change_person_role(%s, 'viewer')", "fn_remove_person(%s)"):
        with (
            looking(cloud_db.url, two.tokens["sue"]) as connection,
            pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="last admin"),
        ):
            connection.execute(f"select {call}".encode(), (ids["ann"],))


def test_person_who_is_no_admin_changes_nobody(
    cloud_db: Database, two: Two, ids: dict[str, UUID]
) -> None:
    for name in ("vic", "bea"):
        with (
            looking(cloud_db.url, two.tokens[name]) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="only admins"),
        ):
            connection.execute("select fn_remove_person(%s)", (ids["ann"],))
