"""Tenants never meet: every table of the cloud, now and to come, keeps companies apart."""

import itertools
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

from farmiq.cloud.identity.accounts import add_company
from tests.conftest import Database
from tests.sql import calls, catalog, security, two_companies
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
        for table in sorted(set(catalog.tables(cloud_db.url)) - two_companies.NOT_OF_A_COMPANY):
            if (table, "SELECT") in security.JOBS_MAY or table in security.ACCOUNTS:
                assert owners(connection, table) == {two.one, two.two}, table
                continue
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
    for query in (
        "select password_hash from users",
        "select * from sign_ins",
        "select secrets from alert_channels",
    ):
        with looking(cloud_db.url, two.tokens["sue"]) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query.encode())
            connection.rollback()


WRITES: tuple[LiteralString, ...] = (
    "delete from {}",
    "insert into {} default values",
    "update {} set {} = null",
    "truncate {}",
)


def test_people_cannot_write(cloud_db: Database, two: Two) -> None:
    columns = {
        # An identity column is refused before rights are looked at, so it is not the one.
        table: next(name for name in catalog.columns(cloud_db.url, table) if name != "id")
        for table in catalog.tables(cloud_db.url)
    }
    with looking(cloud_db.url, two.tokens["sue"]) as connection:
        for (table, column), verb in itertools.product(columns.items(), WRITES):
            where = sql.Identifier(*catalog.qualified(table).split("."))
            refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
            with refused, connection.transaction(force_rollback=True):
                connection.execute(sql.SQL(verb).format(where, sql.Identifier(column)))


@pytest.mark.req("DB2-08", "XC-06")
def test_nothing_is_wrong_with_the_catalog(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        assert security.problems(connection) == []


FORCED = (
    "alter table planted enable row level security; alter table planted force row level security; "
)
DEFINER = "returns int language sql security definer set search_path = pg_catalog, pg_temp"
ELSEWHERE = "create schema elsewhere; "
FOREIGN_SERVER = (
    "create foreign data wrapper planted; create server planted foreign data wrapper planted; "
)
# What the jobs own, pinned and granted by name, and still shows everybody everything.
LEAK = """
    create function planted() returns setof public.companies
    language sql security definer set search_path = pg_catalog, pg_temp
    as 'select c.company_id, c.tenant_id, c.name, null::text, null::timestamptz, null::text
        from public.companies c';
    grant create on schema public to farmiq_jobs;
    alter function planted() owner to farmiq_jobs;
    revoke create on schema public from farmiq_jobs;
    revoke execute on function planted() from public;
    grant execute on function planted() to authenticated;
"""
PLANTED = {
    # Tables and what looks like one.
    "create table planted (tenant_id text)": "planted: row level security is not forced",
    "create table planted (tenant_id text); alter table planted enable row level security": (
        "planted: row level security is not forced"
    ),
    f"create table planted (tenant_id text); {FORCED}": "planted: no policy for delete",
    f"{ELSEWHERE}create table elsewhere.planted (tenant_id text)": (
        "elsewhere.planted: row level security is not forced"
    ),
    f"{FOREIGN_SERVER}create foreign table planted (tenant_id text) server planted": (
        "planted: a foreign table has no row level security"
    ),
    "create view planted as select * from users": "planted: the view is not security_invoker",
    "create schema elsewhere; create view elsewhere.planted as select * from users": (
        "elsewhere.planted: the view is not security_invoker"
    ),
    "create materialized view planted as select * from users": (
        "planted: a materialized view has no row level security"
    ),
    "create schema elsewhere; create materialized view elsewhere.planted as table users": (
        "elsewhere.planted: a materialized view has no row level security"
    ),
    # Policies.
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
    f"create table planted (tenant_id text); {FORCED}"
    "create policy jobs on planted for select to farmiq_jobs using (true)": (
        "planted: policy jobs lets farmiq_jobs select: JOBS_MAY does not name it"
    ),
    "create policy jobs on users for all to farmiq_jobs using (true) with check (true)": (
        "users: policy jobs lets farmiq_jobs change super admins"
    ),
    "create role planted; create policy open on users for select to planted using (true)": (
        "users: policy open is for planted, whom we do not know"
    ),
    # Functions.
    "create function planted() returns int language sql security definer as 'select 1'": (
        "planted: security definer without a pinned search_path"
    ),
    "create function planted() returns int language sql security definer "
    "set search_path = pg_catalog, public as 'select 1'": (
        "planted: security definer without a pinned search_path"
    ),
    f"create function planted() {DEFINER} as 'select 1'": (
        "planted: security definer that everybody may execute"
    ),
    f"{ELSEWHERE}create function elsewhere.planted() {DEFINER} as 'select 1'": (
        "elsewhere.planted: security definer that belongs to farmiq, not to farmiq_jobs"
    ),
    "grant execute on function begin_session(text) to public": (
        "begin_session: security definer that everybody may execute"
    ),
    "create function planted() returns int language sql as 'select 1'; "
    "alter function planted() owner to farmiq_jobs": (
        "planted: belongs to farmiq_jobs without being security definer"
    ),
    LEAK: "planted(): people may execute it: say in CALLS how, so that a test looks at its answers",
    f"{ELSEWHERE}create function elsewhere.planted(n int) returns int language sql as 'select n'": (
        "elsewhere.planted(integer): people may execute it: "
        "say in CALLS how, so that a test looks at its answers"
    ),
    # Grants.
    "grant update on users to authenticated": "users.email: authenticated may update",
    "grant update (email) on users to authenticated": "users.email: authenticated may update",
    "grant select (password_hash) on users to authenticated": (
        "users.password_hash: authenticated may select"
    ),
    "grant select (user_id) on sign_ins to authenticated": (
        "sign_ins.user_id: authenticated may select"
    ),
    "grant insert (email) on users to public": "users.email: public may insert",
    "grant select (name) on companies to public": "companies.name: public may select",
    "grant delete on users to authenticated": "users: authenticated may delete",
    "grant truncate on telemetry_latest to authenticated": (
        "telemetry_latest: authenticated may truncate"
    ),
    "grant truncate on telemetry_latest to farmiq_service": (
        "telemetry_latest: farmiq_service may truncate"
    ),
    "grant trigger on telemetry_latest to farmiq_service": (
        "telemetry_latest: farmiq_service may trigger"
    ),
    "grant references (user_id) on users to farmiq_service": (
        "users.user_id: farmiq_service may references"
    ),
    "grant select on telemetry_latest to farmiq_jobs": (
        "telemetry_latest.metric_value: farmiq_jobs may select"
    ),
    "grant select (password_hash) on users to farmiq_jobs": (
        "users.password_hash: farmiq_jobs may select"
    ),
    "grant update (name) on companies to farmiq_jobs": "companies.name: farmiq_jobs may update",
    f"{ELSEWHERE}create table elsewhere.planted (n int); "
    "grant insert on elsewhere.planted to farmiq_jobs": (
        "elsewhere.planted.n: farmiq_jobs may insert"
    ),
    "grant create on schema public to public": "schema public: public may make things in it",
    f"{ELSEWHERE}grant create on schema elsewhere to authenticated": (
        "schema elsewhere: authenticated may make things in it"
    ),
    "do $$ begin execute format('grant create on database %I to farmiq_service', "
    "current_database()); end $$": "database: farmiq_service may make things in it",
    # Roles.
    "alter role authenticated superuser": "authenticated: is a superuser",
    "alter role farmiq_jobs bypassrls": "farmiq_jobs: bypasses row level security",
    "alter role farmiq_service createrole": "farmiq_service: may create roles",
    "alter role farmiq_service createdb": "farmiq_service: may create databases",
    "alter role farmiq_service replication": "farmiq_service: may replicate",
    "alter role farmiq_jobs login": "farmiq_jobs: can log in",
    "alter role authenticated login": "authenticated: can log in",
    "alter role farmiq_service noinherit": "farmiq_service: does not inherit",
    "create role planted bypassrls; grant planted to farmiq_service": (
        "planted: bypasses row level security"
    ),
    "create role planted; grant planted to authenticated": "authenticated: is a member of planted",
    "create role planted; grant farmiq_jobs to planted": (
        "planted: is a member of farmiq_jobs, which is for services only"
    ),
    "create role planted; grant farmiq_service to planted": (
        "planted: is a member of farmiq_service, which is for services only"
    ),
    "grant farmiq_jobs to farmiq_service": "farmiq_service: is a member of farmiq_jobs",
    "grant farmiq_jobs to authenticated": "authenticated: is a member of farmiq_jobs",
    "revoke authenticated from farmiq_service; grant farmiq_service to authenticated": (
        "authenticated: is a member of farmiq_service"
    ),
    "revoke authenticated from farmiq_service": (
        "farmiq_service: is not a member of authenticated"
    ),
    "grant authenticated to farmiq_service with admin option": (
        "farmiq_service: may hand on authenticated"
    ),
    "grant pg_read_all_data to authenticated": "authenticated: is a member of pg_read_all_data",
    "grant create on schema public to farmiq_service; "
    "alter table telemetry_latest owner to farmiq_service": (
        "farmiq_service: owns tables or sequences"
    ),
    "create sequence planted; alter sequence planted owner to farmiq_jobs": (
        "farmiq_jobs: owns tables or sequences"
    ),
    "create schema elsewhere authorization farmiq_jobs": (
        "farmiq_jobs: owns a schema or a database"
    ),
}


@pytest.mark.req("XC-06")
def test_planted_mistakes_are_caught(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        for mistake, said in PLANTED.items():
            # Rolled back: roles belong to the whole server, where other tests run.
            with connection.transaction(force_rollback=True):
                connection.execute(mistake.encode())
                assert said in security.problems(connection), mistake


@pytest.mark.parametrize("schema", ["public", "elsewhere"])
def test_a_table_that_nobody_seeds_is_caught(cloud_db: Database, two: Two, schema: str) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("create schema elsewhere")
        connection.execute(f"create table {schema}.planted (tenant_id text)".encode())
    with pytest.raises(
        AssertionError, match=r"say in SEED how to fill \['(elsewhere\.)?planted'\]"
    ):
        two_companies.check_all_seeded(cloud_db.admin_url, two)


@pytest.mark.req("DB2-08", "DB2-09")
@pytest.mark.parametrize("caller", calls.CALLERS)
def test_no_function_tells_people_of_another_company(
    cloud_db: Database, two: Two, caller: str | None
) -> None:
    leaks = {
        statement: told
        for statements in calls.CALLS.values()
        for statement in statements
        if (told := calls.answers(cloud_db.url, two, statement, caller))
    }
    assert leaks == {}


def test_every_function_that_is_called_exists(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        for function in calls.CALLS:
            found = connection.execute(
                "select has_function_privilege('authenticated', to_regprocedure(%s), 'execute')",
                (function,),
            ).fetchone()
            assert found == (True,), function


def test_calls_that_are_allowed_do_answer(cloud_db: Database, two: Two) -> None:
    """Silence would pass for discretion."""
    for person, tenant in (("ann", "one"), ("bea", "two")):
        with looking(cloud_db.url, two.tokens[person]) as connection:
            row = connection.execute(
                "select get_active_tenant_id(), g.tenant_id, fn_now() = now(), "
                "set_active_company_context(g.company_id) = get_active_company_id() "
                "from get_selectable_companies() g"
            ).fetchall()
            assert row == [(tenant, tenant, True, True)]


@pytest.mark.parametrize("caller", calls.CALLERS)
def test_a_function_that_leaks_is_caught_when_it_is_called(
    cloud_db: Database, two: Two, caller: str | None
) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute(LEAK)
    told = calls.answers(cloud_db.url, two, "select planted()", caller)
    assert set(calls.CALLERS[caller]) <= set(told)


def test_a_company_that_names_no_tenant_is_its_own(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        company = add_company(connection, None, name="Hill Farm")
        row = connection.execute("select company_id, tenant_id from companies").fetchone()
        assert row == (company, str(company))
        with pytest.raises(psycopg.errors.CheckViolation, match="companies_tenant_id_said"):
            add_company(connection, "", name="Nobody's")
        connection.rollback()
