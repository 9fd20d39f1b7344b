"""Weigh sessions at the edge: what they wait for, how long they are kept, and the answers.

ingress --record(tx, …)--> weight_sessions <--media_objects-- [weighvision] --alerts, HTTP-->

What stations tell is written by ingress inside its one transaction (C-81). This service is what
time does: a session that lacks a part for too long is INCOMPLETE until the part arrives.
"""

import asyncio

from farmiq.config import EdgeSettings
from farmiq.edge import diary, retention
from farmiq.edge.weighvision import upkeep, waiting
from farmiq.edge.weighvision.api import Api
from farmiq.plumbing import db, http
from farmiq.plumbing.chores import Chore, keep_doing

NAME = "edge-weighvision-session"

MINUTE_S = 60.0


async def run(settings: EdgeSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        asyncio.TaskGroup() as group,
    ):
        door.ready("weighvision.database", lambda: db.problem(pool))
        Api(pool, timezone=settings.timezone, service=NAME).add_to(door.app)
        for chore in all_chores(pool, settings):
            group.create_task(keep_doing(chore))


def all_chores(pool: db.Pool, settings: EdgeSettings) -> list[Chore]:
    patience_s = settings.weighvision_incomplete_min * MINUTE_S

    async def forget() -> dict[str, object]:
        gone = await retention.all_of(pool, upkeep.forget, days=settings.weighvision_days)
        return {"count": gone}

    return [
        Chore(
            "weighvision.waiting",
            settings.weighvision_round_s,
            lambda: waiting.look(pool, patience_s=patience_s),
        ),
        Chore("weighvision.count", MINUTE_S, lambda: waiting.count(pool)),
        diary.daily(pool, settings, "weighvision.retention", forget),
    ]
