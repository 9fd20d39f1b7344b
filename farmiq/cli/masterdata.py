"""`farmiq masterdata`: farms, barns, batches and what figures are compared with, from CSV files."""

from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import rosters, terminal

if TYPE_CHECKING:
    from farmiq.cloud.farms.kinds import Kind
    from farmiq.plumbing import db

app = terminal.Group(
    "Master data of the cloud: farms, barns, batches, feed_products, metrics, breed_standards. "
    "Needs FARMIQ_CLOUD_DB_URL or a running demo."
)
KindName = Annotated[str, typer.Argument(help="farms, barns, batches, feed_products, …")]
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]


@app.command("columns", shared=terminal.JSON)
def columns(kind: KindName) -> None:
    """Say which columns a CSV file of this kind has; a file needs those without a default."""
    chosen = _kind(kind)
    terminal.print_list(
        chosen.columns,
        lambda name: (name, "needed" if name in chosen.needed else ""),
        document=[{"column": name, "needed": name in chosen.needed} for name in chosen.columns],
    )


@app.command("import")
def import_(
    kind: KindName,
    file: rosters.File,
    *,
    tenant: Tenant,
    dry_run: rosters.DryRun = False,
) -> int:
    """Add the rows of a CSV file and change those that are there: all of them, or none.

    A row is known by its ids; what the file does not name stays. `farmiq masterdata columns` says
    which columns there are.
    """
    return _import(_kind(kind), rosters.text(file), tenant=tenant, dry_run=dry_run)


@app.command("example")
def example(*, tenant: Tenant, dry_run: rosters.DryRun = False) -> int:
    """Add an example of a breed standard: species broiler, breed example.

    Its figures are made up, to try things out with: no breeder published them.
    """
    from importlib import resources

    from farmiq.cloud.farms.kinds import BREED_STANDARDS

    file = resources.files("farmiq.cloud.farms") / "example_breed_standard.csv"
    text = file.read_text(encoding="utf-8")
    return _import(BREED_STANDARDS, text, tenant=tenant, dry_run=dry_run)


def _import(kind: "Kind", text: str, *, tenant: str, dry_run: bool) -> int:
    from farmiq.cloud.farms import kinds, store
    from farmiq.roster import RosterError

    async def save(tx: "db.Connection") -> tuple[int, int]:
        lines, problems = kinds.parse(kind, text)
        changed = await store.import_(
            tx, kind, tenant, lines, problems=problems, actor=terminal.actor(), dry_run=dry_run
        )
        return len(lines), changed

    try:
        count, changed = terminal.in_transaction(save, terminal.CLOUD)
    except RosterError as unusable:
        rosters.print_problems(unusable)
        return 1
    terminal.print_result(
        {"rows": count, "changed": changed, "dry_run": dry_run},
        f"{'would change' if dry_run else 'changed'} {changed:,} of {count:,} {kind.table}",
    )
    return 0


@app.command("ls")
def ls(
    kind: KindName,
    *,
    tenant: Tenant,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
) -> None:
    """List what is registered, in the order of the ids."""
    from farmiq.cloud.farms import store

    chosen = _kind(kind)
    rows = terminal.in_transaction(
        lambda tx: store.page(tx, chosen, tenant, limit=limit + 1), terminal.CLOUD
    )
    terminal.print_page(
        rows,
        limit,
        lambda row: [str(row[name]) if row[name] is not None else "-" for name in chosen.columns],
        empty=f"`farmiq masterdata import {kind} FILE --tenant {tenant}` adds some",
    )


def _kind(name: str) -> "Kind":
    from farmiq.cloud.farms.kinds import KINDS

    known = {kind.table: kind for kind in KINDS}
    terminal.check_known(name, list(known), f"there is no kind {name!r}; choose")
    return known[name]
