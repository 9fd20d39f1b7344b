"""`farmiq media`: images at the edge."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.plumbing import db
    from farmiq.plumbing.storage import objects

T = TypeVar("T")

app = terminal.Group(
    "Images of the edge: asked for, uploaded, taken to the cloud.\n\n"
    "Needs FARMIQ_EDGE_DB_URL, and FARMIQ_EDGE_S3_URL for what looks into the bucket, or a "
    "running demo. More in docs/operate/media.md."
)
MediaId = Annotated[str, typer.Argument(help="media_id, as `farmiq media ls` shows it.")]


@app.command("ls")
def ls(
    *,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    device: Annotated[str | None, typer.Option(help="Of this device only.")] = None,
    session: Annotated[str | None, typer.Option(help="Of this weigh session only.")] = None,
    status: Annotated[str | None, typer.Option(help="presigned, stored or missing only.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
) -> int:
    """List images, newest capture first. Exit code 3: one of them is missing."""
    from farmiq.edge.media import store
    from farmiq.edge.media.api import STATES, ImageFilter

    terminal.check_known(status, STATES, f"no image is ever {status!r}: choose")
    query = ImageFilter.model_construct(
        tenant=tenant,
        device=device,
        session=_uuid(session) if session else None,
        status=status,
        limit=limit,
    )
    images = terminal.in_transaction(lambda tx: store.page(tx, query.page()))
    rows = terminal.print_page(images, limit, _cells)
    return 3 if any(row["upload_status"] == "missing" for row in rows) else 0


@app.command("show")
def show(media_id: MediaId) -> int:
    """Show all that is known of one image. Exit code 3: it is not in the store."""
    from psycopg.rows import dict_row

    wanted = _uuid(media_id)

    async def look(tx: "db.Connection") -> dict[str, Any] | None:
        async with tx.cursor(row_factory=dict_row) as cursor:
            await cursor.execute("select * from media_objects where id = %s", (wanted,))
            return await cursor.fetchone()

    row = terminal.in_transaction(look)
    if row is None:
        terminal.fail(f"no image {media_id} is known")
    terminal.print_result(row, *terminal.fields(row))
    return 0 if row["upload_status"] == "stored" else 3


@app.command("status")
def status() -> int:
    """How far images are: stored, missing, waiting for the cloud.

    Exit code 3: some are missing, or the cloud refuses some.
    """
    from dataclasses import asdict

    from farmiq.edge.media import store

    tenants = terminal.in_transaction(store.progress)
    document = [asdict(tenant) for tenant in tenants]
    terminal.print_list(tenants, _progress, document=document)
    return 3 if any(tenant.missing or tenant.failing for tenant in tenants) else 0


@app.command("verify")
def verify(
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte and compare sha256; takes long.")
    ] = False,
) -> int:
    """Compare rows with objects and objects with rows; changes nothing. Exit code 3: they differ.

    gone: a stored image without its object. damaged: another size, or with --deep other bytes.
    unknown: an object that belongs to no image.
    """
    from farmiq.edge.media import jobs

    report = _with_store(lambda pool, bucket: jobs.verify(pool, bucket, deep=deep))
    differing = {"gone": report.gone, "damaged": report.damaged, "unknown": report.unknown}
    outcome = "all is well" if report.is_clean else "see above"
    terminal.print_result(
        {"checked": report.checked, **differing},
        *(f"{name:<8} {key}" for name, keys in differing.items() for key in keys),
        f"{report.checked} images looked at; {outcome}",
    )
    return 0 if report.is_clean else 3


@app.command("export")
def export(
    media_id: MediaId,
    out: Annotated[Path, typer.Argument(help="Where to write it; never written over.")],
    *,
    rejected: Annotated[
        bool, typer.Option("--aside", help="What was set aside in its place, whatever it is.")
    ] = False,
    bare: Annotated[
        bool, typer.Option("--bare", help="Without EXIF and other metadata, as it is shown.")
    ] = False,
) -> None:
    """Write an image's bytes to a file, as they were uploaded."""
    from farmiq.edge.media import store
    from farmiq.plumbing.images import pictures

    if out.exists():
        terminal.fail(f"{out} exists; choose another file", code=2)
    wanted = _uuid(media_id)

    async def get(pool: "db.Pool", bucket: "objects.Bucket") -> bytes | None:
        async with pool.connection() as connection:
            image = await store.by_id(connection, wanted)
        key = image and (image.aside_key if rejected else image.object_key)
        return await bucket.find(key) if key else None

    data = _with_store(get)
    if data is None:
        terminal.fail(f"there is nothing in the store for image {media_id}")
    if bare:
        try:
            data = pictures.bare(data)
        except pictures.UnreadableError as error:
            terminal.fail(f"this is no picture: {error}")
    out.write_bytes(data)
    document = {"media_id": str(wanted), "file": str(out), "size_bytes": len(data)}
    terminal.print_result(document, f"{len(data)} bytes in {out}")


def _with_store(work: "Callable[[db.Pool, objects.Bucket], Awaitable[T]]") -> T:
    from farmiq.config import EdgeSettings
    from farmiq.plumbing import db
    from farmiq.plumbing.storage import objects

    environment = terminal.environment()
    url = terminal.needed(terminal.EDGE, environment)
    terminal.needed("FARMIQ_EDGE_S3_URL", environment)
    settings = EdgeSettings.load_some(environment)
    store_url = settings.s3_url.get_secret_value() if settings.s3_url else ""

    async def once() -> T:
        async with db.pool(url, name="farmiq") as pool:
            return await work(pool, objects.Bucket(store_url, tls=settings.tls))

    try:
        return asyncio.run(once())
    except objects.UNAVAILABLE as error:
        terminal.fail(f"the object store does not answer: {error}")


def _uuid(text: str) -> UUID:
    return terminal.check_uuid(text, "is not a UUID")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        terminal.local(row["captured_at"]),
        row["upload_status"],
        "" if row["size_bytes"] is None else f"{row['size_bytes']:,} B",
        f"{row['tenant_id']}/{row['device_id']}",
        str(row["media_id"]),
        "in the cloud" if row["synced_at"] else "",
    )


def _progress(tenant: Any) -> tuple[str, ...]:
    oldest = f", oldest {tenant.oldest_unsynced_s:.0f} s" if tenant.oldest_unsynced_s else ""
    event = f", {tenant.waiting_for_event} after their event" if tenant.waiting_for_event else ""
    line = (
        f"{tenant.tenant_id}: {tenant.stored} stored ({tenant.stored_bytes} B), "
        f"{tenant.unsynced} not in the cloud yet ({tenant.unsynced_bytes} B{oldest}{event}), "
        f"{tenant.failing} refused by it, {tenant.missing} missing, {tenant.presigned} asked for"
    )
    return (line,)
