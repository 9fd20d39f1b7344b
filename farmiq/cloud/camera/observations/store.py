"""The SQL of looking at images: which is next, and what was found, written once."""

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from farmiq.plumbing import db
from farmiq.plumbing.quality import Quality

# Whoever began to look and is not done after that long has died.
CLAIM_S = 60.0
AGAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Observation:
    """`judge_attempts` counts this one."""

    observation_id: UUID
    company_id: UUID
    image_url: str
    judge_attempts: int

    @property
    def is_ours(self) -> bool:
        """An address that somebody made up must not open what else is in the bucket."""
        return self.image_url.startswith(f"camera/{self.company_id}/")


async def claim(tx: db.Connection) -> Observation | None:
    """The oldest that nobody looks at now; several may ask at once."""
    async with tx.cursor(row_factory=class_row(Observation)) as cursor:
        await cursor.execute(
            """
            update petri_observations o
            set judging_until = fn_now() + %s * interval '1 second',
              judge_attempts = o.judge_attempts + 1
            from device_images i
            where i.image_id = o.image_id and o.observation_id = (
              select n.observation_id from petri_observations n
              where n.quality is null
                and (n.judging_until is null or n.judging_until <= fn_now()
                  or n.judging_until > fn_now() + 2 * %s * interval '1 second')
              order by n.created_at limit 1 for update skip locked)
            returning o.observation_id, o.company_id, i.image_url, o.judge_attempts
            """,
            (CLAIM_S, CLAIM_S),
        )
        return await cursor.fetchone()


async def release(tx: db.Connection, observation_id: UUID) -> None:
    """It was not the image's fault; others go first, if the store minds this one alone."""
    await tx.execute(
        """
        update petri_observations set judge_attempts = judge_attempts - 1,
          judging_until = fn_now() + %s * interval '1 second'
        where observation_id = %s and quality is null
        """,
        (AGAIN_S, observation_id),
    )


async def settle(
    tx: db.Connection, observation_id: UUID, found: Quality, *, thumbnail_url: str | None
) -> None:
    """Who comes second changes nothing."""
    seen = found.measures
    await tx.execute(
        """
        update petri_observations
        set quality = %s, quality_reason = %s, size_bytes = %s, sha256 = %s, width_px = %s,
          height_px = %s, sharpness = %s, brightness = %s, dark_share = %s, bright_share = %s,
          thumbnail_url = %s, judged_at = fn_now(), judging_until = null
        where observation_id = %s and quality is null
        """,
        (
            found.verdict, found.reason, found.size_bytes, found.sha256, seen and seen.width_px,
            seen and seen.height_px, seen and seen.sharpness, seen and seen.brightness,
            seen and seen.dark_share, seen and seen.bright_share, thumbnail_url, observation_id,
        ),
    )  # fmt: skip
