"""The tables users, memberships, sign_ins and second_factors, as the service sees them."""

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from farmiq.plumbing import db, ids

# Each may what those before it may.
RANKS = ("viewer", "operator", "technician", "admin", "super_admin")
Method = Literal["password", "code", "recovery_code", "command"]
# What a person has to do before anything else.
Step = Literal["password", "second_factor"]


@dataclass(frozen=True, slots=True)
class User:
    user_id: UUID
    company_id: UUID
    password_hash: str = field(repr=False)
    email: str
    has_second_factor: bool


@dataclass(frozen=True, slots=True)
class SignIn:
    """A person who has proven who they are, until it expires or they sign out.

    `company_id` is the company this sign-in looks at: a super admin's choice, else their own.
    """

    token: str = field(repr=False)
    token_hash: bytes
    user_id: UUID
    company_id: UUID
    email: str
    is_super_admin: bool
    csrf_token: str = field(repr=False)
    remaining_s: float
    session_id: UUID
    language: str | None
    required_step: Step | None


_TOKEN_BYTES = 32
TOKEN_LENGTH = 43  # of 32 bytes in URL-safe base64
_MAX_EMAIL = 254
_SEEN_EVERY = timedelta(minutes=1)
_FAILURES_AN_HOUR = 10


def new_token() -> str:
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """As sign_ins holds it."""
    return hashlib.sha256(token.encode()).digest()


def normal_email(email: str) -> str:
    """As users.email holds it; what cannot be an e-mail becomes one that nobody has."""
    trimmed = email.strip().lower()
    return "" if len(trimmed) > _MAX_EMAIL or "\0" in trimmed else trimmed


async def find_user(connection: db.Connection, email: str) -> User | None:
    rows = await db.fetch_all(
        connection,
        """
        select u.user_id, u.company_id, u.password_hash, u.email, f.confirmed_at is not null
        from users u left join second_factors f using (user_id) where u.email = %s
        """,
        email,
    )
    return User(*rows[0]) if rows else None


async def user(connection: db.Connection, user_id: UUID) -> User | None:
    rows = await db.fetch_all(
        connection,
        """
        select u.user_id, u.company_id, u.password_hash, u.email, f.confirmed_at is not null
        from users u left join second_factors f using (user_id) where u.user_id = %s
        """,
        user_id,
    )
    return User(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class Client:
    """Where a request comes from; `user_agent` is what the browser says that it is."""

    network: str
    user_agent: str = ""


async def insert_sign_in(
    connection: db.Connection,
    user: User,
    *,
    token_hash: bytes,
    csrf_token: str,
    lasts: timedelta,
    client: Client,
    method: Method,
) -> None:
    await connection.execute(
        """
        insert into sign_ins (token_hash, user_id, company_id, csrf_token, created_at, expires_at,
          last_seen_at, network, user_agent, method)
        values (%s, %s, %s, %s, fn_now(), fn_now() + %s, fn_now(), %s, %s, %s)
        """,
        (
            token_hash, user.user_id, user.company_id, csrf_token, lasts, client.network,
            client.user_agent, method,
        ),
    )  # fmt: skip


async def find_sign_in(
    connection: db.Connection, token: str, *, client: Client | None = None
) -> SignIn | None:
    """Who has this token; at most once a minute it is noted that `client` used it."""
    rows = await db.fetch_all(
        connection,
        """
        select s.token_hash, s.user_id,
          case when u.is_super_admin then s.company_id else u.company_id end,
          u.email, u.is_super_admin, s.csrf_token,
          extract(epoch from s.expires_at - fn_now())::float8, s.session_id, u.language,
          case when s.method = 'command' then null
            when u.must_change_password then 'password'
            when f.confirmed_at is null
              and array_position(%s::text[], c.second_factor_from) <= array_position(%s::text[],
                case when u.is_super_admin then 'super_admin'
                  else coalesce(m.role, 'viewer') end) then 'second_factor' end,
          s.last_seen_at < fn_now() - %s
        from sign_ins s
          join users u using (user_id)
          join companies c on c.company_id = u.company_id
          left join memberships m on m.user_id = u.user_id and m.company_id = u.company_id
          left join second_factors f on f.user_id = u.user_id
        where s.token_hash = %s and s.expires_at > fn_now()
        """,
        list(RANKS),
        list(RANKS),
        _SEEN_EVERY,
        token_hash := hash_token(token),
    )
    if not rows:
        return None
    *values, is_stale = rows[0]
    if is_stale and client is not None:
        await connection.execute(
            """
            update sign_ins set last_seen_at = fn_now(), network = %s, user_agent = %s
            where token_hash = %s
            """,
            (client.network, client.user_agent, token_hash),
        )
    return SignIn(token, *values)


async def store_company(connection: db.Connection, sign_in: SignIn, *, company_id: UUID) -> None:
    """The company that the sign-in looks at; the audit log of another one has who does."""
    await connection.execute(
        "update sign_ins set company_id = %s where token_hash = %s",
        (company_id, sign_in.token_hash),
    )
    if company_id != sign_in.company_id:
        await connection.execute(
            """
            insert into user_actions (action_id, at, actor, action, company_id, user_id, email)
            values (%s, fn_now(), %s, 'look_at_company', %s, %s, %s)
            """,
            (ids.new(), sign_in.email, company_id, sign_in.user_id, sign_in.email),
        )


async def delete_sign_in(connection: db.Connection, token_hash: bytes) -> bool:
    """Whether there was such a sign-in."""
    cursor = await connection.execute("delete from sign_ins where token_hash = %s", (token_hash,))
    return cursor.rowcount > 0


async def active_company(connection: db.Connection) -> tuple[UUID, str]:
    """The active company of the person, and its tenant."""
    rows = await db.fetch_all(connection, "select get_active_company_id(), get_active_tenant_id()")
    company_id, tenant_id = rows[0]
    return company_id, tenant_id


async def role(connection: db.Connection, user_id: UUID, company_id: UUID) -> str | None:
    """As the service: the person's role in this company."""
    name: str | None = await db.fetch_value(
        connection,
        """
        select case when u.is_super_admin then 'super_admin' else m.role end
        from users u
        left join memberships m on m.user_id = u.user_id and m.company_id = %s
        where u.user_id = %s
        """,
        company_id,
        user_id,
    )
    return name


def is_at_least(role: str, least: str) -> bool:
    """Whether a role may whatever `least` may."""
    return RANKS.index(role) >= RANKS.index(least)


# --- accounts


@dataclass(frozen=True, slots=True)
class Person:
    user_id: UUID
    email: str
    role: str


async def person(tx: db.Connection, user_id: UUID, *, company_id: UUID) -> Person | None:
    """A person of this company, whose row is locked until the end of the transaction."""
    rows = await db.fetch_all(
        tx,
        """
        select u.user_id, u.email,
          case when u.is_super_admin then 'super_admin' else coalesce(m.role, 'viewer') end
        from users u
        left join memberships m on m.user_id = u.user_id and m.company_id = u.company_id
        where u.user_id = %s and u.company_id = %s for update of u
        """,
        user_id,
        company_id,
    )
    return Person(*rows[0]) if rows else None


async def set_password(
    tx: db.Connection, user_id: UUID, password_hash: str, *, must_change: bool
) -> None:
    await tx.execute(
        "update users set password_hash = %s, must_change_password = %s where user_id = %s",
        (password_hash, must_change, user_id),
    )


async def set_language(tx: db.Connection, user_id: UUID, language: str | None) -> None:
    await tx.execute("update users set language = %s where user_id = %s", (language, user_id))


async def audit(
    tx: db.Connection, user_id: UUID, *, actor: str, action: str, detail: str = ""
) -> None:
    """Note in user_actions what was done to the account of this person."""
    await tx.execute(
        """
        insert into user_actions (action_id, at, actor, action, company_id, user_id, email, detail)
        select %s, fn_now(), %s, %s, company_id, user_id, email, %s from users where user_id = %s
        """,
        (ids.new(), actor, action, detail, user_id),
    )


async def audit_failure(tx: db.Connection, user_id: UUID | None, *, detail: str) -> None:
    """Note a wrong try to sign in: at most so many of a person in an hour, from anywhere.

    Of nobody it does the same and writes nothing, and it waits for no disk: how long it takes does
    not tell whether there is such a person.
    """
    await tx.execute("set local synchronous_commit = off")
    await tx.execute(
        """
        insert into user_actions (action_id, at, actor, action, company_id, user_id, email, detail)
        select %s, fn_now(), u.email, 'sign_in_failed', u.company_id, u.user_id, u.email, %s
        from users u where u.user_id = %s and %s > (
          select count(*) from user_actions a where a.company_id = u.company_id
            and a.at > fn_now() - interval '1 hour' and a.user_id = u.user_id
            and a.action = 'sign_in_failed')
        """,
        (ids.new(), detail, user_id or ids.new(), _FAILURES_AN_HOUR),
    )


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in as its person sees it."""

    session_id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    network: str
    user_agent: str
    method: Method


async def sessions(tx: db.Connection, user_id: UUID, *, limit: int) -> list[Session]:
    """Open sign-ins of a person, the one used last first."""
    rows = await db.fetch_all(
        tx,
        """
        select session_id, created_at, last_seen_at, expires_at, network, user_agent, method
        from sign_ins where user_id = %s and expires_at > fn_now()
        order by last_seen_at desc, session_id limit %s
        """,
        user_id,
        limit,
    )
    return [Session(*row) for row in rows]


async def method(tx: db.Connection, token_hash: bytes) -> Method:
    """How this sign-in was opened."""
    name: Method | None = await db.fetch_value(
        tx, "select method from sign_ins where token_hash = %s", token_hash
    )
    return name or "password"


async def delete_sign_ins(
    tx: db.Connection, user_id: UUID, *, but: UUID | None = None, only: UUID | None = None
) -> int:
    """End all sign-ins of a person, all but one, or one; returns how many were open."""
    ended: int = await db.fetch_value(
        tx,
        """
        with ended as (
          delete from sign_ins where user_id = %s
            and session_id is distinct from %s::uuid
            and session_id = coalesce(%s::uuid, session_id)
          returning expires_at)
        select count(*) from ended where expires_at > fn_now()
        """,
        user_id,
        but,
        only,
    )
    return ended


# --- second factors


@dataclass(frozen=True, slots=True)
class SecondFactor:
    user_id: UUID
    secret: bytes = field(repr=False)
    last_step: int
    confirmed_at: datetime | None
    codes_left: int


async def second_factor(tx: db.Connection, user_id: UUID) -> SecondFactor | None:
    """Also one that is not confirmed yet. The row is locked: a code counts once."""
    rows = await db.fetch_all(
        tx,
        """
        select user_id, secret, last_step, confirmed_at, cardinality(recovery_hashes)
        from second_factors where user_id = %s for update
        """,
        user_id,
    )
    return SecondFactor(*rows[0]) if rows else None


async def begin_second_factor(tx: db.Connection, user_id: UUID, secret: bytes) -> None:
    """Store a new secret, unless one is confirmed already."""
    await tx.execute(
        """
        insert into second_factors as f (user_id, company_id, secret, created_at)
        select user_id, company_id, %s, fn_now() from users where user_id = %s
        on conflict on constraint second_factors_pkey do update
          set secret = excluded.secret, created_at = excluded.created_at
          where f.confirmed_at is null
        """,
        (secret, user_id),
    )


async def confirm_second_factor(
    tx: db.Connection, user_id: UUID, *, step: int, recovery_hashes: list[bytes]
) -> None:
    await tx.execute(
        """
        update second_factors set confirmed_at = fn_now(), last_step = %s, recovery_hashes = %s
        where user_id = %s
        """,
        (step, recovery_hashes, user_id),
    )


async def set_recovery_hashes(tx: db.Connection, user_id: UUID, hashes: list[bytes]) -> None:
    await tx.execute(
        "update second_factors set recovery_hashes = %s where user_id = %s", (hashes, user_id)
    )


async def use_step(tx: db.Connection, user_id: UUID, step: int) -> None:
    await tx.execute("update second_factors set last_step = %s where user_id = %s", (step, user_id))


async def use_recovery_code(tx: db.Connection, user_id: UUID, code_hash: bytes) -> bool:
    """Whether it was one that is left; then it is no more."""
    cursor = await tx.execute(
        """
        update second_factors set recovery_hashes = array_remove(recovery_hashes, %s)
        where user_id = %s and %s = any(recovery_hashes)
        """,
        (code_hash, user_id, code_hash),
    )
    return cursor.rowcount == 1


async def delete_second_factor(tx: db.Connection, user_id: UUID) -> bool:
    cursor = await tx.execute("delete from second_factors where user_id = %s", (user_id,))
    return cursor.rowcount == 1


async def second_factor_rule(tx: db.Connection, company_id: UUID) -> str | None:
    """The role from which on people of this company need a second factor; None: nobody does."""
    rule: str | None = await db.fetch_value(
        tx, "select second_factor_from from companies where company_id = %s", company_id
    )
    return rule


async def set_second_factor_rule(tx: db.Connection, company_id: UUID, role: str | None) -> None:
    await tx.execute(
        "update companies set second_factor_from = %s where company_id = %s", (role, company_id)
    )
