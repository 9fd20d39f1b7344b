"""Images without a weighing: readings of their camera, and an alert if its view has changed.

image --sandbox (farm/vision/monitor.py)--> light, activity, occupancy --> telemetry_raw, outbox
                                        --> camera_views (the learned view), alerts
"""

import json
from datetime import UTC, datetime

import msgspec

from farmiq.edge import alerts, arrival, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.telemetry import handlers as telemetry
from farmiq.edge.vision.sandboxed import call
from farmiq.edge.vision.store import InferenceJob, Observed, StoredImage
from farmiq.messages import ids
from farmiq.messages.envelope import SCHEMA_VERSION
from farmiq.messages.telemetry import READING
from farmiq.plumbing import db, log
from farmiq.plumbing.sandbox import InputRejectedError

ALERT = "camera.view"
METRICS = ("light", "activity", "occupancy")
UNIT = "%"
_MESSAGES = {
    "moved": "the camera does not show what it always showed: was it moved, or is something before "
    "it? Look at its images and put it back; if it is to stay so, it learns its new view by itself",
    "dirty": "the camera's images have become soft: clean its lens, or look whether it is fogged",
}


async def observe(
    connection: db.Connection, job: InferenceJob, image: StoredImage, data: bytes
) -> Observed:
    """Compare an image with its camera's view; one that is older than the last is told alone."""
    rows = await db.fetch_all(
        connection,
        "select state from camera_views where tenant_id = %s and device_id = %s "
        "and captured_at < %s",
        job.tenant_id,
        job.device_id,
        image.captured_at,
    )
    state: bytes = rows[0][0] if rows else b""
    try:
        made = await call("monitor", state + data, state_bytes=len(state))
    except InputRejectedError as error:
        return Observed(problem=str(error))
    return msgspec.convert({**made.facts, "state": made.data}, Observed)


async def record(
    tx: db.Connection, job: InferenceJob, image: StoredImage, observed: Observed, *, now: datetime
) -> None:
    """Store what was observed, in the transaction that ends the job: so it is done once."""
    readings = [
        _reading(job, image, metric, share, now=now)
        for metric in METRICS
        if (share := getattr(observed, metric)) is not None
    ]
    if readings:
        await outbox.append(tx, await telemetry.record(tx, readings))
    if not observed.state or not await _store_view(tx, job, image, observed):
        return
    subject = f"{job.tenant_id}/{job.device_id}"
    if observed.changed_from:
        log.get("edge-vision-inference").info(
            "camera.view_changed",
            tenant_id=job.tenant_id,
            name=job.device_id,
            status=observed.view,
            reason=f"it was {observed.changed_from}",
        )
    if observed.view in _MESSAGES:
        if observed.changed_from:
            message = _MESSAGES[observed.view]
            await alerts.raise_(tx, alerts.Alert(ALERT, subject, "warning", message))
    elif observed.view in ("ok", "learning"):
        await alerts.close(tx, kind=ALERT, subject=subject)


async def _store_view(
    tx: db.Connection, job: InferenceJob, image: StoredImage, observed: Observed
) -> bool:
    """False if a later image is there already: its view counts."""
    cursor = await tx.execute(
        """
        insert into camera_views as v (tenant_id, device_id, captured_at, view, state, updated_at)
        values (%s, %s, %s, %s, %s, fn_now())
        on conflict on constraint camera_views_pkey do update set
          captured_at = excluded.captured_at, view = excluded.view, state = excluded.state,
          updated_at = excluded.updated_at
        where v.captured_at < excluded.captured_at
        """,
        (job.tenant_id, job.device_id, image.captured_at, observed.view, observed.state),
    )
    return cursor.rowcount > 0


def _reading(
    job: InferenceJob, image: StoredImage, metric: str, share: float, *, now: datetime
) -> Arrival:
    """As if the camera had sent it: by the same way, with the same checks."""
    name = f"camera.{metric}"
    topic = f"iot/telemetry/{job.tenant_id}/{job.farm_id}/{job.barn_id}/{job.device_id}/{name}"
    event_id = ids.derived(job.created_at, name, job.tenant_id, str(job.id))
    message = {
        "schema_version": SCHEMA_VERSION,
        "event_id": str(event_id),
        "trace_id": image.trace_id or f"edge-{event_id}",
        "tenant_id": job.tenant_id,
        "device_id": job.device_id,
        "event_type": READING,
        "ts": image.captured_at.astimezone(UTC).isoformat(),
        "payload": {"metric_type": name, "metric_value": round(100 * share, 2), "unit": UNIT},
    }
    return arrival.accept(topic, json.dumps(message).encode(), now=now)
