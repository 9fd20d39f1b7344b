"""Weighings as both sites have them, and who truly stood on the scales: for the smoke check."""

from pathlib import Path
from typing import Any

from farmiq.lab.simulate import stations
from farmiq.lab.simulate.weighings import Session, Visited


def visited(folder: Path) -> list[Visited]:
    """Who stood on the scales, of all stations under this folder."""
    return [
        visit
        for journal in sorted(folder.glob(f"*/{stations.JOURNAL}"))
        for visit in stations.read(journal)
    ]


async def at_the_edge(connection: Any) -> list[Session]:
    """Sessions with the hashes that the media store found in its bucket."""
    cursor = await connection.execute(
        """
        select s.id::text, s.status, s.final_weight_kg, s.image_count,
          array(select m.sha256 from media_objects m
            where m.session_id = s.id and m.upload_status = 'stored' and m.sha256 is not null)
        from weight_sessions s
        """
    )
    return [_session(row) for row in await cursor.fetchall()]


async def in_the_cloud(connection: Any) -> list[Session]:
    """Sessions with the hashes of what was read back from the cloud's bucket."""
    cursor = await connection.execute(
        """
        select s.session_id::text, s.status, s.final_weight_kg, s.image_count,
          array(select m.sha256 from media_objects m
            where m.tenant_id = s.tenant_id and m.media_id = any(s.media_ids)
              and m.stored_at is not null)
        from weight_sessions s
        """
    )
    return [_session(row) for row in await cursor.fetchall()]


def _session(row: tuple[Any, ...]) -> Session:
    session_id, status, weight_kg, image_count, sha256s = row
    return Session(
        session_id=session_id,
        status=status,
        weight_kg=weight_kg,
        image_count=image_count,
        sha256s=tuple(sha256s),
    )
