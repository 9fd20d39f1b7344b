"""`farmiq delete`: a company, a device or a person goes, with a record of what went."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from farmiq.cloud.deletion import Deletion, Subject
    from farmiq.plumbing import db
    from farmiq.plumbing.storage import objects

app = terminal.Group(
    "Delete a company, a device or a person from the cloud, with proof of what went.\n\n"
    "Without --confirm it only counts, and nothing changes. Needs FARMIQ_CLOUD_DB_ADMIN_URL, and "
    "FARMIQ_CLOUD_S3_URL for images and older readings. Edges and backups are not reached: see "
    "docs/operate/deletion.md."
)
Confirm = Annotated[
    str | None,
    typer.Option(help="Delete it; repeat its name here, so that no other is meant by mistake."),
]
Proof = Annotated[Path | None, typer.Option(help="Write the record to this file too.")]


@app.command(value_error=2)
def company(
    tenant: Annotated[str, typer.Argument(help="The company's tenant_id.")],
    *,
    confirm: Confirm = None,
    proof: Proof = None,
    medicines: Annotated[
        Path | None,
        typer.Option(
            help="Write the records of medicines here, to hand them over: whoever keeps animals "
            "for food needs them for five years. Must be given if there are any."
        ),
    ] = None,
) -> None:
    """Delete a company: all of its rows, objects, archived readings and dead letters."""
    from farmiq.cloud import deletion

    _run(
        lambda tx: deletion.company(tx, tenant),
        name=tenant,
        confirm=confirm,
        proof=proof,
        medicines=medicines,
    )


@app.command(value_error=2)
def device(
    tenant: Annotated[str, typer.Argument(help="The tenant_id of the device's company.")],
    device_id: Annotated[str, typer.Argument(help="A device of a barn, or a camera.")],
    *,
    confirm: Confirm = None,
    proof: Proof = None,
) -> None:
    """Delete what came from a device; records of medicines stay."""
    from farmiq.cloud import deletion

    _run(
        lambda tx: deletion.device(tx, tenant, device_id),
        name=device_id,
        confirm=confirm,
        proof=proof,
    )


@app.command(value_error=2)
def person(
    email: Annotated[str, typer.Argument(help="How the person signs in.")],
    *,
    confirm: Confirm = None,
    proof: Proof = None,
) -> None:
    """Delete a person: account, sign-ins, contacts, mails; what they did stays without a name."""
    from farmiq.cloud import deletion

    _run(lambda tx: deletion.person(tx, email), name=email, confirm=confirm, proof=proof)


@app.command("ls")
def ls() -> int:
    """List what was deleted; exit code 1 if a record was changed or is missing."""
    from farmiq.cloud import deletion

    async def look(tx: "db.Connection") -> tuple[list[dict[str, Any]], list[int]]:
        from farmiq.plumbing import db as database

        rows = await database.fetch_dicts(
            tx, "select number, at, record, sha256 from deletions order by number"
        )
        return rows, await deletion.broken_records(tx)

    rows, broken = terminal.in_transaction(look, terminal.CLOUD_OWNER)
    terminal.print_list(
        [row | {"broken": row["number"] in broken} for row in rows],
        lambda row: (
            terminal.local(row["at"]), row["record"]["kind"], row["record"]["subject"],
            f"{sum(row['record']['rows'].values()):,} rows", row["sha256"][:16],
            "NOT WHAT IT WAS" if row["broken"] else "",
        ),
        empty="nothing was deleted",
    )  # fmt: skip
    return 1 if broken else 0


def _run(
    find: "Callable[[db.Connection], Awaitable[Subject]]",
    *,
    name: str,
    confirm: str | None,
    proof: Path | None,
    medicines: Path | None = None,
) -> None:
    from farmiq.config import CloudSettings
    from farmiq.plumbing.storage import objects

    environment = terminal.environment()
    owner_url = terminal.needed(terminal.CLOUD_OWNER, environment)
    tls = CloudSettings.load_some(environment).tls
    s3_url = environment.get("FARMIQ_CLOUD_S3_URL")
    bucket = objects.Bucket(s3_url, tls=tls) if s3_url else None
    if confirm not in {None, name}:
        raise ValueError(f"--confirm has to be {name!r}, and is {confirm!r}: nothing was deleted")
    if confirm is None:
        shown = asyncio.run(_plan(owner_url, find, bucket))
        _print(shown, "would go", "Nothing was deleted. Say --confirm " + name + " to delete it.")
        return
    if proof is not None:
        # What is gone is gone: a place where nothing can be written is found before.
        proof.open("a").close()
    done, sha256 = asyncio.run(_delete(owner_url, find, bucket, environment, medicines))
    document = {**asdict(done), "sha256": sha256}
    if proof is not None:
        proof.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    _print(done, "went", f"The record is {sha256}: `farmiq delete ls` lists it.")


def _print(shown: "Deletion", verb: str, last: str) -> None:
    lines = [f"{shown.kind} {shown.subject}"]
    lines += [f"{count:>10,} rows of {table} {verb}" for table, count in shown.rows.items()]
    lines += [
        f"{count:>10,} objects below {prefix} {verb}" for prefix, count in shown.objects.items()
    ]
    if shown.archive_files:
        lines.append(f"{shown.archive_files:>10,} files of readings are written without it")
    if shown.dead_letters is not None:
        lines.append(f"{shown.dead_letters:>10,} dead letters {verb}")
    lines += [
        f"{count:>10,} rows of {column} get another name" for column, count in shown.renamed.items()
    ]
    lines += [
        f"{remaining.rows:>10,} rows of {remaining.table} stay: {remaining.why}"
        for remaining in shown.remaining
    ]
    terminal.print_result(asdict(shown), *lines, last)


async def _plan(
    owner_url: str,
    find: "Callable[[db.Connection], Awaitable[Subject]]",
    bucket: "objects.Bucket | None",
) -> "Deletion":
    import psycopg

    from farmiq.cloud import deletion

    async with await psycopg.AsyncConnection.connect(owner_url, application_name="farmiq") as tx:
        shown = await deletion.plan(tx, await find(tx), bucket, by=terminal.actor())
        await tx.rollback()
        return shown


async def _delete(
    owner_url: str,
    find: "Callable[[db.Connection], Awaitable[Subject]]",
    bucket: "objects.Bucket | None",
    environment: dict[str, str],
    medicines: Path | None,
) -> "tuple[Deletion, str]":
    import psycopg

    from farmiq.cloud import deletion

    async with await psycopg.AsyncConnection.connect(owner_url, application_name="farmiq") as tx:
        subject = await find(tx)
        handed_over = await deletion.hand_over_medicines(tx, subject, medicines)
        await tx.commit()
        letters = await _discard(subject, environment)
        done = await deletion.delete(tx, subject, bucket, by=terminal.actor())
        done.dead_letters = letters
        done.remaining += handed_over
        sha256 = await deletion.record(tx, done)
        await tx.commit()
        if bucket is not None and done.archive_files:
            await deletion.tidy(tx, subject, bucket)
    return done, sha256


async def _discard(subject: "Subject", environment: dict[str, str]) -> int | None:
    """Discard the company's dead letters; None: the bus was not asked."""
    from farmiq.cloud.deadletter import handlers
    from farmiq.cloud.deadletter.rules import BusFilter
    from farmiq.config import CloudSettings
    from farmiq.plumbing import db
    from farmiq.plumbing.bus import amqp

    bus_url, url = environment.get("FARMIQ_AMQP_URL"), environment.get(terminal.CLOUD)
    if subject.kind != "company" or not bus_url or not url:
        return None
    order = handlers.Order(
        "discard", BusFilter(tenant_id=subject.tenant_id), terminal.actor(), 1_000_000,
        rate_per_s=1000, dry_run=False,
    )  # fmt: skip
    tls = CloudSettings.load_some(environment).tls
    async with (
        amqp.connection(bus_url, name="farmiq-delete", tls=tls) as opened,
        db.pool(url, name="farmiq-delete", min_size=0) as pool,
    ):
        return len([outcome async for outcome in handlers.move(opened, pool, order)])
