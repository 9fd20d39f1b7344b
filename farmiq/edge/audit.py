"""The audit log of the edge: who changed what by hand, in the transaction of the change."""

import json
from typing import Any

from farmiq.plumbing import db, ids


async def note(tx: db.Connection, *, actor: str, action: str, subject: str, **detail: Any) -> None:
    """`action` is the command's name, such as `quarantine.redrive`."""
    await tx.execute(
        "insert into audit_log (audit_id, at, actor, action, subject, detail) "
        "values (%s, fn_now(), %s, %s, %s, %s)",
        (ids.new(), actor, action, subject, json.dumps(detail, default=str)),
    )
