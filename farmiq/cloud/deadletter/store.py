"""Dead letters' SQL: who did what, and who may."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from farmiq.cloud.deadletter.letter import Letter
from farmiq.plumbing import db, ids


@dataclass(frozen=True, slots=True)
class Deed:
    """One letter and what was done with it. `body` is kept where it would be gone otherwise."""

    actor: str
    action: str
    letter: Letter
    outcome: str
    body: bytes
    keep_body: bool


async def note(tx: db.Connection, deeds: Sequence[Deed]) -> None:
    await tx.execute(
        """
        insert into dead_letter_actions (action_id, actor, action, queue, tenant_id, event_id,
          event_type, reason, outcome, body_sha256, body)
        select * from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[])
        """,
        (
            [ids.new() for _ in deeds],
            [each.actor for each in deeds],
            [each.action for each in deeds],
            [each.letter.pile for each in deeds],
            [each.letter.tenant_id for each in deeds],
            [each.letter.event_id for each in deeds],
            [each.letter.event_type for each in deeds],
            [each.letter.reason for each in deeds],
            [each.outcome for each in deeds],
            [hashlib.sha256(each.body).digest() for each in deeds],
            [each.body if each.keep_body else None for each in deeds],
        ),
    )


async def administered(connection: db.Connection, user_id: UUID, company_id: UUID) -> str | None:
    """The tenant of this company, if the person is an admin of it."""
    found: str | None = await db.fetch_value(
        connection,
        """
        select c.tenant_id from memberships m join companies c using (company_id)
        where m.user_id = %s and m.company_id = %s and m.role = 'admin'
        """,
        user_id,
        company_id,
    )
    return found
