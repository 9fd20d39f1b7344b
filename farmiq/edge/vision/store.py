"""The SQL of inference: jobs, images, references and results."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge import batches
from farmiq.edge.batches import Placed
from farmiq.edge.vision.models import SHADOW, CameraScope, ModelRow
from farmiq.farm.vision.estimate import Estimate
from farmiq.farm.vision.features import SCHEMA
from farmiq.messages.weighvision import EMPTY_SCALE
from farmiq.plumbing import db

# A camera left on may have sent thousands for one session; its weight is in the first few.
MAX_FRAMES = 12


@dataclass(frozen=True, slots=True)
class InferenceJob:
    """Of a session, or of an image without one. Its id becomes the result's."""

    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    session_id: UUID | None
    media_id: UUID | None
    created_at: datetime
    attempt_count: int


@dataclass(frozen=True, slots=True)
class StoredImage:
    id: UUID
    object_key: str
    captured_at: datetime
    trace_id: str | None
    purpose: str | None


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What one image of a result showed."""

    media_id: UUID
    problem: str | None
    quality: dict[str, float]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What monitor.Observation says, which only the worker loads; `state` is beside it."""

    light: float | None = None
    activity: float | None = None
    occupancy: float | None = None
    view: str = "learning"
    changed_from: str | None = None
    problem: str | None = None
    state: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`estimate` is of the model in use, `shadow` of one that is only compared with the scale.

    `monitored` is what an image without a session says of its camera.
    """

    estimate: Estimate
    shadow: Estimate | None = None
    frames: Sequence[Frame] = ()
    trace_id: str | None = None
    species: str | None = None
    model: ModelRow | None = None
    monitored: tuple[StoredImage, Observed] | None = None

    @property
    def model_version(self) -> str:
        """Of the model in use; of the one in shadow where there is none."""
        return self.model.version if self.model else self.estimate.model_version

    @property
    def is_shadow(self) -> bool:
        return self.model is not None and self.model.state == SHADOW


# --- jobs

_COLUMNS = ", ".join(f"j.{name}" for name in InferenceJob.__slots__)
# Where nothing more is to be expected of a session: its device ended it and every image that it
# counted is here. Else it is waited for a while after the last image.
_IS_WHOLE = """
(w.status = 'cancelled' or w.status = 'finalized' and w.image_count <= (
  select count(*) from media_objects m
  where m.tenant_id = w.tenant_id and m.session_id = w.id and m.device_id = w.device_id
    and m.upload_status = 'stored'))
"""


# In this order; each is read by an index, however many jobs wait. Sessions are measured by pictures
# of empty scales, so these come first; images without a session are looked at in their order.
_EMPTY_SCALES = """
p.id = any(array(
  select (select i.id from inference_jobs i where i.media_id = m.id and i.done_at is null)
  from media_objects m where m.purpose = %(empty_scale)s))
"""
_READY_SESSIONS = f"""
(p.session_id is null) is false
  and (p.last_image_at <= (select fn_now()) - %(wait_s)s * interval '1 s' or {_IS_WHOLE})
"""
_OTHER_IMAGES = "(p.session_id is null) is true"
_CLAIM_ORDER = (
    (_EMPTY_SCALES, "p.last_image_at"),
    (_READY_SESSIONS, "p.last_image_at desc"),
    (_OTHER_IMAGES, "p.last_image_at"),
)


async def claim(tx: db.Connection, *, wait_s: float, lease_s: float) -> InferenceJob | None:
    """The next job: empty scales, then sessions, of these the newest, then the oldest image.

    Others see it again after `lease_s`.
    """
    for condition, order in _CLAIM_ORDER:
        rows = await db.fetch_as(
            tx,
            InferenceJob,
            f"""
            update inference_jobs j set attempt_count = j.attempt_count + 1,
              lease_expires_at = fn_now() + %(lease_s)s * interval '1 s'
            where j.id = (
              select p.id from inference_jobs p
                left join weight_sessions w on w.id = p.session_id and w.tenant_id = p.tenant_id
              where p.done_at is null and p.next_attempt_at <= (select fn_now())
                and (p.lease_expires_at is null or p.lease_expires_at <= (select fn_now())
                  or p.lease_expires_at > (select fn_now()) + 2 * %(lease_s)s * interval '1 s')
                and {condition}
              order by {order} limit 1
              for update of p skip locked)
            returning {_COLUMNS}
            """,  # noqa: S608 - our own words
            {"wait_s": wait_s, "lease_s": lease_s, "empty_scale": EMPTY_SCALE},
        )
        if rows:
            return rows[0]
    return None


async def renew(tx: db.Connection, job: InferenceJob, *, lease_s: float) -> None:
    """It takes longer, and is still ours."""
    await tx.execute(
        "update inference_jobs set lease_expires_at = fn_now() + %s * interval '1 s' "
        "where id = %s and attempt_count = %s and done_at is null",
        (lease_s, job.id, job.attempt_count),
    )


async def release(tx: db.Connection, job: InferenceJob, *, error: str, after_s: float) -> None:
    """What stopped it is not its fault: it is tried again, and the attempt does not count."""
    await tx.execute(
        "update inference_jobs set attempt_count = attempt_count - 1, lease_expires_at = null, "
        "next_attempt_at = fn_now() + %s * interval '1 s', last_error = %s "
        "where id = %s and attempt_count = %s and done_at is null",
        (after_s, error[:1000], job.id, job.attempt_count),
    )


async def retried_for(connection: db.Connection) -> str | None:
    """Why a job waits for its next attempt, or is in it; None if none does."""
    error: str | None = await db.fetch_value(
        connection,
        "select max(last_error) from inference_jobs where done_at is null "
        "and (next_attempt_at > fn_now() or lease_expires_at > fn_now())",
    )
    return error


async def reset_future_attempts(tx: db.Connection, *, hours: float) -> int:
    """Jobs that wait longer than any delay; the clock was set back."""
    cursor = await tx.execute(
        "update inference_jobs set next_attempt_at = fn_now() where done_at is null "
        "and next_attempt_at > (select fn_now()) + %s * interval '1 hour'",
        (hours,),
    )
    return cursor.rowcount


async def counts(connection: db.Connection) -> tuple[int, float]:
    """How many jobs are pending, and for how long the oldest of them."""
    ((pending, oldest_s),) = await db.fetch_all(
        connection,
        "select count(*), coalesce(extract(epoch from fn_now() - min(last_image_at)), 0)::float8 "
        "from inference_jobs where done_at is null",
    )
    return pending, oldest_s


async def standstill(connection: db.Connection, *, wait_s: float) -> tuple[int, float, str | None]:
    """How many jobs wait for longer than that, how long none was done, and what went wrong."""
    ((waiting, idle_s, error),) = await db.fetch_all(
        connection,
        """
        select count(*), coalesce(extract(epoch from fn_now() - greatest(
            min(last_image_at), (select max(occurred_at) from inference_results))), 0)::float8,
          max(last_error)
        from inference_jobs
        where done_at is null and last_image_at < (select fn_now()) - %s * interval '1 s'
        """,
        wait_s,
    )
    return waiting, idle_s, error


# --- images


async def images(connection: db.Connection, job: InferenceJob) -> list[StoredImage]:
    """The stored images of a job, in the order in which they were taken, at most MAX_FRAMES.

    Of a session only those of its own device (SC-02), if it is known already whose it is.
    """
    return await db.fetch_as(
        connection,
        StoredImage,
        """
        select m.id, m.object_key, m.captured_at, m.trace_id, m.purpose from media_objects m
          left join weight_sessions w on w.id = m.session_id and w.tenant_id = m.tenant_id
        where m.upload_status = 'stored' and (m.id = %(media_id)s
          or m.tenant_id = %(tenant_id)s and m.session_id = %(session_id)s
            and m.device_id = coalesce(w.device_id, m.device_id))
        order by m.captured_at, m.id limit %(limit)s
        """,
        {
            "media_id": job.media_id,
            "tenant_id": job.tenant_id,
            "session_id": job.session_id,
            "limit": MAX_FRAMES,
        },
    )


async def reference_key(connection: db.Connection, tenant_id: str, device_id: str) -> str | None:
    """The object of the newest picture of this station's empty scale."""
    key: str | None = await db.fetch_value(
        connection,
        "select object_key from vision_references where tenant_id = %s and device_id = %s",
        tenant_id,
        device_id,
    )
    return key


async def set_reference(tx: db.Connection, job: InferenceJob, image: StoredImage) -> None:
    """It is the station's newest picture of its empty scale, unless a newer one is there."""
    await tx.execute(
        """
        insert into vision_references as r (tenant_id, device_id, media_id, object_key, captured_at)
        values (%s, %s, %s, %s, %s)
        on conflict on constraint vision_references_pkey do update set
          media_id = excluded.media_id, object_key = excluded.object_key,
          captured_at = excluded.captured_at
        where r.captured_at < excluded.captured_at
        """,
        (job.tenant_id, job.device_id, image.id, image.object_key, image.captured_at),
    )


async def owner(connection: db.Connection, job: InferenceJob) -> tuple[str, str, str]:
    """Farm, barn and device of the session by its events; those of its first image before that."""
    rows = await db.fetch_all(
        connection,
        "select farm_id, barn_id, device_id from weight_sessions where tenant_id = %s and id = %s",
        job.tenant_id,
        job.session_id,
    )
    return rows[0] if rows else (job.farm_id, job.barn_id, job.device_id)


async def scope(connection: db.Connection, job: InferenceJob, at: datetime) -> CameraScope:
    """Whose model looks at it: the camera at its place, and the species of the batch there."""
    farm_id, barn_id, device_id = await owner(connection, job)
    (batch_id,) = await batches.at(connection, [Placed(job.tenant_id, farm_id, barn_id, at)])
    species: str | None = await db.fetch_value(
        connection,
        """
        select (select b ->> 'species'
          from cloud_contexts c, jsonb_array_elements(c.content -> 'batches') b
          where c.tenant_id = %s and b ->> 'batch_id' = %s limit 1)
        """,
        job.tenant_id,
        batch_id,
    )
    return CameraScope(job.tenant_id, farm_id, barn_id, device_id, species or "")


# --- results


@dataclass(frozen=True, slots=True)
class Stored:
    """A session's result as it was stored, and what is needed to explain it.

    The estimate is that of a model in shadow where no other was used; `object_key` is of the first
    image that could be used, else of the first.
    """

    scope: CameraScope
    estimate: Estimate
    manifest: dict[str, Any] | None
    is_shadow: bool
    started_at: datetime
    weight_kg: float | None
    object_key: str | None


async def explained(connection: db.Connection, session_id: UUID) -> Stored | None:
    rows = await db.fetch_dicts(
        connection,
        """
        select r.*, m.manifest, w.start_at, w.final_weight_kg,
          (select o.object_key from jsonb_array_elements(r.frames) with ordinality f(frame, number)
             join media_objects o on o.id = (f.frame ->> 'media_id')::uuid
           order by f.frame ->> 'problem' is not null, f.number limit 1) as object_key
        from weight_sessions w
          join inference_results r on r.tenant_id = w.tenant_id and r.session_id = w.id
          left join vision_models m on m.tenant_id = r.tenant_id and m.farm_id = r.farm_id
            and m.barn_id = r.barn_id and m.device_id = r.device_id
            and m.species = coalesce(r.species, '') and m.version = r.model_version
        where w.id = %s
        """,
        (session_id,),
    )
    if not rows:
        return None
    (row,) = rows
    features = row["features"] if row["feature_schema"] == SCHEMA else None
    values = {name: row[name] for name in Estimate.__struct_fields__}
    if row["is_shadow"]:
        shown = ("weight_kg", "low_kg", "high_kg")
        values["predicted_weight_kg"], values["low_kg"], values["high_kg"] = (
            row[f"shadow_{name}"] for name in shown
        )
    return Stored(
        scope=CameraScope(
            row["tenant_id"], row["farm_id"], row["barn_id"], row["device_id"], row["species"] or ""
        ),
        estimate=Estimate(**{**values, "features": tuple(features) if features else None}),
        manifest=row["manifest"],
        is_shadow=row["is_shadow"],
        started_at=row["start_at"].astimezone(UTC),
        weight_kg=row["final_weight_kg"],
        object_key=row["object_key"],
    )


async def first_images(
    connection: db.Connection, tenant_id: str, session_ids: Sequence[str]
) -> dict[str, str]:
    """By session, the object of the first image that a result was made of."""
    rows = await db.fetch_all(
        connection,
        """
        select r.session_id::text, o.object_key from inference_results r
          join media_objects o on o.id = (r.frames -> 0 ->> 'media_id')::uuid
        where r.tenant_id = %s and r.session_id = any(%s::uuid[])
        """,
        tenant_id,
        list(session_ids),
    )
    return dict(rows)


async def finish(tx: db.Connection, job: InferenceJob) -> bool:
    """Mark the job as done; False if another process did it first."""
    cursor = await tx.execute(
        "update inference_jobs set done_at = fn_now(), lease_expires_at = null "
        "where id = %s and done_at is null",
        (job.id,),
    )
    return cursor.rowcount > 0


async def add_result(tx: db.Connection, job: InferenceJob, result: Result) -> datetime:
    """Store the one result of a job; returns its time."""
    estimate, shadow = result.estimate, result.shadow
    values: dict[str, Any] = {
        **{name: getattr(job, name) for name in ("id", "tenant_id", "session_id", "media_id")},
        "predicted_weight_kg": estimate.predicted_weight_kg,
        "confidence": estimate.confidence,
        "model_version": result.model_version,
        "low_kg": estimate.low_kg,
        "high_kg": estimate.high_kg,
        "reason": estimate.reason,
        "is_shadow": result.is_shadow,
        "shadow_version": shadow.model_version if shadow else None,
        "shadow_weight_kg": shadow.predicted_weight_kg if shadow else None,
        "shadow_low_kg": shadow.low_kg if shadow else None,
        "shadow_high_kg": shadow.high_kg if shadow else None,
        "n_train": result.model.n_train if result.model else None,
        "cv_mape": result.model.cv_mape if result.model else None,
        "quality": estimate.quality,
        "frames_used": estimate.frames_used,
        "frames_total": estimate.frames_total,
        "features": list(estimate.features) if estimate.features else None,
        "frames": msgspec.json.encode(result.frames).decode(),
        "species": result.species,
    }
    values["farm_id"], values["barn_id"], values["device_id"] = await owner(tx, job)
    at: datetime = (
        await db.fetch_dicts(
            tx,
            """
            insert into inference_results (id, tenant_id, farm_id, barn_id, device_id, session_id,
              media_id, predicted_weight_kg, confidence, model_version, occurred_at, low_kg,
              high_kg, reason, is_shadow, shadow_version, shadow_weight_kg, shadow_low_kg,
              shadow_high_kg, n_train, cv_mape, quality, frames_used, frames_total, features,
              feature_schema, frames, species)
            values (%(id)s, %(tenant_id)s, %(farm_id)s, %(barn_id)s, %(device_id)s, %(session_id)s,
              %(media_id)s, %(predicted_weight_kg)s, %(confidence)s, %(model_version)s, fn_now(),
              %(low_kg)s, %(high_kg)s, %(reason)s, %(is_shadow)s, %(shadow_version)s,
              %(shadow_weight_kg)s, %(shadow_low_kg)s, %(shadow_high_kg)s, %(n_train)s,
              %(cv_mape)s, %(quality)s, %(frames_used)s,
              %(frames_total)s, %(features)s, %(schema)s, %(frames)s::jsonb, %(species)s)
            returning occurred_at
            """,
            {**values, "schema": SCHEMA if estimate.features else None},
        )
    )[0]["occurred_at"]
    return at
