"""Weigh sessions over their time (003): ended, and nothing of them owed to the cloud any more."""

from farmiq.plumbing import db


async def forget(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete sessions that ended, of which nothing was heard for so many days.

    An open one stays whatever its age, as does one whose events or images the cloud has not got.
    """
    cursor = await tx.execute(
        """
        delete from weight_sessions where id = any(array(
          select w.id from weight_sessions w
          where w.status <> 'created'
            and w.heard_at < (select fn_now()) - %(days)s * interval '1 day'
            and not exists (
              select from weight_session_events e
              where e.session_id = w.id and fn_unsynced(e.event_id))
            and not exists (
              select from media_objects m
              where m.tenant_id = w.tenant_id and m.session_id = w.id
                and m.upload_status = 'stored' and m.synced_at is null)
          limit %(most)s))
        """,
        {"days": days, "most": most},
    )
    return cursor.rowcount
