"""What the logins of services may not do at both sites, and keys that can be divided by tenant.

What the cloud's roles may do table by table is in security.py and two_companies.py.
"""

from typing import LiteralString

import psycopg
import pytest

from tests.conftest import Database

# Each would change the database itself, or reach past it.
FORBIDDEN: tuple[LiteralString, ...] = (
    "create table strangers (id int)",
    "create function stranger() returns int language sql as 'select 1'",
    "create schema strangers",
    "create role stranger",
    "create database strangers",
    "alter system set log_connections = on",
    "alter role current_user superuser",
    "copy (select 1) to program 'true'",
    "select pg_read_file('postgresql.conf')",
    "select lo_import('/etc/passwd')",
    "select pg_switch_wal()",
)
ATTRIBUTES: LiteralString = (
    "rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls"
)


@pytest.mark.parametrize("site", ["edge", "cloud"])
def test_login_of_services_owns_nothing_and_changes_no_schema(
    request: pytest.FixtureRequest, site: str
) -> None:
    database: Database = request.getfixturevalue(f"{site}_db")
    table: LiteralString = "telemetry_raw" if site == "edge" else "telemetry_readings"
    of_a_table: tuple[LiteralString, ...] = (
        "drop table " + table,
        "truncate " + table,
        "alter table " + table + " add column stranger int",
        "alter table " + table + " disable trigger all",
        "create index on " + table + " (tenant_id)",
    )
    with psycopg.connect(database.url, autocommit=True) as connection:
        for statement in (*FORBIDDEN, *of_a_table):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        may = connection.execute(
            "select " + ATTRIBUTES + " from pg_roles where rolname = current_user"  # noqa: S608
        ).fetchone()
        owned = connection.execute(
            "select count(*) from pg_class where pg_get_userbyid(relowner) = current_user"
        ).fetchone()
    assert (may, owned) == ((False,), (0,))


def test_services_of_the_cloud_do_not_become_who_looks_further(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.url, autocommit=True) as connection:
        connection.execute("set role authenticated")
        connection.execute("reset role")
        for role in ("farmiq_jobs", "postgres", "farmiq"):
            with pytest.raises(psycopg.Error):
                connection.execute(f"set role {role}".encode())


# Lists of what people did, invitations and keys: they grow with people, not with animals; and
# marks of work, which are gone within seconds.
NOT_BY_TENANT = {
    "alert_actions",
    "analytics_dirty_days",
    "dead_letter_actions",
    "dead_letter_orders",
    "edge_actions",
    "edge_invites",
    "edge_keys",
    "master_data_actions",
}


def test_tenant_is_the_first_column_of_every_key_of_a_table_that_grows(cloud_db: Database) -> None:
    """So that tables can be divided among servers by tenant: a key lies whole on one of them."""
    with psycopg.connect(cloud_db.admin_url) as connection:
        rows = connection.execute(
            """
            select c.relname, coalesce(a.attname, '') from pg_class c
            join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant_id'
            left join pg_index i on i.indrelid = c.oid and i.indisprimary
            left join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
            where c.relkind in ('r', 'p') and not c.relispartition
              and c.relnamespace = 'public'::regnamespace and c.relname <> 'companies'
            """
        ).fetchall()
    assert len(rows) > len(NOT_BY_TENANT) * 3
    assert {table for table, first in rows if first != "tenant_id"} == NOT_BY_TENANT
