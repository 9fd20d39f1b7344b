"""A person who can run any SQL as `authenticated` cannot become another person or see more (D-30).

Each attempt runs as ann, a regular user of company one, who knows the ids of everything.
"""

import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from farmiq.cloud.identity import store
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.sql import two_companies
from tests.sql.two_companies import Two, looking, owners


@pytest.fixture
def logins(cloud_db: Database) -> Iterator[dict[str, str]]:
    """Database logins of ann, bea and sue, made as docs/integrate/psql.md says."""
    names = {name: f"{name}_{ids.new().hex}" for name in ("ann", "bea", "sue")}
    parts = urlsplit(cloud_db.admin_url)
    with psycopg.connect(cloud_db.admin_url, autocommit=True) as connection:
        for name in names.values():
            connection.execute(
                sql.SQL("create role {} login password 'x' in role authenticated").format(
                    sql.Identifier(name)
                )
            )
        yield {
            person: urlunsplit(parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}"))
            for person, name in names.items()
        }
        for name in names.values():
            connection.execute(
                sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name))
            )


# What ann tries before she looks: settings, names that shadow ours, roles, somebody else's hash.
HARMLESS = {
    "the other company's id": "set local farmiq.company_id = '{two}'",
    "the same for the whole session": "set farmiq.company_id = '{two}'",
    "not an id": "set local farmiq.company_id = 'x; drop table users'",
    "no id": "set local farmiq.company_id = ''",
    "bea's id as the sign-in": "set local farmiq.sign_in = '{bea}'",
    "the hash of bea's token": "set local farmiq.sign_in = '{bea_hash}'",
    "an empty sign-in": "set local farmiq.sign_in = ''",
    "a flag": "set local farmiq.is_super_admin = 'on'",
    "tables of her own": (
        "create temp table users as select '{ann}'::uuid as user_id, '{two}'::uuid as company_id, "
        "true as is_super_admin; create temp table sign_ins as select sha256('') as token_hash; "
        "set local search_path = pg_temp, public"
    ),
    "a function of her own": (
        "create function pg_temp.get_active_company_id() returns uuid language sql "
        "as $$ select '{two}'::uuid $$; set local search_path = pg_temp, public"
    ),
    "an equals sign of her own": (
        "create function pg_temp.yes(bytea, bytea) returns boolean language sql "
        "as 'select true'; create operator pg_temp.= (leftarg = bytea, rightarg = bytea, "
        "function = pg_temp.yes); set local search_path = pg_temp, pg_catalog, public"
    ),
    "row_security off": "set local row_security = off",
}


def test_settings_and_names_of_ones_own_change_nothing(
    cloud_db: Database, two: Two, logins: dict[str, str]
) -> None:
    values = {
        "two": two.two,
        "ann": user_id(cloud_db, "ann"),
        "bea": user_id(cloud_db, "bea"),
        "bea_hash": store.hash_token(two.tokens["bea"]).hex(),
    }
    for attempt, statement in HARMLESS.items():
        with psycopg.connect(logins["ann"]) as connection:
            connection.execute("select begin_session(%s)", (two.tokens["ann"],))
            connection.execute(statement.format(**values).encode())
            for table in ("telemetry_readings", "companies", "users"):
                assert seen(connection, table) <= {"one", two.one}, f"{attempt}: {table}"
            connection.rollback()


REFUSED = {
    "select set_active_company_context(company_id => '{two}')": "own company only",
    "select set_active_company_context(company_id => '{nobody}')": "own company only",
    "select set_active_company_context(company_id => null)": "own company only",
    "select begin_session('guessed')": "nobody is signed in",
    "select begin_session('{bea_hash}')": "nobody is signed in",
    "select begin_session(null)": "nobody is signed in",
    "select begin_session('')": "nobody is signed in",
    "set role farmiq_service": "permission denied to set role",
    "set role farmiq_jobs": "permission denied to set role",
    "set session authorization farmiq_service": "permission denied to set session authorization",
    "select * from sign_ins": "permission denied",
    "insert into sign_ins select * from sign_ins": "permission denied",
    "update users set is_super_admin = true": "permission denied",
    "update users set company_id = '{two}'": "permission denied",
    "insert into memberships values ('{ann}', '{two}', 'admin')": "permission denied",
    "alter table users no force row level security": "must be owner",
    'drop policy "Users see in their company" on telemetry_readings': "must be owner",
    "create or replace function get_active_company_id() returns uuid language sql "
    "as $$ select '{two}'::uuid $$": "permission denied|must be owner",
    "alter function begin_session(text) security invoker": "must be owner",
    "create function public.planted() returns int language sql as 'select 1'": "permission denied",
    "create policy planted on users using (true)": "must be owner",
    "set session_replication_role = replica": "permission denied",
}


@pytest.mark.req("DB2-09", "FN-12")
def test_what_would_open_a_door_is_refused(
    cloud_db: Database, two: Two, logins: dict[str, str]
) -> None:
    values = {
        "two": two.two,
        "nobody": ids.new(),
        "ann": user_id(cloud_db, "ann"),
        "bea_hash": store.hash_token(two.tokens["bea"]).hex(),
    }
    with psycopg.connect(logins["ann"]) as connection:
        for attempt, said in REFUSED.items():
            connection.execute("select begin_session(%s)", (two.tokens["ann"],))
            with pytest.raises(psycopg.Error, match=said):
                connection.execute(attempt.format(**values).encode())
            connection.rollback()
            assert seen(connection, "telemetry_readings") == set(), attempt
            connection.rollback()


def test_a_refusal_does_not_tell_whether_the_company_exists(cloud_db: Database, two: Two) -> None:
    said = []
    for company in (two.two, ids.new()):
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege) as refused,
            looking(cloud_db.url, two.tokens["ann"], company=company),
        ):
            pass
        said.append(str(refused.value).splitlines()[0])
    assert said[0] == said[1]
    with (
        pytest.raises(psycopg.errors.NoDataFound, match="there is no company"),
        looking(cloud_db.url, two.tokens["sue"], company=ids.new()),
    ):
        pass


def test_a_condition_that_talks_hears_nothing_of_others(
    cloud_db: Database, two: Two, logins: dict[str, str]
) -> None:
    """A cheap function in the condition would run first, were it not for the security barrier."""
    del cloud_db
    with psycopg.connect(logins["ann"]) as connection:
        heard: list[str] = []
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        connection.execute("select begin_session(%s)", (two.tokens["ann"],))
        connection.execute(
            """
            create function pg_temp.tell(text) returns boolean language plpgsql cost 0.0001
            as $$ begin raise notice '%', $1; return true; end $$
            """
        )
        for column, table in (("tenant_id", "telemetry_readings"), ("email", "users")):
            query = sql.SQL("select 1 from {} where pg_temp.tell({})")
            connection.execute(query.format(sql.Identifier(table), sql.Identifier(column)))
        connection.rollback()
    assert sorted(heard) == ["ann@example.com", "one", "sue@example.com"]


def test_the_text_of_anothers_session_is_not_readable(two: Two, logins: dict[str, str]) -> None:
    """One login per person: pg_stat_activity shows a statement to its own role only."""
    with psycopg.connect(logins["bea"]) as bea, psycopg.connect(logins["ann"]) as ann:
        bea.execute(f"select begin_session('{two.tokens['bea']}')".encode())
        texts = ann.execute("select query from pg_stat_activity").fetchall()
    assert not any(two.tokens["bea"] in (text or "") for (text,) in texts)


def test_rights_that_are_taken_away_are_gone_at_once(cloud_db: Database, two: Two) -> None:
    with (
        psycopg.connect(cloud_db.admin_url, autocommit=True) as owner,
        looking(cloud_db.url, two.tokens["sue"], company=two.two) as connection,
    ):
        assert owners(connection, "telemetry_readings") == {"two"}
        owner.execute("update users set is_super_admin = false where email = 'sue@example.com'")
        assert owners(connection, "telemetry_readings") == set()
        owner.execute("update users set is_super_admin = true where email = 'sue@example.com'")
        assert owners(connection, "telemetry_readings") == {"two"}
        owner.execute("delete from sign_ins")
        assert owners(connection, "telemetry_readings") == set()


def test_the_names_of_the_parameters_are_literal(cloud_db: Database, two: Two) -> None:
    with psycopg.connect(cloud_db.url) as connection:
        connection.execute("set local role authenticated")
        connection.execute("select begin_session(token => %s)", (two.tokens["sue"],))
        row = connection.execute(
            "select set_active_company_context(company_id => %s)", (two.two,)
        ).fetchone()
        assert row == (two.two,)
        assert connection.execute("select get_active_company_id()").fetchone() == (two.two,)
        assert connection.execute("select get_active_tenant_id()").fetchone() == ("two",)


def test_who_may_choose_what(cloud_db: Database, two: Two) -> None:
    query = "select tenant_id from get_selectable_companies()"
    for person, expected in {"ann": ["one"], "bea": ["two"], "sue": ["one", "two"]}.items():
        with looking(cloud_db.url, two.tokens[person]) as connection:
            assert [row[0] for row in connection.execute(query.encode())] == expected
    with looking(cloud_db.url) as connection:
        assert connection.execute(query.encode()).fetchall() == []


@pytest.mark.req("DB2-09", "FN-12")
def test_two_people_of_two_companies_in_psql(two: Two, logins: dict[str, str]) -> None:
    def psql(person: str, *lines: str) -> list[str]:
        script = "\n".join(("begin;", *lines, "select tenant_id from telemetry_readings;"))
        done = subprocess.run(
            ["psql", "--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", logins[person]],
            input=script, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return (done.stdout + done.stderr).split()

    def begin(person: str) -> str:
        return f"select from begin_session('{two.tokens[person]}');"

    assert psql("ann", begin("ann")) == ["one"]
    assert psql("bea", begin("bea")) == ["two"]
    assert psql("sue", begin("sue")) == ["one"]
    choose = f"select from set_active_company_context(company_id => '{two.two}');"
    assert psql("sue", begin("sue"), choose) == ["two"]
    assert psql("ann") == []
    assert "own company only" in " ".join(psql("ann", begin("ann"), choose))


def seen(connection: psycopg.Connection, table: str) -> set[object]:
    """Whose rows there are, or nothing if the question itself is refused."""
    try:
        with connection.transaction():
            return owners(connection, table)
    except psycopg.Error:
        return set()


def user_id(database: Database, name: str) -> object:
    with psycopg.connect(database.admin_url) as connection:
        row = connection.execute(
            "select user_id from users where email = %s", (two_companies.email(name),)
        ).fetchone()
    assert row is not None
    return row[0]
