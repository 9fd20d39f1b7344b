"""Dead letters' SQL: the audit log, and who is an admin."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from farmiq.cloud.deadletter.rules import BusDeadLetter
from farmiq.plumbing import db, ids


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One letter and what was done with it; `with_body` stores the bytes too."""

    actor: str
    action: str
    letter: BusDeadLetter
    outcome: str
    body: bytes
    with_body: bool


async def audit(tx: db.Connection, entries: Sequence[AuditEntry]) -> None:
    await tx.execute(
        """
        insert into dead_letter_actions (action_id, actor, action, queue, tenant_id, event_id,
          event_type, reason, outcome, body_sha256, body)
        select * from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[])
        """,
        (
            [ids.new() for _ in entries],
            [entry.actor for entry in entries],
            [entry.action for entry in entries],
            [entry.letter.queue for entry in entries],
            [entry.letter.tenant_id for entry in entries],
            [entry.letter.event_id for entry in entries],
            [entry.letter.event_type for entry in entries],
            [entry.letter.reason for entry in entries],
            [entry.outcome for entry in entries],
            [hashlib.sha256(entry.body).digest() for entry in entries],
            [entry.body if entry.with_body else None for entry in entries],
        ),
    )


async def administered(connection: db.Connection, user_id: UUID, company_id: UUID) -> str | None:
    """The tenant of this company, if the person is an admin of it."""
    tenant_id: str | None = await db.fetch_value(
        connection,
        """
        select c.tenant_id from memberships m join companies c using (company_id)
        where m.user_id = %s and m.company_id = %s and m.role = 'admin'
        """,
        user_id,
        company_id,
    )
    return tenant_id
