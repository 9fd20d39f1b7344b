"""`farmiq vision train | models | promote | explain --session`: models of this edge."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.config import EdgeSettings
    from farmiq.farm.vision.estimate import Estimate
    from farmiq.plumbing import db

T = TypeVar("T")

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.")]


def train(*, tenant: Tenant = None, device: Annotated[str | None, typer.Option()] = None) -> int:
    """Train the model of each camera now, from its closed weighings; needs the extra `vision`.

    A new model is used only if it beats the one in use and what would be said without a camera.
    Exit code 3: nothing could be trained.
    """
    from farmiq.edge.bucket import bucket_of
    from farmiq.edge.vision import models, training
    from farmiq.farm.vision.features import SCHEMA

    async def work(pool: "db.Pool", settings: "EdgeSettings") -> list[dict[str, Any]]:
        files = models.ModelFiles(settings.vision_models(), bucket_of(settings))
        async with pool.connection() as connection:
            scopes = [scope for scope, _, _ in await models.scopes(connection, SCHEMA)]
        return [
            {**scope._asdict(), **await training.train(pool, files, scope)}
            for scope in scopes
            if tenant in (None, scope.tenant_id) and device in (None, scope.device_id)
        ]

    rows = _at_edge(work)
    terminal.print_list(
        rows,
        lambda row: (_camera(row), row["version"] or "-", row["state"] or "none", row["reason"]),
        empty="no camera has a closed weighing that was looked at",
    )
    return 0 if any(row["state"] for row in rows) else 3


def models(*, tenant: Tenant = None) -> None:
    """List the models, with what they said of themselves and how they did since."""
    from farmiq.edge.vision import models as store

    rows = terminal.in_transaction(lambda tx: store.page(tx, tenant))
    terminal.print_list(rows, _cells, empty="nothing was learned yet")


def promote(
    version: Annotated[str, typer.Argument(help="As `farmiq vision models` prints it.")],
    *,
    state: Annotated[str, typer.Option(help="active, shadow or retired.")] = "active",
) -> int:
    """Use a model, or use it no more, whatever the figures say; it is written to the audit log.

    The next training decides by the figures again. An alert that scale and camera disagree is
    closed. Exit code 3: there is no such model.
    """
    from farmiq.edge import alerts, audit
    from farmiq.edge.vision import models as store
    from farmiq.edge.vision import training

    states = (store.ACTIVE, store.SHADOW, store.RETIRED)
    terminal.check_known(state, states, f"{state!r} is no state; choose")

    async def work(tx: "db.Connection") -> int:
        scopes = await store.lock(tx, version)
        for scope in scopes:
            by = f"set by {terminal.actor()}"
            await store.set_state(tx, scope, version, state=state, reason=by)
            await alerts.close(tx, kind=training.DRIFT, subject=scope.subject, by=terminal.actor())
            await audit.note(
                tx, actor=terminal.actor(), action="vision.promote", subject=version,
                count=1, asked={"state": state},
            )  # fmt: skip
        return len(scopes)

    count = terminal.in_transaction(work)
    terminal.print_result(
        {"version": version, "state": state, "count": count},
        f"{version} is {state}" if count else f"there is no model {version}",
    )
    return 0 if count else 3


def explain(session_id: str, out: Path) -> "Estimate":
    """Write the picture of a weighing of this edge; returns its estimate."""
    from farmiq.edge.bucket import bucket_of
    from farmiq.edge.vision import explain as explaining

    session = terminal.check_uuid(session_id, "is no id of a weighing")

    async def work(pool: "db.Pool", settings: "EdgeSettings") -> explaining.Explained | None:
        bucket = bucket_of(settings)
        if bucket is None:
            raise ValueError("FARMIQ_EDGE_S3_URL is not set: images are read from there")
        return await explaining.explain(pool, bucket, session)

    explained = _at_edge(work)
    if explained is None:
        terminal.fail(f"no image of a weighing {session_id} was looked at yet", code=3)
    out.write_bytes(explained.picture)
    return explained.estimate


def _at_edge(work: "Callable[[db.Pool, EdgeSettings], Awaitable[T]]") -> T:
    from farmiq.config import EdgeSettings
    from farmiq.plumbing import db, log
    from farmiq.plumbing.storage import objects

    log.configure("error")  # what was trained is printed
    environment = terminal.environment()
    url = terminal.needed(terminal.EDGE, environment)
    settings = EdgeSettings.load_some(environment)

    async def once() -> T:
        async with db.pool(url, name="farmiq") as pool:
            return await work(pool, settings)

    try:
        return asyncio.run(once())
    except objects.UNAVAILABLE as error:
        terminal.fail(f"the object store does not answer: {db.first_line(error)}")


def _camera(row: dict[str, Any]) -> str:
    return f"{row['tenant_id']}/{row['device_id']} {row['species']}".rstrip()


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    past = f"since then {row['running_mape']:.1%} in {row['sessions']}" if row["sessions"] else ""
    return (
        _camera(row),
        row["version"],
        row["state"],
        f"{row['n_train']} weighings",
        f"error {row['cv_mape']:.1%} ({row['baseline_mape']:.1%} without a camera)",
        past,
        row["reason"],
    )
