"""`farmiq report`: weekly and monthly reports of farms and batches as PDF."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.cloud.reports.files import File, Subject
    from farmiq.cloud.reports.periods import Period
    from farmiq.plumbing import db

app = terminal.Group(
    "Reports of farms and batches as PDF, and who gets them by mail. Needs FARMIQ_CLOUD_DB_URL or "
    "a running demo."
)
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
Farm = Annotated[str | None, typer.Option(help="Of this farm.")]
Batch = Annotated[str | None, typer.Option(help="Of this batch.")]
Of = Annotated[
    str, typer.Option("--period", help="A week such as 2026-W46, or a month such as 2026-10.")
]
Language = Annotated[str, typer.Option(help="en, or another language that pages have.")]


@app.command("make", value_error=2)
def make(
    *,
    tenant: Tenant,
    farm: Farm = None,
    batch: Batch = None,
    period: Of,
    language: Language = "en",
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; default: its own name, here.")
    ] = None,
) -> None:
    """Make a report and write it to a file."""
    file = terminal.in_transaction(
        lambda tx: _made(tx, tenant, farm=farm, batch=batch, period=period, language=language),
        terminal.CLOUD,
    )[1]
    target = out or Path(file.name)
    target.write_bytes(file.content)
    terminal.print_result(
        {"file": str(target), "size_bytes": len(file.content), "headline": file.headline},
        f"{target}  {len(file.content):,} bytes",
        file.headline,
    )


@app.command("send", value_error=2)
def send(
    *,
    tenant: Tenant,
    farm: Farm = None,
    batch: Batch = None,
    period: Of,
    to: Annotated[str, typer.Option(help="One e-mail address.")],
    language: Language = "en",
) -> None:
    """Make a report and put it into the outbox: cloud-notification-service mails it."""
    from farmiq.cloud.reports import periods, store
    from farmiq.plumbing import mail

    if not mail.is_mailbox(to):
        raise ValueError("--to has to be one address, such as ann@example.com")

    async def work(tx: "db.Connection") -> None:
        subject, file = await _made(
            tx, tenant, farm=farm, batch=batch, period=period, language=language
        )
        await store.add_report(
            tx,
            tenant,
            subject,
            periods.parse(period),
            file=file,
            address=to,
            language=language,
            subscription_id=None,
            by=terminal.actor(),
        )

    terminal.in_transaction(work, terminal.CLOUD)
    terminal.print_result(
        {"to": to, "period": period}, f"the report of {period} is on its way to {to}"
    )


@app.command("ls")
def ls(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only of this company.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
) -> None:
    """List reports that were made to be mailed, newest first, and what became of each."""
    from farmiq.cloud.reports import periods, store

    rows = terminal.in_transaction(
        lambda tx: store.reports(tx, tenant, limit=limit + 1), terminal.CLOUD
    )
    listed: list[dict[str, Any]] = [
        {
            "created_at": row.created_at,
            "tenant_id": row.tenant_id,
            "farm_id": row.farm_id,
            "batch_id": row.batch_id,
            "period": periods.containing(row.period, row.first_day).name,
            "address": row.address,
            "state": row.state,
            "error": row.error,
            "report_id": row.report_id,
        }
        for row in rows
    ]
    terminal.print_page(
        listed,
        limit,
        lambda row: (
            terminal.local(row["created_at"]),
            row["tenant_id"],
            row["batch_id"] or row["farm_id"],
            row["period"],
            row["address"],
            row["state"] or "",
            row["error"] or "",
        ),
        empty="no report was mailed yet; people subscribe on the page Reports",
    )


async def _made(
    tx: "db.Connection",
    tenant: str,
    *,
    farm: str | None,
    batch: str | None,
    period: str,
    language: str,
) -> "tuple[Subject, File]":
    """Raises ValueError with what to do."""
    from farmiq.cloud.reports import files, periods, queries, store
    from farmiq.cloud.reports.files import Subject

    wanted: Period = periods.parse(period)
    if (farm is None) == (batch is None):
        raise ValueError("name either --farm or --batch")
    if batch is not None:
        known = await queries.batch(tx, tenant, batch)
        subject = Subject(known.farm_id, batch) if known else None
    else:
        subject = Subject(farm or "")
    now = await store.now(tx)
    gathered = await files.gather(tx, tenant, subject, wanted, now=now) if subject else None
    if subject is None or gathered is None:
        raise ValueError(f"tenant {tenant} has no {'batch ' + batch if batch else f'farm {farm}'}")
    return subject, files.draw(gathered, language=language)
