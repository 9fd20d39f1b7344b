"""What is wrong with a cloud database's security, in sentences, from PostgreSQL's own catalog."""

import psycopg

from tests.sql.two_companies import NOT_FOR_PEOPLE, NOT_OF_A_COMPANY

OUR_ROLES = ("authenticated", "farmiq_service", "farmiq_jobs")
COMMANDS = ("SELECT", "INSERT", "UPDATE", "DELETE")
PEOPLE = {"public", "authenticated"}
POLICY = "Users see in their company"
# The text of 004, and its twin for the tables of the bus, which know tenants (C-52).
CONDITIONS = {
    "(company_id = get_active_company_id())",
    "(tenant_id = ( SELECT get_active_tenant_id() AS get_active_tenant_id))",
}


def problems(connection: psycopg.Connection) -> list[str]:
    return [
        *_tables(connection),
        *_policies(connection),
        *_views(connection),
        *_functions(connection),
        *_roles(connection),
    ]


def _tables(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select c.relname, c.relrowsecurity and c.relforcerowsecurity,
          array(select p.cmd from pg_policies p
                where p.schemaname = 'public' and p.tablename = c.relname),
          exists (select from pg_policies p where p.schemaname = 'public'
                  and p.tablename = c.relname and p.policyname = %s)
        from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') order by 1
        """,
        (POLICY,),
    ).fetchall()
    wrong = []
    for table, forced, commands, for_people in found:
        if not forced:
            wrong.append(f"{table}: row level security is not forced")
        wrong += [
            f"{table}: no policy for {command.lower()}"
            for command in COMMANDS
            if not {command, "ALL"} & set(commands)
        ]
        if not for_people and table not in NOT_OF_A_COMPANY | NOT_FOR_PEOPLE:
            wrong.append(f"{table}: no policy {POLICY!r}")
    return wrong


def _policies(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select tablename, policyname, roles::text[], cmd, qual, with_check
        from pg_policies where schemaname = 'public' order by 1, 2
        """
    ).fetchall()
    wrong = []
    for table, name, roles, command, condition, check in found:
        where = f"{table}: policy {name}"
        if command not in {"SELECT", "DELETE"} and check is None:
            wrong.append(f"{where} has no with check")
        if table in NOT_OF_A_COMPANY or not PEOPLE & set(roles):
            continue
        if command != "SELECT":
            wrong.append(f"{where} lets people write")
        if condition not in CONDITIONS:
            wrong.append(f"{where} shows people more than their company: {condition}")
    return wrong


def _views(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select relname, relkind = 'm', coalesce(reloptions, '{}') from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('v', 'm') order by 1
        """
    ).fetchall()
    return [
        f"{name}: a materialized view has no row level security"
        if materialized
        else f"{name}: the view is not security_invoker"
        for name, materialized, options in found
        if materialized or not {"security_invoker=true", "security_invoker=on"} & set(options)
    ]


def _functions(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select p.proname, coalesce(p.proconfig, '{}'), pg_get_userbyid(p.proowner),
          p.proacl is null
            or exists (select from aclexplode(p.proacl) a
                       where a.grantee = 0 and a.privilege_type = 'EXECUTE')
        from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prosecdef order by 1
        """
    ).fetchall()
    wrong = []
    for name, settings, owner, public in found:
        # pg_temp is searched first for tables unless it is named: anybody could put one there.
        if "search_path=pg_catalog, pg_temp" not in settings:
            wrong.append(f"{name}: security definer without a pinned search_path")
        if public:
            wrong.append(f"{name}: security definer that everybody may execute")
        if owner != "farmiq_jobs":
            wrong.append(f"{name}: security definer that belongs to {owner}, not to farmiq_jobs")
    return wrong


def _roles(connection: psycopg.Connection) -> list[str]:
    """Ours, and everybody who can become one of ours or whom one of ours can become."""
    found = connection.execute(
        """
        select r.rolname, r.rolsuper, r.rolbypassrls,
          exists (select from pg_class c where c.relowner = r.oid and c.relkind in ('r', 'p', 'v')
                  and c.relnamespace = 'public'::regnamespace),
          r.rolcanlogin and r.rolname = 'farmiq_jobs'
        from pg_roles r
        where r.rolname = any(%(ours)s)
          or exists (select from unnest(%(ours)s) o where pg_has_role(o, r.oid, 'member'))
        order by 1
        """,
        {"ours": list(OUR_ROLES)},
    ).fetchall()
    wrong = []
    for name, superuser, bypass, owns, logs_in in found:
        if superuser:
            wrong.append(f"{name}: is a superuser")
        if bypass:
            wrong.append(f"{name}: bypasses row level security")
        if owns:
            wrong.append(f"{name}: owns tables")
        if logs_in:
            wrong.append(f"{name}: can log in")
    return wrong
