"""Companies and people, added by an administrator, any number of times."""

from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from farmiq.cloud.identity import accounts
from tests.browser import barns, person
from tests.browser.served import Served
from tests.support import databases


def test_adding_again_changes_name_and_password_and_nothing_else(
    console: Served, page: Page, cloud_db: Any
) -> None:
    with databases.connected(cloud_db.admin_url) as connection:
        first = accounts.add_company(connection, "tenant-a", name="New Name")
        again = accounts.add_company(connection, "tenant-a", name="Newer Name")
        assert first == again
        user = accounts.add_user(
            connection, "Anna@Example.com ", company_id=first, password="another password"
        )
        assert connection.execute("select user_id from users").fetchall() == [(user,)]
    person.sign_in(page, console)
    expect(page.get_by_role("alert")).to_be_visible()
    person.sign_in(page, console, password="another password")
    expect(page.locator(".company")).to_have_text("Newer Name")


def test_a_new_password_ends_open_sign_ins_and_the_same_again_does_not(
    console: Served, page: Page, cloud_db: Any
) -> None:
    person.open_live(page, console)
    barns.add_company(cloud_db.admin_url)
    page.goto(console.url)
    expect(page).to_have_url(f"{console.url}/")
    with databases.connected(cloud_db.admin_url) as connection:
        company_id = accounts.add_company(connection, "tenant-a", name="A")
        accounts.add_user(connection, barns.EMAIL, company_id=company_id, password="a new password")
    barns.report(cloud_db.url, barns.TEMPERATURE)
    expect(page).to_have_url(f"{console.url}/sign-in")


def test_nobody_changes_company_by_being_added_again(console: Served, cloud_db: Any) -> None:
    del console
    with databases.connected(cloud_db.admin_url) as connection:
        other = accounts.add_company(connection, "tenant-b", name="Hill Farm")
        with pytest.raises(ValueError, match="belongs to another company"):
            accounts.add_user(connection, barns.EMAIL, company_id=other, password=barns.PASSWORD)


def test_a_time_zone_must_exist(cloud_db: Any) -> None:
    with (
        psycopg.connect(cloud_db.admin_url) as connection,
        pytest.raises(ValueError, match="no time zone is called 'Mars/Olympus'"),
    ):
        accounts.add_company(connection, "tenant-c", name="C", timezone="Mars/Olympus")


@pytest.mark.parametrize(
    ("email", "role", "password", "said"),
    [
        ("no at sign", "viewer", "long enough", "not an e-mail"),
        ("a@b.c", "king", "long enough", "no role is called 'king'"),
        ("a@b.c", "viewer", "short", "8 to 1024 characters"),
    ],
)
def test_invalid_person_is_rejected(
    cloud_db: Any, email: str, role: str, password: str, said: str
) -> None:
    with databases.connected(cloud_db.admin_url) as connection:
        company_id = accounts.add_company(connection, "tenant-c", name="C")
        with pytest.raises(ValueError, match=said):
            accounts.add_user(
                connection, email, company_id=company_id, password=password, role=role
            )
