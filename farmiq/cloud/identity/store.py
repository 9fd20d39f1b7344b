"""The tables users, memberships and sign_ins, as the service sees them."""

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class User:
    user_id: UUID
    company_id: UUID
    password_hash: str


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


_TOKEN_BYTES = 32
TOKEN_LENGTH = 43  # of 32 bytes in URL-safe base64
_MAX_EMAIL = 254


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
        "select user_id, company_id, password_hash from users where email = %s",
        email,
    )
    return User(*rows[0]) if rows else None


async def insert_sign_in(
    connection: db.Connection, user: User, *, token_hash: bytes, csrf_token: str, lasts: timedelta
) -> None:
    await connection.execute(
        """
        insert into sign_ins (token_hash, user_id, company_id, csrf_token, expires_at)
        values (%s, %s, %s, %s, fn_now() + %s)
        """,
        (token_hash, user.user_id, user.company_id, csrf_token, lasts),
    )


async def find_sign_in(connection: db.Connection, token: str) -> SignIn | None:
    rows = await db.fetch_all(
        connection,
        """
        select s.token_hash, s.user_id,
          case when u.is_super_admin then s.company_id else u.company_id end,
          u.email, u.is_super_admin, s.csrf_token,
          extract(epoch from s.expires_at - fn_now())::float8
        from sign_ins s join users u using (user_id)
        where s.token_hash = %s and s.expires_at > fn_now()
        """,
        hash_token(token),
    )
    return SignIn(token, *rows[0]) if rows else None


async def store_company(connection: db.Connection, token_hash: bytes, *, company_id: UUID) -> None:
    await connection.execute(
        "update sign_ins set company_id = %s where token_hash = %s", (company_id, token_hash)
    )


async def delete_sign_in(connection: db.Connection, token_hash: bytes) -> None:
    await connection.execute("delete from sign_ins where token_hash = %s", (token_hash,))


async def delete_expired(connection: db.Connection) -> None:
    await connection.execute("delete from sign_ins where expires_at <= fn_now()")


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
        select case when u.is_super_admin then 'admin' else m.role end
        from users u
        left join memberships m on m.user_id = u.user_id and m.company_id = %s
        where u.user_id = %s
        """,
        company_id,
        user_id,
    )
    return name
