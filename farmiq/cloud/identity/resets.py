"""What an admin does to the account of another person of their company; every step is audited.

Call it with a transaction of the service, and with the role of who acts in that company.
"""

import secrets
from uuid import UUID

from farmiq.cloud.identity import passwords, store
from farmiq.plumbing import db

# Without letters and digits that look alike.
_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP_LENGTH = 4, 4


class NoSuchPersonError(Exception):
    """There is no such person in this company."""


class NotAllowedError(Exception):
    """The person has more rights than who acts."""


def temporary_password() -> str:
    """Such as ab3d-k9xw-…: it can be read out over the telephone."""
    return "-".join(
        "".join(secrets.choice(_LETTERS) for _ in range(_GROUP_LENGTH)) for _ in range(_GROUPS)
    )


async def reset_password(
    tx: db.Connection, user_id: UUID, *, company_id: UUID, actor: str, actor_role: str
) -> str:
    """A temporary password, to be shown once; the person has to choose another one with it.

    All their sessions end. Takes as long as hashing does, some 50 ms of a core.
    Raises NoSuchPersonError or NotAllowedError.
    """
    await _check(tx, user_id, company_id=company_id, actor_role=actor_role)
    password = temporary_password()
    await store.set_password(tx, user_id, passwords.hashed(password), must_change=True)
    ended = await store.delete_sign_ins(tx, user_id)
    await store.audit(tx, user_id, actor=actor, action="reset_password", detail=f"{ended} ended")
    return password


async def reset_second_factor(
    tx: db.Connection, user_id: UUID, *, company_id: UUID, actor: str, actor_role: str
) -> bool:
    """Remove a lost second factor and its recovery codes; all sessions end. False: there is none.

    Raises NoSuchPersonError or NotAllowedError.
    """
    await _check(tx, user_id, company_id=company_id, actor_role=actor_role)
    if not await store.delete_second_factor(tx, user_id):
        return False
    ended = await store.delete_sign_ins(tx, user_id)
    await store.audit(
        tx, user_id, actor=actor, action="reset_second_factor", detail=f"{ended} ended"
    )
    return True


async def _check(tx: db.Connection, user_id: UUID, *, company_id: UUID, actor_role: str) -> None:
    """Nobody acts on a person above them, and nobody below an admin acts at all."""
    person = await store.person(tx, user_id, company_id=company_id)
    if person is None:
        raise NoSuchPersonError("there is no such person in this company")
    if not store.is_at_least(actor_role, "admin") or not store.is_at_least(actor_role, person.role):
        raise NotAllowedError("only an admin may, and not for somebody with more rights")
