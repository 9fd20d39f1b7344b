"""Companies and people, created by an administrator with a connection of the tables' owner."""

from datetime import timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from farmiq.cloud.identity import passwords, store
from farmiq.messages.wording import worded
from farmiq.plumbing import ids, zones

ROLES = ("viewer", "operator", "technician", "admin")


def add_company(
    connection: psycopg.Connection, tenant_id: str | None, *, name: str, timezone: str = "UTC"
) -> UUID:
    """Create the company of this tenant, or update its name and time zone.

    Without a tenant it is a new company, and its id is its tenant's.

    Raises ValueError if there is no such time zone.
    """
    if timezone not in zones.names():
        raise ValueError(
            worded(
                "no time zone is called %(zone)s: give one such as Asia/Bangkok",
                zone=repr(timezone),
            )
        )
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


def companies(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """Every company, with the number of its people."""
    return _dicts(
        connection,
        """
        select c.tenant_id, c.name, c.timezone, c.company_id, c.created_at,
          (select count(*) from users u where u.company_id = c.company_id) as people
        from companies c order by c.tenant_id
        """,
    )


def users(connection: psycopg.Connection, tenant_id: str | None = None) -> list[dict[str, Any]]:
    """People, their rights and the number of their open sign-ins, of all companies or one."""
    return _dicts(
        connection,
        """
        select u.email, m.role, c.tenant_id, u.is_super_admin as super_admin, u.user_id,
          u.created_at,
          (select count(*) from sign_ins s
           where s.user_id = u.user_id and s.expires_at > fn_now()) as sign_ins
        from users u join companies c using (company_id)
        left join memberships m on m.user_id = u.user_id and m.company_id = u.company_id
        where %(tenant)s::text is null or c.tenant_id = %(tenant)s
        order by c.tenant_id, u.email
        """,
        tenant=tenant_id,
    )


def user_log(
    connection: psycopg.Connection, *, email: str | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Who was added, changed or removed by whom, newest first."""
    return _dicts(
        connection,
        """
        select a.at, a.actor, a.action, a.email, c.tenant_id, a.user_id, a.detail
        from user_actions a join companies c using (company_id)
        where %(email)s::text is null or a.email = %(email)s
        order by a.at desc, a.action_id desc limit %(limit)s
        """,
        email=None if email is None else store.normal_email(email),
        limit=limit,
    )


def add_user(
    connection: psycopg.Connection,
    email: str,
    *,
    company_id: UUID,
    password: str,
    role: str = "viewer",
    super_admin: bool = False,
    actor: str = "owner",
) -> UUID:
    """Create the person of this e-mail, or update their password and rights.

    A new password ends every sign-in that the old one opened; the same one again does not.
    Raises ValueError if the e-mail, password or role cannot be one, or if the person belongs to
    another company: nobody changes company by being added twice.
    """
    if role not in ROLES:
        raise ValueError(f"no role is called {role!r}: give one of {', '.join(ROLES)}")
    name = store.normal_email(email)
    if "@" not in name:
        raise ValueError(worded("%(email)s is not an e-mail address", email=repr(email)))
    before = connection.execute(
        """
        select u.password_hash, m.role, u.is_super_admin
        from users u left join memberships m using (user_id, company_id) where u.email = %s
        """,
        (name,),
    ).fetchone()
    unchanged = before[0] if before and passwords.matches(before[0], password) else None
    user_id = _returned(
        connection.execute(
            """
            insert into users (user_id, company_id, email, password_hash, is_super_admin)
            values (%s, %s, %s, %s, %s)
            on conflict on constraint users_email_key
              do update set password_hash = excluded.password_hash,
                is_super_admin = excluded.is_super_admin,
                must_change_password = users.must_change_password
                  and users.password_hash = excluded.password_hash
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
    rights = role + (", super admin" if super_admin else "")
    if before is None:
        _audit(connection, actor, "add", name, detail=rights)
    elif before[1:] != (role, super_admin):
        _audit(connection, actor, "change", name, detail=rights)
    if before is not None and unchanged is None:
        _end_sign_ins(connection, actor, name)
    return user_id


def change_password(
    connection: psycopg.Connection, email: str, password: str, *, actor: str
) -> int:
    """Returns how many sign-ins have ended by it: all that this person had open.

    Raises ValueError if nobody has this e-mail or the password cannot be one.
    """
    name = known(connection, email)
    connection.execute(
        "update users set password_hash = %s, must_change_password = false where email = %s",
        (passwords.hashed(password), name),
    )
    return _end_sign_ins(connection, actor, name)


def reset_second_factor(connection: psycopg.Connection, email: str, *, actor: str) -> int | None:
    """Returns how many sign-ins have ended by it; None if the person has no second factor.

    Raises ValueError if nobody has this e-mail.
    """
    name = known(connection, email)
    removed = connection.execute(
        "delete from second_factors where user_id = (select user_id from users where email = %s)",
        (name,),
    )
    if not removed.rowcount:
        return None
    return _end_sign_ins(connection, actor, name, action="reset_second_factor")


def set_second_factor_rule(
    connection: psycopg.Connection, tenant_id: str, role: str | None
) -> None:
    """People of this role and above need a second factor; None: nobody does.

    Raises ValueError if there is no such role or company.
    """
    if role is not None and role not in store.RANKS:
        raise ValueError(f"no role is called {role!r}: give one of {', '.join(store.RANKS)}")
    _returned(
        connection.execute(
            """
            update companies set second_factor_from = %s where tenant_id = %s returning company_id
            """,
            (role, tenant_id),
        ),
        otherwise=f"there is no company {tenant_id!r}; `farmiq company ls` lists them",
    )


def remove_user(connection: psycopg.Connection, email: str, *, actor: str) -> int:
    """Returns how many sign-ins have ended by it. What the person did stays under their name.

    Raises ValueError if nobody has this e-mail.
    """
    name = known(connection, email)
    _audit(connection, actor, "remove", name)
    ended = _open_sign_ins(connection, name)
    connection.execute("delete from users where email = %s", (name,))
    return ended


def open_sign_in(
    connection: psycopg.Connection, email: str, *, lasts: timedelta, actor: str = "owner"
) -> str:
    """A token for psql and reports, as if this person had signed in (docs/integrate/psql.md).

    Raises ValueError if nobody has this e-mail.
    """
    token = store.new_token()
    _returned(
        connection.execute(
            """
            insert into sign_ins (token_hash, user_id, company_id, csrf_token, expires_at, method)
            select %s, user_id, company_id, %s, fn_now() + %s, 'command' from users
            where email = %s
            returning user_id
            """,
            (store.hash_token(token), store.new_token(), lasts, store.normal_email(email)),
        ),
        otherwise=f"nobody has the e-mail {email!r}: add them with `farmiq user add`",
    )
    _audit(connection, actor, "sign_in", store.normal_email(email), detail="command")
    return token


def known(connection: psycopg.Connection, email: str) -> str:
    """The e-mail as it is stored; the row is locked until the end of the transaction.

    Raises ValueError if nobody has this e-mail.
    """
    name = store.normal_email(email)
    _returned(
        connection.execute("select user_id from users where email = %s for update", (name,)),
        otherwise=f"nobody has the e-mail {email!r}: `farmiq user ls` lists everybody",
    )
    return name


def _open_sign_ins(connection: psycopg.Connection, email: str) -> int:
    cursor = connection.execute(
        """
        select count(*) from sign_ins s join users u using (user_id)
        where u.email = %s and s.expires_at > fn_now()
        """,
        (email,),
    )
    row = cursor.fetchone()
    return row[0] if row else 0


def _end_sign_ins(
    connection: psycopg.Connection, actor: str, email: str, *, action: str = "password"
) -> int:
    """How the person signs in has changed: sign-ins with what was before end."""
    ended = _open_sign_ins(connection, email)
    connection.execute(
        "delete from sign_ins where user_id = (select user_id from users where email = %s)",
        (email,),
    )
    _audit(connection, actor, action, email)
    return ended


def _audit(
    connection: psycopg.Connection, actor: str, action: str, email: str, *, detail: str = ""
) -> None:
    connection.execute(
        """
        insert into user_actions (action_id, at, actor, action, company_id, user_id, email, detail)
        select %s, fn_now(), %s, %s, company_id, user_id, email, %s from users where email = %s
        """,
        (ids.new(), actor, action, detail, email),
    )


def _dicts(connection: psycopg.Connection, query: LiteralString, **values: Any) -> list[Any]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, values).fetchall()


def _returned(cursor: psycopg.Cursor, *, otherwise: str = "no row was returned") -> UUID:
    row = cursor.fetchone()
    if row is None:
        raise ValueError(otherwise)
    row_id: UUID = row[0]
    return row_id
