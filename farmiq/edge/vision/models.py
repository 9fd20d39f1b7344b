"""Models by camera and species: their rows, their files, and which one makes estimates."""

import asyncio
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from farmiq import crash
from farmiq.plumbing import db, ids
from farmiq.plumbing.storage import objects

FILES = ("head.onnx", "manifest.json")
ACTIVE, SHADOW, RETIRED = "active", "shadow", "retired"
# Of each scope; older ones are deleted.
MAX_RETIRED = 20
# A folder that no row names may be of a model that is being trained, unless it is older.
MAX_TRAINING_S = 86_400.0
# A model's folder, or what a process that died while writing one has left.
_OUR_FOLDER = re.compile(r"[0-9a-f]{16}|\.[0-9a-f-]{36}")


class CameraScope(NamedTuple):
    """A camera at its place and the species of the batch before it; '' if that is not known."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    species: str

    @property
    def camera_id(self) -> str:
        return "/".join(self[:4])

    @property
    def subject(self) -> str:
        """Of its alerts."""
        return f"{self.tenant_id}/{self.device_id}"


@dataclass(frozen=True, slots=True)
class ModelRow:
    version: str
    state: str
    reason: str
    n_train: int
    cv_mape: float
    baseline_mape: float
    trained_at: datetime
    manifest: dict[str, Any]
    drift: dict[str, Any]


_SCOPE = ", ".join(CameraScope._fields)
_OF_SCOPE = "tenant_id = %s and farm_id = %s and barn_id = %s and device_id = %s and species = %s"
_COLUMNS = ", ".join(ModelRow.__slots__)


async def in_use(connection: db.Connection, scope: CameraScope) -> dict[str, ModelRow]:
    """The active model and the one in shadow, by state."""
    rows = await db.fetch_as(
        connection,
        ModelRow,
        f"select {_COLUMNS} from vision_models where {_OF_SCOPE} and state <> %s",  # noqa: S608 - our own words
        (*scope, RETIRED),
    )
    return {row.state: row for row in rows}


async def add(
    tx: db.Connection,
    scope: CameraScope,
    *,
    version: str,
    state: str,
    reason: str,
    manifest: bytes,
) -> None:
    """A model that was trained takes its place; the one that had it is retired."""
    figures: dict[str, Any] = msgspec.json.decode(manifest)
    await _retire(tx, scope, state)
    await tx.execute(
        """
        insert into vision_models (tenant_id, farm_id, barn_id, device_id, species, version, state,
          reason, manifest, n_train, cv_mape, baseline_mape, trained_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, fn_now())
        on conflict on constraint vision_models_pkey do update set
          state = excluded.state, reason = excluded.reason, trained_at = excluded.trained_at
        """,
        (
            *scope,
            version,
            state,
            reason,
            manifest.decode(),
            figures["n_sessions"],
            figures["cv_mape"],
            figures["baseline_mape"],
        ),
    )


async def set_state(
    tx: db.Connection, scope: CameraScope, version: str, *, state: str, reason: str
) -> bool:
    """Use a model, or use it no more; False if there is no such model."""
    await _retire(tx, scope, state)
    cursor = await tx.execute(
        f"update vision_models set state = %s, reason = %s where {_OF_SCOPE} and version = %s",  # noqa: S608 - our own words
        (state, reason, *scope, version),
    )
    return cursor.rowcount > 0


async def lock(tx: db.Connection, version: str) -> list[CameraScope]:
    """The scopes that have this model; it is not deleted before this transaction ends."""
    rows = await db.fetch_all(
        tx,
        f"select {_SCOPE} from vision_models where version = %s for update",  # noqa: S608 - our own words
        version,
    )
    return [CameraScope(*row) for row in rows]


async def purge(pool: db.Pool, files: "ModelFiles") -> int:
    """Delete retired models but for the newest of each scope: objects, then the row, then folders.

    Returns how many rows. What stops it between two of these steps is done by the next round.
    """
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection,
            f"""
            select {_SCOPE}, version from (
              select {_SCOPE}, version, row_number() over (
                partition by {_SCOPE} order by trained_at desc, version) as number
              from vision_models where state = %s) m
            where number > %s
            """,  # noqa: S608 - our own words
            RETIRED,
            MAX_RETIRED,
        )
    deleted = 0
    for *scope, version in rows:
        async with db.transaction(pool) as tx:
            is_retired = f"{_OF_SCOPE} and version = %s and state = %s"
            key = (*scope, version, RETIRED)
            if not await db.fetch_value(
                tx,
                f"select true from vision_models where {is_retired} for update",  # noqa: S608 - our own words
                *key,
            ):
                continue
            await files.delete_objects(scope[0], version)
            crash.here("vision.after_model_objects")
            await tx.execute(f"delete from vision_models where {is_retired}", key)  # noqa: S608 - our own words
            deleted += 1
    async with pool.connection() as connection:
        versions = await db.fetch_all(connection, "select version from vision_models")
    await files.delete_folders({version for (version,) in versions})
    return deleted


async def _retire(tx: db.Connection, scope: CameraScope, state: str) -> None:
    await tx.execute(
        f"update vision_models set state = %s where {_OF_SCOPE} and state = %s",  # noqa: S608 - our own words
        (RETIRED, *scope, state),
    )


async def page(connection: db.Connection, tenant_id: str | None) -> list[dict[str, Any]]:
    """All models with their running errors, newest first."""
    return await db.fetch_dicts(
        connection,
        """
        select m.tenant_id, m.farm_id, m.barn_id, m.device_id, m.species, m.version, m.state,
          m.reason, m.n_train, m.cv_mape, m.baseline_mape, m.trained_at,
          d.sessions, d.running_mape, d.running_coverage
        from vision_models m left join lateral (
          select sum(sessions)::bigint as sessions,
            sum(error_sum) / nullif(sum(sessions), 0) as running_mape,
            sum(covered)::float8 / nullif(sum(intervals), 0) as running_coverage
          from vision_days d
          where d.tenant_id = m.tenant_id and d.farm_id = m.farm_id and d.barn_id = m.barn_id
            and d.device_id = m.device_id and d.species = m.species and d.version = m.version) d
          on true
        where %(tenant)s::text is null or m.tenant_id = %(tenant)s
        order by m.trained_at desc, m.version limit 1000
        """,
        {"tenant": tenant_id},
    )


# --- files


class ModelFiles:
    """Models in a folder, each under its version, and a copy of each in the bucket."""

    def __init__(self, folder: Path, bucket: objects.Bucket | None) -> None:
        self._folder, self._bucket = folder, bucket

    async def store(self, tenant_id: str, version: str, files: Mapping[str, bytes]) -> None:
        await asyncio.to_thread(self._write, version, files)
        if self._bucket is not None:
            for name, content in files.items():
                await self._bucket.put(
                    _key(tenant_id, version, name), content, content_type="application/octet-stream"
                )

    async def folder(self, tenant_id: str, version: str) -> Path:
        """Where its files are; those that the folder has lost come from the bucket."""
        path = self._folder / version
        if not await asyncio.to_thread(path.is_dir):
            files = await self._download(tenant_id, version)
            if files is not None:
                await asyncio.to_thread(self._write, version, files)
        return path

    async def delete_objects(self, tenant_id: str, version: str) -> None:
        """Its copy in the bucket."""
        if self._bucket is not None:
            for name in FILES:
                await self._bucket.delete(_key(tenant_id, version, name))

    async def delete_folders(self, versions: Collection[str]) -> None:
        """All but those of these versions, and of what may be in training."""
        await asyncio.to_thread(self._delete_folders, versions)

    def _delete_folders(self, versions: Collection[str]) -> None:
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if (
                path.name not in versions
                and _OUR_FOLDER.fullmatch(path.name)
                and path.stat().st_mtime < time.time() - MAX_TRAINING_S
            ):
                shutil.rmtree(path)

    async def _download(self, tenant_id: str, version: str) -> dict[str, bytes] | None:
        if self._bucket is None:
            return None
        contents = {name: await self._bucket.find(_key(tenant_id, version, name)) for name in FILES}
        files = {name: content for name, content in contents.items() if content is not None}
        return files if len(files) == len(FILES) else None

    def _write(self, version: str, files: Mapping[str, bytes]) -> None:
        """All of them or none: the folder appears under its name when everything is on disk."""
        passing = self._folder / f".{ids.new()}"
        passing.mkdir(parents=True)
        for name, content in files.items():
            with (passing / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        try:
            passing.rename(self._folder / version)
        except OSError:
            # It is there already: a version is named after its content.
            shutil.rmtree(passing)


def _key(tenant_id: str, version: str, name: str) -> str:
    return f"models/{tenant_id}/{version}/{name}"


# --- the figures of a scope, for training and for the pages

# What would be said without a camera: the mean of the batch's last weighings in the barn before
# this one, at most twenty.
BASELINE = """
(select avg(b.kg) from (
  select o.final_weight_kg as kg from weight_sessions o
  where o.tenant_id = w.tenant_id and o.farm_id = w.farm_id and o.barn_id = w.barn_id
    and o.batch_id is not distinct from w.batch_id and o.status = 'finalized'
    and o.final_weight_kg > 0 and o.start_at < w.start_at
  order by o.start_at desc limit 20) b)
"""


class Labelled(NamedTuple):
    """A session with features and the scale's weight."""

    session_id: str
    day: str
    at: datetime
    features: Sequence[float]
    weight_kg: float
    baseline_kg: float | None
    quality: float
    animal_id: str | None


MAX_EXAMPLES = 2000
# Of the newest sessions that a model looked at; with more without a number it answers no longer.
RECENT, MAX_SILENT = 20, 10


async def labelled(connection: db.Connection, scope: CameraScope, schema: str) -> list[Labelled]:
    """The newest closed sessions of a scope, oldest first."""
    rows = await db.fetch_all(
        connection,
        f"""
        select w.id::text, (w.start_at at time zone coalesce(z.timezone, 'UTC'))::date::text,
          w.start_at, r.features, w.final_weight_kg, {BASELINE}, r.quality,
          (select e.animal_id from weight_session_events e
           where e.session_id = w.id and e.event_type = 'weighvision.session.created'
           order by e.occurred_at, e.seq nulls first, e.event_id limit 1)
        from inference_results r
          join weight_sessions w on w.tenant_id = r.tenant_id and w.id = r.session_id
          left join farm_zones z on z.tenant_id = w.tenant_id and z.farm_id = w.farm_id
        where r.tenant_id = %s and r.farm_id = %s and r.barn_id = %s and r.device_id = %s
          and coalesce(r.species, '') = %s and r.features is not null and r.feature_schema = %s
          and w.status = 'finalized' and w.final_weight_kg > 0
        order by r.occurred_at desc limit %s
        """,  # noqa: S608 - our own words
        *scope,
        schema,
        MAX_EXAMPLES,
    )
    return [Labelled(*row) for row in reversed(rows)]


async def scopes(connection: db.Connection, schema: str) -> list[tuple[CameraScope, int, int]]:
    """Each scope with its closed sessions, and how many came since its newest model was trained.

    They count from when they were compared with the scale. How many a model has learned would not
    do: it learns a limited number, and old sessions are deleted.
    """
    rows = await db.fetch_all(
        connection,
        """
        select r.tenant_id, r.farm_id, r.barn_id, r.device_id, coalesce(r.species, '') as species,
          count(*),
          count(*) filter (where m.at is null or r.scored_at is null or r.scored_at > m.at)
        from inference_results r
          join weight_sessions w on w.tenant_id = r.tenant_id and w.id = r.session_id
          left join (
            select tenant_id, farm_id, barn_id, device_id, species, max(trained_at) as at
            from vision_models where manifest ->> 'schema' = %s group by 1, 2, 3, 4, 5) m
            on m.tenant_id = r.tenant_id and m.farm_id = r.farm_id and m.barn_id = r.barn_id
              and m.device_id = r.device_id and m.species = coalesce(r.species, '')
        where r.features is not null and r.feature_schema = %s and w.status = 'finalized'
          and w.final_weight_kg > 0
        group by 1, 2, 3, 4, 5
        """,
        schema,
        schema,
    )
    return [(CameraScope(*row[:5]), row[5], row[6]) for row in rows]


async def running(
    connection: db.Connection, scope: CameraScope, version: str
) -> dict[str, float | int | None]:
    """How a model did on sessions that it had not learned."""
    (row,) = await db.fetch_dicts(
        connection,
        f"""
        select coalesce(sum(sessions), 0)::bigint as sessions,
          sum(error_sum) / nullif(sum(sessions), 0) as mape,
          coalesce(sum(baseline_sessions), 0)::bigint as compared,
          sum(baseline_own_error_sum) / nullif(sum(baseline_sessions), 0) as compared_mape,
          sum(baseline_error_sum) / nullif(sum(baseline_sessions), 0) as baseline_mape,
          sum(covered)::float8 / nullif(sum(intervals), 0) as coverage
        from vision_days where {_OF_SCOPE} and version = %s
        """,  # noqa: S608 - our own words
        (*scope, version),
    )
    return row


async def is_silent(connection: db.Connection, scope: CameraScope, version: str) -> bool:
    """Whether a model gives no number for most of its newest sessions that have ended.

    Their animals are unlike those it learned, as of a new batch; its error says nothing of them.
    """
    silent: int = await db.fetch_value(
        connection,
        """
        select count(*) filter (where kg is null) from (
          select case when is_shadow then shadow_weight_kg else predicted_weight_kg end as kg
          from inference_results
          where tenant_id = %s and farm_id = %s and barn_id = %s and device_id = %s
            and coalesce(species, '') = %s and model_version = %s
            and features is not null and scored_at is not null
          order by occurred_at desc limit %s) r
        """,
        *scope,
        version,
        RECENT,
    )
    return silent > MAX_SILENT
