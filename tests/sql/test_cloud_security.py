"""Tenants never meet: every table of the cloud, now and to come, keeps companies apart."""

import psycopg
import pytest
from psycopg import sql

from farmiq.cloud.identity.accounts import add_company
from tests.conftest import Database
from tests.sql import catalog, security, two_companies
from tests.sql.two_companies import Two, looking, owner, owners


@pytest.mark.req("DB2-08", "DB2-09", "FN-12")
@pytest.mark.parametrize("person", ["ann", "bea"])
def test_a_regular_user_sees_the_rows_of_their_company_and_no_other(
    cloud_db: Database, two: Two, person: str
) -> None:
    home = two.home(person)
    with looking(cloud_db.url, two.tokens[person]) as connection:
        for table in two_companies.for_people(cloud_db.url):
            assert owners(connection, table) == {owner(connection, table, two, home)}, table


@pytest.mark.req("DB2-09")
@pytest.mark.parametrize("chosen", ["one", "two"])
def test_a_super_admin_sees_the_chosen_company_and_no_other(
    cloud_db: Database, two: Two, chosen: str
) -> None:
    company = getattr(two, chosen)
    with looking(cloud_db.url, two.tokens["sue"], company=company) as connection:
        for table in two_companies.for_people(cloud_db.url):
            assert owners(connection, table) == {owner(connection, table, two, company)}, table


def test_a_super_admin_begins_at_home_and_may_choose_again(cloud_db: Database, two: Two) -> None:
    with looking(cloud_db.url, two.tokens["sue"]) as connection:
        assert owners(connection, "telemetry_readings") == {"one"}
        for company in (two.two, two.one, two.two):
            connection.execute("select set_active_company_context(%s)", (company,))
            assert owners(connection, "telemetry_readings") == {two.tenant(company)}


def test_without_a_context_nobody_sees_anything(cloud_db: Database, two: Two) -> None:
    del two
    with looking(cloud_db.url) as connection:
        for table in two_companies.for_people(cloud_db.url):
            assert owners(connection, table) == set(), table


def test_a_context_does_not_outlive_its_transaction(cloud_db: Database, two: Two) -> None:
    with psycopg.connect(cloud_db.url, autocommit=True) as connection:
        for ends_well in (True, False):
            with connection.transaction(force_rollback=not ends_well):
                connection.execute("set local role authenticated")
                connection.execute("select begin_session(%s)", (two.tokens["ann"],))
                assert owners(connection, "telemetry_readings") == {"one"}
            with connection.transaction():
                connection.execute("set local role authenticated")
                assert owners(connection, "telemetry_readings") == set()
        assert connection.execute("select current_user").fetchone() == ("farmiq_service",)


def test_services_see_all_and_jobs_only_who_people_are(cloud_db: Database, two: Two) -> None:
    with psycopg.connect(cloud_db.url) as connection:
        for table in sorted(set(catalog.tables(cloud_db.url)) - two_companies.NOT_OF_A_COMPANY):
            expected = {owner(connection, table, two, each) for each in (two.one, two.two)}
            assert owners(connection, table) == expected, table
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("set role farmiq_jobs")
        assert owners(connection, "companies") == {two.one, two.two}
        for table in ("telemetry_readings", "telemetry_latest", "ingestion_dedupe", "memberships"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                owners(connection, table)


def test_a_login_without_a_role_of_ours_is_refused_everywhere(cloud_db: Database, two: Two) -> None:
    del two
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("create role a_stranger nologin")
        connection.execute("set local role a_stranger")
        for table in sorted(set(catalog.tables(cloud_db.url)) - two_companies.NOT_OF_A_COMPANY):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                owners(connection, table)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute("select get_active_company_id()")
        connection.rollback()


def test_people_cannot_read_passwords_or_sign_ins(cloud_db: Database, two: Two) -> None:
    for query in ("select password_hash from users", "select * from sign_ins"):
        with looking(cloud_db.url, two.tokens["sue"]) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query.encode())
            connection.rollback()


def test_people_cannot_write(cloud_db: Database, two: Two) -> None:
    for table in catalog.tables(cloud_db.url):
        for verb in (
            "delete from {}",
            "insert into {} default values",
            "update {} set {} = null",
            "truncate {}",
        ):
            column = next(iter(catalog.columns(cloud_db.url, table)))
            with looking(cloud_db.url, two.tokens["sue"]) as connection:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(
                        sql.SQL(verb).format(sql.Identifier(table), sql.Identifier(column))
                    )
                connection.rollback()


@pytest.mark.req("DB2-08")
def test_nothing_is_wrong_with_the_catalog(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        assert security.problems(connection) == []


FORCED = (
    "alter table planted enable row level security; alter table planted force row level security; "
)
PLANTED = {
    "create table planted (tenant_id text)": "planted: row level security is not forced",
    "create table planted (tenant_id text); alter table planted enable row level security": (
        "planted: row level security is not forced"
    ),
    f"create table planted (tenant_id text); {FORCED}": "planted: no policy for delete",
    f"create table planted (tenant_id text); {FORCED}create policy open on planted using (true)": (
        "planted: policy open shows people more than their company: true"
    ),
    "create policy open on users for select to authenticated using (email <> '')": (
        "users: policy open shows people more than their company: (email <> ''::text)"
    ),
    "create policy open on users for update to authenticated "
    "using (company_id = get_active_company_id())": "users: policy open has no with check",
    "create policy half on users for insert to farmiq_service with check (true); "
    "create policy open on users for delete to authenticated "
    "using (company_id = get_active_company_id())": "users: policy open lets people write",
    "create view planted as select * from users": "planted: the view is not security_invoker",
    "create materialized view planted as select * from users": (
        "planted: a materialized view has no row level security"
    ),
    "create function planted() returns int language sql security definer as 'select 1'": (
        "planted: security definer without a pinned search_path"
    ),
    "create function planted() returns int language sql security definer "
    "set search_path = pg_catalog, public as 'select 1'": (
        "planted: security definer without a pinned search_path"
    ),
    "create function planted() returns int language sql security definer "
    "set search_path = pg_catalog, pg_temp as 'select 1'": (
        "planted: security definer that everybody may execute"
    ),
    "grant execute on function begin_session(text) to public": (
        "begin_session: security definer that everybody may execute"
    ),
    "alter role farmiq_jobs bypassrls": "farmiq_jobs: bypasses row level security",
    "create role planted bypassrls; grant planted to farmiq_service": (
        "planted: bypasses row level security"
    ),
    "alter role farmiq_jobs login": "farmiq_jobs: can log in",
    "grant create on schema public to farmiq_service; "
    "alter table telemetry_latest owner to farmiq_service": "farmiq_service: owns tables",
}


def test_planted_mistakes_are_caught(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        for mistake, said in PLANTED.items():
            # Rolled back: roles belong to the whole server, where other tests run.
            with connection.transaction(force_rollback=True):
                connection.execute(mistake.encode())
                assert said in security.problems(connection), mistake


def test_a_table_that_nobody_seeds_is_caught(cloud_db: Database, two: Two) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("create table planted (tenant_id text)")
    with pytest.raises(AssertionError, match=r"say in SEED how to fill \['planted'\]"):
        two_companies.check_all_seeded(cloud_db.admin_url, two)


def test_a_company_that_names_no_tenant_is_its_own(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        company = add_company(connection, None, name="Hill Farm")
        row = connection.execute("select company_id, tenant_id from companies").fetchone()
        assert row == (company, str(company))
        with pytest.raises(psycopg.errors.CheckViolation, match="companies_tenant_id_said"):
            add_company(connection, "", name="Nobody's")
        connection.rollback()
