"""What is wrong with a cloud database's security, in sentences, from PostgreSQL's own catalog.

All schemas but PostgreSQL's own are looked at, and whatever is not named here as allowed is wrong.
"""

import psycopg

from tests.sql.calls import CALLS
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
# The functions of 004 keep the accounts of cameras; nobody else writes them (C-67, C-76).
ACCOUNTS = (
    "device_alerts",
    "device_assignments",
    "device_images",
    "device_schedule_changes",
    "device_wake_payloads",
    "devices",
    "expected_wakes",
    "petri_observations",
    "pilot_programs",
    "site_device_sessions",
    "sites",
)
# What farmiq_jobs may do, and on which columns: its functions look past their caller's company.
JOBS_MAY: dict[tuple[str, str], set[str]] = {
    ("companies", "SELECT"): {"company_id", "tenant_id", "name", "timezone"},
    # Super admins add companies.
    ("companies", "INSERT"): {"company_id", "tenant_id", "name", "timezone"},
    ("memberships", "SELECT"): {"user_id", "company_id", "role"},
    ("users", "SELECT"): {"user_id", "company_id", "email", "is_super_admin"},
    # Admins change the people of their company; the policies leave super admins to the owner.
    ("users", "INSERT"): {
        "user_id",
        "company_id",
        "email",
        "password_hash",
        "must_change_password",
    },
    ("users", "UPDATE"): {"password_hash", "must_change_password"},
    ("users", "DELETE"): set(),
    ("memberships", "INSERT"): {"user_id", "company_id", "role"},
    ("memberships", "UPDATE"): {"role"},
    ("user_actions", "INSERT"): {
        "action_id",
        "at",
        "actor",
        "action",
        "company_id",
        "user_id",
        "email",
        "detail",
    },
    # Who asked for an image again.
    ("master_data_actions", "INSERT"): {
        "action_id",
        "at",
        "actor",
        "action",
        "tenant_id",
        "kind",
        "key",
        "detail",
    },
    ("dish_series", "SELECT"): {"company_id", "device_id", "ended_at"},
    ("dish_series", "UPDATE"): {"ended_at", "ended_by"},
    ("sign_ins", "DELETE"): set(),
    ("sign_ins", "SELECT"): {"token_hash", "user_id", "company_id", "expires_at"},
    ("second_factors", "DELETE"): set(),
    ("second_factors", "SELECT"): {"user_id", "company_id", "confirmed_at"},
    ("camera_logins", "SELECT"): {
        "device_id",
        "company_id",
        "made_at",
        "revoked_at",
        "paused_until",
    },
    ("camera_transfers", "SELECT"): {"company_id", "image_id", "state", "heard_at", "due_at"},
}
# Days that a wrong clock opened (the tables' own triggers refuse any other); people whom an admin
# removes, sign-ins that end with a password, second factors that were lost.
JOBS_DELETE = {"expected_wakes", "site_device_sessions", "users", "sign_ins", "second_factors"}
HIDDEN_FROM_PEOPLE = {
    ("users", "password_hash"),
    ("alert_channels", "secrets"),
    ("second_factors", "secret"),
    ("second_factors", "last_step"),
    ("second_factors", "recovery_hashes"),
}
# Row level security does not hold for these, or they change what it holds for.
NEVER_GRANTED = ("TRUNCATE", "TRIGGER", "REFERENCES", "MAINTAIN")
# Role → roles it is a member of.
MEMBER_OF = {
    "authenticated": set[str](),
    "farmiq_service": {"authenticated"},
    "farmiq_jobs": set[str](),
}
# Nobody but the owner of a table can make or drop its partitions.
OWNERS_FUNCTIONS = {
    "fn_make_telemetry_month",
    "fn_drop_telemetry_month",
    "fn_drop_archived_month",
}
ATTRIBUTES = {
    "rolsuper": "is a superuser",
    "rolbypassrls": "bypasses row level security",
    "rolcreaterole": "may create roles",
    "rolcreatedb": "may create databases",
    "rolreplication": "may replicate",
}


def problems(connection: psycopg.Connection) -> list[str]:
    return [
        *_tables(connection),
        *_policies(connection),
        *_views(connection),
        *_functions(connection),
        *_callable(connection),
        *_granted(connection),
        *_columns_granted(connection),
        *_places(connection),
        *_roles(connection),
        *_members(connection),
    ]


def _tables(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select c.oid::regclass::text, c.relrowsecurity and c.relforcerowsecurity,
          array(select p.polcmd::text from pg_policy p where p.polrelid = c.oid),
          exists (select from pg_policy p where p.polrelid = c.oid and p.polname = %s)
        from pg_class c
        where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
          and c.relkind in ('r', 'p') order by 1
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
            if not any(command in _commands(each) for each in commands)
        ]
        if not for_people and table not in NOT_OF_A_COMPANY | NOT_FOR_PEOPLE:
            wrong.append(f"{table}: no policy {POLICY!r}")
    return wrong


def _policies(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select c.oid::regclass::text, p.polname, p.polcmd::text, pg_get_expr(p.polqual, p.polrelid),
          pg_get_expr(p.polwithcheck, p.polrelid), pg_get_userbyid(c.relowner),
          array(select case when r = 0 then 'public' else pg_get_userbyid(r)::text end
                from unnest(p.polroles) r)
        from pg_policy p join pg_class c on c.oid = p.polrelid
        where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)' order by 1, 2
        """
    ).fetchall()
    wrong = []
    for table, name, letter, condition, check, owner, roles in found:
        where, commands = f"{table}: policy {name}", _commands(letter)
        if letter not in {"r", "d"} and check is None:
            wrong.append(f"{where} has no with check")
        wrong += [
            f"{where} is for {role}, whom we do not know"
            for role in roles
            if role not in {"public", owner, *OUR_ROLES}
        ]
        if table in NOT_OF_A_COMPANY:
            continue
        if {"public", "farmiq_jobs"} & set(roles):
            wrong += [
                f"{where} lets farmiq_jobs {command.lower()}: JOBS_MAY does not name it"
                for command in commands
                if (table, command) not in JOBS_MAY and table not in ACCOUNTS
            ]
        if table == "users" and "farmiq_jobs" in roles and commands != ("SELECT",):
            wrong += [
                f"{where} lets farmiq_jobs change super admins"
                for text in (condition, check)
                if text not in {None, "(NOT is_super_admin)"}
            ][:1]
        if PEOPLE & set(roles):
            if commands != ("SELECT",):
                wrong.append(f"{where} lets people write")
            if condition not in CONDITIONS:
                wrong.append(f"{where} shows people more than their company: {condition}")
    return wrong


def _commands(letter: str) -> tuple[str, ...]:
    """The commands of a policy, from pg_policy.polcmd."""
    return COMMANDS if letter == "*" else (COMMANDS["rawd".index(letter)],)


def _views(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select c.oid::regclass::text, c.relkind::text, coalesce(c.reloptions, '{}') from pg_class c
        where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
          and c.relkind in ('v', 'm', 'f') order by 1
        """
    ).fetchall()
    wrong = []
    for name, kind, options in found:
        if kind == "m":
            wrong.append(f"{name}: a materialized view has no row level security")
        elif kind == "f":
            wrong.append(f"{name}: a foreign table has no row level security")
        elif not {"security_invoker=true", "security_invoker=on"} & set(options):
            wrong.append(f"{name}: the view is not security_invoker")
    return wrong


def _functions(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select p.oid::regproc::text, coalesce(p.proconfig, '{}'), pg_get_userbyid(p.proowner),
          p.prosecdef,
          p.proacl is null
            or exists (select from aclexplode(p.proacl) a
                       where a.grantee = 0 and a.privilege_type = 'EXECUTE')
        from pg_proc p
        where p.pronamespace::regnamespace::text !~ '^(pg_|information_schema$)' order by 1
        """
    ).fetchall()
    wrong = []
    for name, settings, owner, definer, public in found:
        if not definer:
            if owner in OUR_ROLES:
                wrong.append(f"{name}: belongs to {owner} without being security definer")
            continue
        # pg_temp is searched first for tables unless it is named: anybody could put one there.
        if "search_path=pg_catalog, pg_temp" not in settings:
            wrong.append(f"{name}: security definer without a pinned search_path")
        if public:
            wrong.append(f"{name}: security definer that everybody may execute")
        if owner != "farmiq_jobs" and name not in OWNERS_FUNCTIONS:
            wrong.append(f"{name}: security definer that belongs to {owner}, not to farmiq_jobs")
    return wrong


def _callable(connection: psycopg.Connection) -> list[str]:
    """Functions that people may execute and that no test calls as people of two companies."""
    found = connection.execute(
        """
        select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace::regnamespace::text !~ '^(pg_|information_schema$)'
          and has_function_privilege('authenticated', p.oid, 'execute') order by 1
        """
    ).fetchall()
    return [
        f"{name}: people may execute it: say in CALLS how, so that a test looks at its answers"
        for (name,) in found
        if name not in CALLS
    ]


def _granted(connection: psycopg.Connection) -> list[str]:
    """What our roles and everybody may do to whole tables and views."""
    since_17 = connection.info.server_version >= 170000
    found = connection.execute(
        """
        select c.oid::regclass::text, r.role, p.privilege
        from pg_class c,
          unnest(%(roles)s::text[]) r(role), unnest(%(privileges)s::text[]) p(privilege)
        where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
          and c.relkind in ('r', 'p', 'v', 'm', 'f')
          and has_table_privilege(r.role, c.oid, p.privilege) order by 1, 2, 3
        """,
        {
            "roles": ["public", *OUR_ROLES],
            "privileges": [
                "DELETE",
                *(each for each in NEVER_GRANTED if since_17 or each != "MAINTAIN"),
            ],
        },
    ).fetchall()
    return [
        f"{table}: {role} may {privilege.lower()}"
        for table, role, privilege in found
        if not (role == "farmiq_service" and privilege == "DELETE")
        and not (role == "farmiq_jobs" and privilege == "DELETE" and table in JOBS_DELETE)
    ]


def _columns_granted(connection: psycopg.Connection) -> list[str]:
    found = connection.execute(
        """
        select c.oid::regclass::text, a.attname, r.role, p.privilege
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
            and not a.attisdropped,
          unnest(%(roles)s::text[]) r(role), unnest(%(privileges)s::text[]) p(privilege)
        where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
          and c.relkind in ('r', 'p', 'v', 'm', 'f')
          and has_column_privilege(r.role, c.oid, a.attnum, p.privilege) order by 1, 2, 3, 4
        """,
        {
            "roles": ["public", *OUR_ROLES],
            "privileges": ["SELECT", "INSERT", "UPDATE", "REFERENCES"],
        },
    ).fetchall()
    return [
        f"{table}.{column}: {role} may {privilege.lower()}"
        for table, column, role, privilege in found
        if not _may(role, privilege, table, column)
    ]


def _may(role: str, privilege: str, table: str, column: str) -> bool:
    if privilege == "SELECT" and table in NOT_OF_A_COMPANY:
        return True
    if role == "farmiq_service":
        return privilege in COMMANDS
    if role == "farmiq_jobs":
        if table in ACCOUNTS:
            return privilege in COMMANDS
        return column in JOBS_MAY.get((table, privilege), set())
    hidden = table in NOT_FOR_PEOPLE or (table, column) in HIDDEN_FROM_PEOPLE
    return role == "authenticated" and privilege == "SELECT" and not hidden


def _places(connection: psycopg.Connection) -> list[str]:
    """Schemas and databases in which one of ours, or everybody, may make things."""
    found = connection.execute(
        """
        select 'schema ' || n.nspname, r.role from pg_namespace n, unnest(%(roles)s::text[]) r(role)
        where n.nspname !~ '^(pg_|information_schema$)'
          and has_schema_privilege(r.role, n.oid, 'create')
        union all
        select 'database', r.role from unnest(%(roles)s::text[]) r(role)
        where has_database_privilege(r.role, current_database(), 'create')
        order by 1, 2
        """,
        {"roles": ["public", *OUR_ROLES]},
    ).fetchall()
    return [f"{place}: {role} may make things in it" for place, role in found]


def _roles(connection: psycopg.Connection) -> list[str]:
    """Ours, and whomever one of ours can become: no powers, and nothing owned but functions."""
    found = connection.execute(
        """
        select r.rolname, to_jsonb(r),
          exists (select from pg_class c where c.relowner = r.oid
                  and c.relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'),
          exists (select from pg_namespace n where n.nspowner = r.oid)
            or exists (select from pg_database d where d.datdba = r.oid)
        from pg_roles r
        where r.rolname = any(%(ours)s)
          or exists (select from unnest(%(ours)s::text[]) o where pg_has_role(o, r.oid, 'member'))
        order by 1
        """,
        {"ours": list(OUR_ROLES)},
    ).fetchall()
    wrong = [f"{role}: there is no such role" for role in {*OUR_ROLES} - {row[0] for row in found}]
    for name, role, owns_tables, owns_places in found:
        wrong += [f"{name}: {what}" for attribute, what in ATTRIBUTES.items() if role[attribute]]
        if owns_tables:
            wrong.append(f"{name}: owns tables or sequences")
        if owns_places:
            wrong.append(f"{name}: owns a schema or a database")
        # The services' role is a login once its operator gives it a password.
        if role["rolcanlogin"] and name != "farmiq_service":
            wrong.append(f"{name}: can log in")
        if not role["rolinherit"]:
            wrong.append(f"{name}: does not inherit")
    return wrong


def _members(connection: psycopg.Connection) -> list[str]:
    """The graph around our roles: exactly MEMBER_OF, and above it only people and the owner."""
    found = connection.execute(
        """
        select pg_get_userbyid(m.member), pg_get_userbyid(m.roleid), m.admin_option,
          m.member in (select c.relowner from pg_class c where c.oid = to_regclass('companies'))
        from pg_auth_members m
        where pg_get_userbyid(m.member) = any(%(ours)s) or pg_get_userbyid(m.roleid) = any(%(ours)s)
        order by 1, 2
        """,
        {"ours": list(OUR_ROLES)},
    ).fetchall()
    wrong = [
        f"{role}: is not a member of {other}"
        for role, others in MEMBER_OF.items()
        for other in others - {row[1] for row in found if row[0] == role}
    ]
    for member, role, admin, is_owner in found:
        if member in OUR_ROLES:
            if role not in MEMBER_OF[member]:
                wrong.append(f"{member}: is a member of {role}")
            if admin:
                wrong.append(f"{member}: may hand on {role}")
        # People's logins are members of authenticated; whoever migrates hands out all three.
        elif role != "authenticated" and not is_owner:
            wrong.append(f"{member}: is a member of {role}, which is for services only")
    return wrong
