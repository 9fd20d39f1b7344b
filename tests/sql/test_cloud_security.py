"""Tenants never meet: every table of the cloud, now and to come, keeps companies apart."""

from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from farmiq.cloud.identity.accounts import add_company, add_user
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.sql import catalog

# Not a company's data: which migrations were applied.
NOT_OF_A_COMPANY = {"schema_migrations"}
# Only services read these; people see nothing of them, not even their own.
NOT_FOR_PEOPLE = {"sign_ins"}

SEED = {
    "ingestion_dedupe": """
        insert into ingestion_dedupe (tenant_id, event_id, event_type, content_hash, batch_id)
        values (%(tenant)s, %(id)s, 'telemetry.ingested', 'x', 'b')""",
    "event_conflicts": """
        insert into event_conflicts
          (tenant_id, event_id, content_hash, first_content_hash, batch_id)
        values (%(tenant)s, %(id)s, 'x', 'y', 'b')""",
    "telemetry_readings": """
        insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
          metric_type, metric_value, unit, occurred_at, trace_id)
        values (%(tenant)s, %(id)s, 'f', 'b', 'd', 'temperature', 1, 'C', now(), 't')""",
    "telemetry_latest": """
        insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
          metric_value, unit, occurred_at, reading_count)
        values (%(tenant)s, 'd', 'temperature', 'f', 'b', %(id)s, 1, 'C', now(), 1)""",
    "sign_ins": """
        insert into sign_ins (token_hash, user_id, company_id, csrf_token, expires_at)
        select %(tenant)s::bytea, user_id, company_id, 'c', now() from users
        where company_id = %(company)s""",
}


@pytest.fixture
def companies(cloud_db: Database) -> tuple[UUID, UUID]:
    """Two companies with a row each in every table; a table that cannot be seeded fails here."""
    with psycopg.connect(cloud_db.admin_url) as connection:
        made = []
        for tenant in ("one", "two"):
            company = add_company(connection, tenant, name=tenant)
            add_user(connection, f"p@{tenant}.farm", company_id=company, password="long enough 1")
            for statement in SEED.values():
                values = {"tenant": tenant, "id": ids.new(), "company": company}
                connection.execute(statement.encode(), values)
            made.append(company)
    missing = set(catalog.tables(cloud_db.admin_url)) - {
        *SEED,
        *NOT_OF_A_COMPANY,
        "companies",
        "users",
    }
    assert not missing, f"say in SEED how to fill {missing}, so that this test covers them"
    return made[0], made[1]


def _as_person(connection: psycopg.Connection, company: UUID | None) -> None:
    """What the console does at the head of each transaction."""
    connection.execute("set local role authenticated")
    if company is not None:
        connection.execute("select set_config('farmiq.company_id', %s, true)", (str(company),))


def _count(url: str, table: str, *, company: UUID | None) -> int:
    column = next(iter(catalog.columns(url, table)))
    with psycopg.connect(url) as connection:
        _as_person(connection, company)
        row = connection.execute(
            sql.SQL("select count({}) from {}").format(
                sql.Identifier(column), sql.Identifier(table)
            )
        ).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def _of_companies(url: str) -> list[str]:
    return [t for t in catalog.tables(url) if t not in NOT_OF_A_COMPANY | NOT_FOR_PEOPLE]


def test_each_company_sees_its_own_row_and_no_other(
    cloud_db: Database, companies: tuple[UUID, UUID]
) -> None:
    for table in _of_companies(cloud_db.url):
        for company in companies:
            assert _count(cloud_db.url, table, company=company) == 1, table


def test_without_a_context_nobody_sees_anything(
    cloud_db: Database, companies: tuple[UUID, UUID]
) -> None:
    assert companies
    for table in _of_companies(cloud_db.url):
        assert _count(cloud_db.url, table, company=None) == 0, table


def test_a_context_does_not_outlive_its_transaction(
    cloud_db: Database, companies: tuple[UUID, UUID]
) -> None:
    with psycopg.connect(cloud_db.url, autocommit=True) as connection:
        with connection.transaction():
            _as_person(connection, companies[0])
        with connection.transaction():
            _as_person(connection, None)
            row = connection.execute("select count(*) from telemetry_readings").fetchone()
    assert row == (0,)


def test_people_cannot_read_passwords_or_sign_ins(
    cloud_db: Database, companies: tuple[UUID, UUID]
) -> None:
    for query in ("select password_hash from users", "select * from sign_ins"):
        with psycopg.connect(cloud_db.url) as connection:
            _as_person(connection, companies[0])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query.encode())


def test_people_cannot_write(cloud_db: Database, companies: tuple[UUID, UUID]) -> None:
    for table in _of_companies(cloud_db.url):
        for verb in ("delete from {}", "insert into {} default values"):
            with psycopg.connect(cloud_db.url) as connection:
                _as_person(connection, companies[0])
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(verb).format(sql.Identifier(table)))


def test_every_table_forces_row_level_security_and_has_policies(cloud_db: Database) -> None:
    assert _unguarded(cloud_db.admin_url) == []


def test_the_scan_catches_a_table_without_security_and_an_open_policy(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute("create table planted_bare (tenant_id text)")
        connection.execute("create table planted_open (tenant_id text)")
        connection.execute("alter table planted_open enable row level security")
        connection.execute("alter table planted_open force row level security")
        connection.execute("create policy open on planted_open using (true)")
    assert _unguarded(cloud_db.admin_url) == [
        "planted_bare: row level security is not forced",
        "planted_bare: no policy",
        "planted_open: policy open lets people see every row",
    ]


def test_the_services_login_owns_nothing_and_bypasses_nothing(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.url) as connection:
        rights = connection.execute(
            "select rolsuper, rolbypassrls, rolcreaterole from pg_roles "
            "where rolname = current_user"
        ).fetchone()
        owned = connection.execute(
            "select count(*) from pg_class where relowner = "
            "(select oid from pg_roles where rolname = current_user)"
        ).fetchone()
    assert rights == (False, False, False)
    assert owned == (0,)


def _unguarded(url: str) -> list[str]:
    """What is wrong with the tables' security, in sentences."""
    with psycopg.connect(url) as connection:
        forced: dict[str, bool] = dict(
            connection.execute(
                "select relname, relrowsecurity and relforcerowsecurity from pg_class "
                "where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')"
            ).fetchall()
        )
        policies = connection.execute(
            "select tablename, policyname, roles::text[], qual from pg_policies "
            "where schemaname = 'public' order by 1, 2"
        ).fetchall()
    wrong = []
    for table in sorted(forced):
        if not forced[table]:
            wrong.append(f"{table}: row level security is not forced")
        own = [policy for policy in policies if policy[0] == table]
        if not own:
            wrong.append(f"{table}: no policy")
        wrong += [
            f"{table}: policy {name} lets people see every row"
            for _, name, roles, condition in own
            if table not in NOT_OF_A_COMPANY
            and ({"public", "authenticated"} & set(roles))
            and condition == "true"
        ]
    return wrong
