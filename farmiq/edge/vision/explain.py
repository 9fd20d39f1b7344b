"""Why a weighing was estimated as it was, in one picture (`farmiq vision explain --session`).

inference_results, vision_models, images --> [explain] --worker process--> PNG

Its figures are those of the stored result; its image is measured again, to draw what was seen.
"""

from typing import NamedTuple
from uuid import UUID

import msgspec

from farmiq.edge.vision import models, store
from farmiq.edge.vision.sandboxed import call
from farmiq.farm.vision.estimate import Estimate
from farmiq.farm.vision.features import SCHEMA
from farmiq.farm.vision.manifest import Manifest
from farmiq.plumbing import db
from farmiq.plumbing.storage import objects

NEIGHBOURS = 4


class Explained(NamedTuple):
    picture: bytes
    estimate: Estimate


async def explain(pool: db.Pool, bucket: objects.Bucket, session_id: UUID) -> Explained | None:
    """None if nothing was inferred of this session."""
    async with pool.connection() as connection:
        result = await store.explained(connection, session_id)
        if result is None:
            return None
        scope, features = result.scope, result.estimate.features
        reference_key = await store.reference_key(connection, scope.tenant_id, scope.device_id)
        manifest = msgspec.convert(result.manifest, Manifest) if result.manifest else None
        near: list[tuple[float, models.Labelled]] = []
        if manifest and features:
            learned = await models.labelled(connection, scope, SCHEMA)
            near = sorted(
                (manifest.apart(features, item.features), item)
                for item in learned
                if item.session_id != str(session_id)
            )[:NEIGHBOURS]
        keys = await store.first_images(
            connection, scope.tenant_id, [item.session_id for _, item in near]
        )

    async def image(key: str | None) -> bytes:
        return (await bucket.find(key) if key else None) or b""

    answer = result.estimate
    state = " in shadow" if result.is_shadow else ""
    request = {
        "title": f"{result.started_at:%Y-%m-%d %H:%M} UTC, {scope.device_id}, model "
        f"{answer.model_version}{state}, {answer.frames_used} of {answer.frames_total} frames used",
        "estimate": answer,
        "manifest": manifest,
        "image": await image(result.object_key),
        "reference": await image(reference_key),
        "weight_kg": result.weight_kg,
        "neighbours": [
            {
                "name": f"{item.at:%Y-%m-%d %H:%M}",
                "weight_kg": item.weight_kg,
                "distance": distance,
                "image": await image(keys.get(item.session_id)),
            }
            for distance, item in near
        ],
    }
    made = await call("explain", msgspec.msgpack.encode(request))
    return Explained(made.data, answer)
