"""Camera quarantine: rejected messages of cameras, and what redrive and discard do to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from farmiq.cloud.camera.gateway import batches, camera_store, store
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol.wire import RawMessage
from farmiq.plumbing import db, deadletters
from farmiq.plumbing.deadletters import DeadLetter, Filter, Result

TABLE = deadletters.quarantine_table(
    "camera_quarantine",
    columns="quarantine_id, mac, topic, kind",
    filters={"mac": "mac = %(mac)s"},
    newest_first="last_received_at desc, quarantine_id desc",
    groups=("kind",),
)
# Chunks of these kinds were compared with their image and rejected: they belong to no other one.
_COMPARED = frozenset({"limits", "conflict"})


@dataclass(frozen=True, slots=True)
class CameraQuarantine:
    """Redrives through the gateway's handlers, one message per transaction."""

    timing: Timing
    actor: str
    table: deadletters.Table = TABLE
    batch: int = 1
    conflict: None = None

    async def apply(
        self, tx: db.Connection, letters: Sequence[DeadLetter]
    ) -> dict[UUID, dict[str, Any]]:
        rejected = {}
        for letter in letters:
            outcome = await batches.apply(
                tx,
                [RawMessage(letter.topic, letter.payload)],
                self.timing,
                received_at=letter.received_at,
                was_compared=letter.kind in _COMPARED,
            )
            for message in outcome.rejected[:1]:
                rejected[letter.id] = {
                    "kind": message.kind,
                    "reasons": store.storable(message.reasons),
                }
        return rejected

    def rejection(self, reasons: Sequence[str]) -> dict[str, Any]:
        return {"kind": "database", "reasons": store.storable(reasons)}

    async def audit(
        self, tx: db.Connection, *, accepted: Sequence[UUID], rejected: Sequence[UUID]
    ) -> None:
        for ids, outcome in ((accepted, "accepted"), (rejected, "refused")):
            if ids:
                await self._note(tx, ids, action="redrive", outcome=outcome)

    async def discard(self, tx: db.Connection, ids: Sequence[UUID]) -> int:
        """The bytes of what is discarded stay in dead_letter_actions."""
        await self._note(tx, ids, action="discard", outcome="discarded")
        return len(await deadletters.delete(tx, self.table, ids))

    async def _note(
        self, tx: db.Connection, ids: Sequence[UUID], *, action: str, outcome: str
    ) -> None:
        """The same audit table as that of the bus; before the rows change."""
        await tx.execute(
            """
            insert into dead_letter_actions (action_id, actor, action, queue, tenant_id, event_id,
              event_type, reason, outcome, body_sha256, body)
            select fn_uuid_v7(), %(actor)s, %(action)s, 'camera_quarantine', c.tenant_id,
              q.quarantine_id::text, q.kind, array_to_string(q.reasons, '; '), %(outcome)s,
              q.message_sha256, case when %(action)s = 'discard' then q.raw end
            from camera_quarantine q left join companies c on c.company_id = q.company_id
            where q.quarantine_id = any(%(ids)s::uuid[])
            """,
            {"actor": self.actor, "action": action, "outcome": outcome, "ids": list(ids)},
        )


async def redrive(
    pool: db.Pool, source: CameraQuarantine, chosen: Filter, *, limit: int, dry_run: bool = False
) -> Result:
    """Handle the messages again, in their first order. Raises db.UNAVAILABLE."""
    if not dry_run:
        async with db.transaction(pool) as tx:
            await camera_store.reset_redriven(tx)
    return await deadletters.redrive(pool, source, chosen, limit=limit, dry_run=dry_run)
