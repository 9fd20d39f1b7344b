"""`farmiq resync`: history to the cloud once more."""

import getpass
from datetime import datetime
from typing import Annotated, Any

import typer

from farmiq.cli import terminal


def resync(
    *,
    since: Annotated[
        datetime, typer.Option("--from", help="Events that happened from then (UTC).")
    ],
    until: Annotated[datetime, typer.Option("--to", help="And before then (UTC).")],
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device's.")] = None,
    rate: Annotated[
        float, typer.Option(min=1, max=100_000, help="At most so many a second; live goes first.")
    ] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
) -> int:
    """Send events that the cloud has acknowledged once more, for one that lost some of them.

    They keep their ids: what the cloud's tables have is not stored twice. They come from the
    outbox, so as far back as OUTBOX_RETENTION_DAYS. Runs at the edge, with its settings; it is
    audited. Exit code 3: the cloud refused some of them. Exit code 1: it was not reached; the text
    says how to go on.
    """
    import asyncio
    from datetime import UTC

    from farmiq.config import EdgeSettings
    from farmiq.edge.sync.resync import ResyncFilter

    environment = terminal.environment()
    for name in ("FARMIQ_EDGE_DB_URL", "FARMIQ_CLOUD_URL", "FARMIQ_EDGE_KEY_FILE"):
        terminal.needed(name, environment)
    chosen = ResyncFilter(
        since.replace(tzinfo=since.tzinfo or UTC),
        until.replace(tzinfo=until.tzinfo or UTC),
        tenant,
        device,
    )
    if chosen.since >= chosen.until:
        terminal.fail("--from has to be before --to", code=2)
    settings = EdgeSettings.load_some(environment)
    counts = asyncio.run(_run(settings, chosen, rate=rate, dry_run=dry_run))
    line = f"{counts['sent']} sent, {counts['refused']} refused"
    terminal.print_result(counts, f"{counts['meant']} would be sent" if dry_run else line)
    return 3 if counts["refused"] else 0


async def _run(settings: Any, chosen: Any, *, rate: float, dry_run: bool) -> dict[str, Any]:
    import httpx2

    from farmiq.edge.sync import resync as history
    from farmiq.edge.sync.cloud import Cloud
    from farmiq.plumbing import db

    def connect() -> httpx2.AsyncClient:
        tls = settings.tls.client() if settings.cloud_url.startswith("https:") else False
        return httpx2.AsyncClient(timeout=settings.sync_timeout_s, verify=tls)

    url = settings.db_url.get_secret_value()
    async with db.pool(url, name="farmiq resync", max_size=2) as pool:
        if dry_run:
            async with db.transaction(pool) as tx:
                meant = await history.count_events(tx, chosen)
            return {"meant": sum(meant.values()), "tenants": meant, "sent": 0, "refused": 0}
        async with Cloud(connect, settings) as cloud:
            done = await history.resync(
                pool,
                cloud,
                settings,
                chosen,
                rate_per_s=rate,
                actor=f"cli:{getpass.getuser()}",
                say=(lambda _: None) if terminal.wants_json() else typer.echo,
            )
    return {"sent": done.sent, "refused": done.refused}
