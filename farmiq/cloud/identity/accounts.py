"""Companies and people, made by an administrator with a connection of the tables' owner."""

import zoneinfo
from datetime import timedelta
from uuid import UUID

import psycopg

from farmiq.cloud.identity import desk, passwords
from farmiq.plumbing import ids

ROLES = ("viewer", "operator", "technician", "admin")


def add_company(
    connection: psycopg.Connection, tenant_id: str | None, *, name: str, timezone: str = "UTC"
) -> UUID:
    """The company of this tenant; made, or its name and time zone brought up to date.

    Without a tenant it is a new company, and its id is its tenant's.

    Raises ValueError if there is no such time zone.
    """
    if timezone not in zoneinfo.available_timezones():
        raise ValueError(f"no time zone is called {timezone!r}: give one such as Asia/Bangkok")
    return _returned(
        connection.execute(
            """
            insert into companies (company_id, tenant_id, name, timezone)
            values (%s, %s, %s, %s)
            on conflict on constraint companies_tenant_id_key
              do update set name = excluded.name, timezone = excluded.timezone
            returning company_id
            """,
            (ids.new(), tenant_id, name, timezone),
        )
    )


def add_user(
    connection: psycopg.Connection,
    email: str,
    *,
    company_id: UUID,
    password: str,
    role: str = "viewer",
    super_admin: bool = False,
) -> UUID:
    """The person of this e-mail; made, or their password and rights brought up to date.

    A new password ends every sign-in that the old one opened; the same one again does not.
    Raises ValueError if the e-mail, password or role cannot be one, or if the person belongs to
    another company: nobody changes company by being added twice.
    """
    if role not in ROLES:
        raise ValueError(f"no role is called {role!r}: give one of {', '.join(ROLES)}")
    name = desk.normal_email(email)
    if "@" not in name:
        raise ValueError(f"{email!r} is not an e-mail address")
    unchanged = _hash_if_unchanged(connection, name, password)
    user_id = _returned(
        connection.execute(
            """
            insert into users (user_id, company_id, email, password_hash, is_super_admin)
            values (%s, %s, %s, %s, %s)
            on conflict on constraint users_email_key
              do update set password_hash = excluded.password_hash,
                is_super_admin = excluded.is_super_admin
              where users.company_id = excluded.company_id
            returning user_id
            """,
            (ids.new(), company_id, name, unchanged or passwords.hashed(password), super_admin),
        ),
        otherwise=f"{name} belongs to another company",
    )
    connection.execute(
        """
        insert into memberships (user_id, company_id, role) values (%s, %s, %s)
        on conflict on constraint memberships_pkey do update set role = excluded.role
        """,
        (user_id, company_id, role),
    )
    if unchanged is None:
        connection.execute("delete from sign_ins where user_id = %s", (user_id,))
    return user_id


def open_sign_in(connection: psycopg.Connection, email: str, *, lasts: timedelta) -> str:
    """A token for psql and reports, as if this person had signed in (docs/psql.md).

    Raises ValueError if nobody has this e-mail.
    """
    token = desk.new_token()
    _returned(
        connection.execute(
            """
            insert into sign_ins (token_hash, user_id, company_id, csrf_token, expires_at)
            select %s, user_id, company_id, %s, fn_now() + %s from users where email = %s
            returning user_id
            """,
            (desk.token_hash(token), desk.new_token(), lasts, desk.normal_email(email)),
        ),
        otherwise=f"nobody has the e-mail {email!r}: add them with `farmiq user add`",
    )
    return token


def _hash_if_unchanged(connection: psycopg.Connection, email: str, password: str) -> str | None:
    row = connection.execute(
        "select password_hash from users where email = %s", (email,)
    ).fetchone()
    return row[0] if row and passwords.matches(row[0], password) else None


def _returned(cursor: psycopg.Cursor, *, otherwise: str = "nothing was kept") -> UUID:
    row = cursor.fetchone()
    if row is None:
        raise ValueError(otherwise)
    found: UUID = row[0]
    return found
