"""The tables users and sign_ins, as the service sees them."""

from dataclasses import dataclass
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
    """A person who has proven who they are, until it expires or they sign out."""

    token_hash: bytes
    user_id: UUID
    company_id: UUID
    csrf_token: str
    remaining_s: float


async def find_user(connection: db.Connection, email: str) -> User | None:
    rows = await db.fetch_all(
        connection,
        "select user_id, company_id, password_hash from users where email = %s",
        email,
    )
    return User(*rows[0]) if rows else None


async def keep_sign_in(
    connection: db.Connection, user: User, *, token_hash: bytes, csrf_token: str, lasts: timedelta
) -> None:
    await connection.execute(
        """
        insert into sign_ins (token_hash, user_id, company_id, csrf_token, expires_at)
        values (%s, %s, %s, %s, now() + %s)
        """,
        (token_hash, user.user_id, user.company_id, csrf_token, lasts),
    )


async def find_sign_in(connection: db.Connection, token_hash: bytes) -> SignIn | None:
    rows = await db.fetch_all(
        connection,
        """
        select token_hash, user_id, company_id, csrf_token,
          extract(epoch from expires_at - now())::float8
        from sign_ins
        where token_hash = %s and expires_at > now()
        """,
        token_hash,
    )
    return SignIn(*rows[0]) if rows else None


async def forget_sign_in(connection: db.Connection, token_hash: bytes) -> None:
    await connection.execute("delete from sign_ins where token_hash = %s", (token_hash,))


async def forget_expired(connection: db.Connection) -> None:
    await connection.execute("delete from sign_ins where expires_at <= now()")
