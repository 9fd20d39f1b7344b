"""Training at the farm: closed sessions teach a model, which is used only if it beats all else.

inference_results, weight_sessions --> [train] --worker--> model files, bucket --> vision_models
inference_results, weight_sessions --> [score] --> vision_days, drift, alerts

A session is predicted first and learned from later: features come with its one result, so its own
weight cannot be in the model that predicted it.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

import msgspec

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.vision import models
from farmiq.edge.vision.models import ACTIVE, SHADOW, CameraScope, Labelled, ModelFiles
from farmiq.edge.vision.sandboxed import call
from farmiq.farm.vision import drift
from farmiq.farm.vision.drift import DriftState
from farmiq.farm.vision.features import SCHEMA
from farmiq.plumbing import db, log
from farmiq.plumbing.sandbox import InputRejectedError

DRIFT = "vision.drift"
# Fewer days than that are cut into runs of sessions, so that the first day is not lost.
MIN_DAYS, RUN = 3, 5
MIN_SESSIONS = 10
# Of a running error that says more than cross-validation.
MIN_RUNNING = 20
PORTION = 200


class Training:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, files: ModelFiles) -> None:
        self._pool, self._files = pool, files
        self._every = settings.vision_train_sessions
        # How many new sessions a scope had when it was tried in vain: that is not repeated.
        self._tried: dict[CameraScope, int] = {}
        self._one_at_a_time = asyncio.Lock()

    async def train_due(self) -> dict[str, object]:
        """Train every scope that has enough new sessions."""
        async with self._one_at_a_time:
            return {"trained": await self._train(every=self._every)}

    async def train_all(self) -> dict[str, object]:
        """Train every scope that has any new session; once a night."""
        async with self._one_at_a_time:
            return {"trained": await self._train(every=1)}

    async def _train(self, *, every: int) -> int:
        trained = 0
        async with self._pool.connection() as connection:
            scopes = await models.scopes(connection, SCHEMA)
        for scope, sessions, new in scopes:
            if (
                sessions >= MIN_SESSIONS
                and new - self._tried.get(scope, 0) >= every
                and not await self._is_drifting(scope)
            ):
                self._tried[scope] = new
                if (await train(self._pool, self._files, scope))["state"] is not None:
                    del self._tried[scope]
                    trained += 1
            await self._demote(scope)
        return trained

    async def _is_drifting(self, scope: CameraScope) -> bool:
        """Whether scale and camera disagree: a model would learn what may be the scale's fault."""
        async with self._pool.connection() as connection:
            for model in (await models.in_use(connection, scope)).values():
                if msgspec.convert(model.drift, DriftState).is_drifting:
                    return not await models.is_silent(connection, scope, model.version)
        return False

    async def _demote(self, scope: CameraScope) -> None:
        """A model that does worse than no camera at all is not used any more."""
        async with db.transaction(self._pool) as tx:
            model = (await models.in_use(tx, scope)).get(ACTIVE)
            if model is None:
                return
            past = await models.running(tx, scope, model.version)
            if (past["compared"] or 0) >= MIN_RUNNING and (past["compared_mape"] or 0) >= (
                past["baseline_mape"] or 0
            ):
                reason = (
                    f"error {past['compared_mape']:.1%} in {past['compared']} sessions is not "
                    f"below {past['baseline_mape']:.1%} without a camera"
                )
                await models.set_state(tx, scope, model.version, state=SHADOW, reason=reason)


async def train(pool: db.Pool, files: ModelFiles, scope: CameraScope) -> dict[str, Any]:
    """Train one scope; the state is None, with the reason, where there is too little to learn."""
    async with pool.connection() as connection:
        sessions = await models.labelled(connection, scope, SCHEMA)
        current = (await models.in_use(connection, scope)).get(ACTIVE)
        if current and await models.is_silent(connection, scope, current.version):
            current = None
        past = await models.running(connection, scope, current.version) if current else {}
        cut_off = await db.fetch_value(connection, "select fn_now()")
    request = {
        "examples": examples(sessions),
        "scope": {"camera_id": scope.camera_id, "species": scope.species or "unknown"},
        "cut_off": cut_off,
        "current": current.manifest if current else None,
        "current_mape": past["mape"] if (past.get("sessions") or 0) >= MIN_RUNNING else None,
    }
    try:
        made = await call("train", msgspec.json.encode(request))
    except InputRejectedError as error:
        return {"state": None, "version": None, "reason": str(error)}
    version, state = made.facts["version"], made.facts["state"]
    manifest = made.facts["manifest"].encode()
    await files.store(scope.tenant_id, version, {"head.onnx": made.data, "manifest.json": manifest})
    crash.here("vision.after_train")
    async with db.transaction(pool) as tx:
        await models.add(
            tx, scope, version=version, state=state, reason=made.facts["reason"], manifest=manifest
        )
        if state == ACTIVE:
            await alerts.close(tx, kind=DRIFT, subject=scope.subject)
    log.get("edge-vision-inference").info(
        "vision.trained", name=scope.camera_id, version=version, status=state,
        reason=made.facts["reason"],
    )  # fmt: skip
    return {"state": state, "version": version, "reason": made.facts["reason"]}


def examples(sessions: Sequence[Labelled]) -> list[dict[str, Any]]:
    """Sessions of one animal are one group, where the station told which it was.

    Else those of one local day; in the first days, of one run of sessions.
    """
    by_day = len({session.day for session in sessions}) >= MIN_DAYS
    return [
        {
            "session_id": session.session_id,
            "group": f"animal {session.animal_id}"
            if session.animal_id
            else session.day
            if by_day
            else f"run {number // RUN}",
            "at": session.at,
            "features": session.features,
            "weight_kg": session.weight_kg,
            "baseline_kg": session.baseline_kg,
            "quality": session.quality,
        }
        for number, session in enumerate(sessions)
    ]


# --- scored


@dataclass(frozen=True, slots=True)
class Unscored:
    """A result whose session has ended; `weight_kg` is the scale's, None if there is none."""

    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    species: str
    model_version: str
    shadow_version: str | None
    predicted_weight_kg: float | None
    low_kg: float | None
    high_kg: float | None
    shadow_weight_kg: float | None
    shadow_low_kg: float | None
    shadow_high_kg: float | None
    weight_kg: float | None
    baseline_kg: float | None
    day: date

    @property
    def scope(self) -> CameraScope:
        return CameraScope(self.tenant_id, self.farm_id, self.barn_id, self.device_id, self.species)


async def score(pool: db.Pool) -> dict[str, object]:
    """Compare results with the scale, in the order of their sessions; each once."""
    count = PORTION
    total = 0
    while count == PORTION:
        async with db.transaction(pool) as tx:
            results = await _unscored(tx)
            for result in results:
                await _score(tx, result)
            await tx.execute(
                "update inference_results set scored_at = fn_now() where id = any(%s)",
                ([result.id for result in results],),
            )
        count = len(results)
        total += count
    return {"scored": total}


async def _unscored(tx: db.Connection) -> list[Unscored]:
    return await db.fetch_as(
        tx,
        Unscored,
        f"""
        select r.id, r.tenant_id, r.farm_id, r.barn_id, r.device_id,
          coalesce(r.species, '') as species, r.model_version, r.shadow_version,
          r.predicted_weight_kg, r.low_kg, r.high_kg, r.shadow_weight_kg, r.shadow_low_kg,
          r.shadow_high_kg, case when w.final_weight_kg > 0 then w.final_weight_kg end as weight_kg,
          {models.BASELINE} as baseline_kg,
          (w.start_at at time zone coalesce(z.timezone, 'UTC'))::date as day
        from inference_results r
          join weight_sessions w on w.tenant_id = r.tenant_id and w.id = r.session_id
          left join farm_zones z on z.tenant_id = w.tenant_id and z.farm_id = w.farm_id
        where r.scored_at is null and r.session_id is not null and w.status <> 'created'
        order by r.occurred_at, r.id limit %s for update of r skip locked
        """,  # noqa: S608 - our own words
        (PORTION,),
    )


async def _score(tx: db.Connection, result: Unscored) -> None:
    if result.weight_kg is None:
        return
    if result.predicted_weight_kg is not None:
        await _add_to_day(
            tx, result, result.model_version, result.predicted_weight_kg, result.low_kg,
            result.high_kg,
        )  # fmt: skip
        await _watch_drift(tx, result, result.model_version, result.predicted_weight_kg)
    if result.shadow_weight_kg is not None and result.shadow_version is not None:
        await _add_to_day(
            tx, result, result.shadow_version, result.shadow_weight_kg, result.shadow_low_kg,
            result.shadow_high_kg,
        )  # fmt: skip
        await _watch_drift(tx, result, result.shadow_version, result.shadow_weight_kg)


async def _add_to_day(  # noqa: PLR0917 - one row
    tx: db.Connection,
    result: Unscored,
    version: str,
    predicted_kg: float,
    low_kg: float | None,
    high_kg: float | None,
) -> None:
    weight_kg = result.weight_kg or 0.0
    error = abs(predicted_kg / weight_kg - 1)
    compared = result.baseline_kg is not None
    has_interval = low_kg is not None and high_kg is not None
    await tx.execute(
        """
        insert into vision_days as d values (%s, %s, %s, %s, %s, %s, %s, 1, %s, %s, %s, %s, %s, %s)
        on conflict on constraint vision_days_pkey do update set
          sessions = d.sessions + 1, error_sum = d.error_sum + excluded.error_sum,
          baseline_sessions = d.baseline_sessions + excluded.baseline_sessions,
          baseline_own_error_sum = d.baseline_own_error_sum + excluded.baseline_own_error_sum,
          baseline_error_sum = d.baseline_error_sum + excluded.baseline_error_sum,
          intervals = d.intervals + excluded.intervals, covered = d.covered + excluded.covered
        """,
        (
            *result.scope,
            version,
            result.day,
            error,
            int(compared),
            error if compared else 0.0,
            abs((result.baseline_kg or 0.0) / weight_kg - 1) if compared else 0.0,
            int(has_interval),
            int(has_interval and (low_kg or 0) <= weight_kg <= (high_kg or 0)),
        ),
    )


async def _watch_drift(
    tx: db.Connection, result: Unscored, version: str, predicted_kg: float
) -> None:
    """CUSUM on the residual of the active model: raise the alert, or close it.

    A model that went into shadow while it drifted is watched until it agrees with the scale.
    """
    in_use = (await models.in_use(tx, result.scope)).values()
    model = next((row for row in in_use if row.version == version), None)
    if model is None or result.weight_kg is None:
        return
    before = msgspec.convert(model.drift, DriftState)
    if model.state == SHADOW and not before.is_drifting:
        return
    residual = math.log(result.weight_kg / predicted_kg) / float(model.manifest["residual_sd"])
    after = drift.cusum(before, residual)
    await tx.execute(
        "update vision_models set drift = %s::jsonb where tenant_id = %s and farm_id = %s "
        "and barn_id = %s and device_id = %s and species = %s and version = %s",
        (msgspec.json.encode(after).decode(), *result.scope, model.version),
    )
    if after.is_drifting:
        direction = "more" if after.above > after.below else "less"
        text = (
            f"the scale of {result.device_id}, barn {result.barn_id} of farm {result.farm_id}, "
            f"says {direction} than its camera for many weighings. Look whether it has drifted, "
            "something lies on it or the camera was moved. The camera learns nothing until they "
            "agree, which closes this; if the scale is right, run farmiq vision train"
        )
        await alerts.raise_(tx, Alert(DRIFT, result.scope.subject, "warning", text))
    elif before.is_drifting:
        await alerts.close(tx, kind=DRIFT, subject=result.scope.subject)
