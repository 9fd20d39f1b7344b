"""`farmiq farm`: in which time zone a farm's days are."""

from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    import psycopg

app = terminal.Group(
    "Farms of the edge: whose days are whose. They need FARMIQ_EDGE_DB_URL or a running demo.",
)
Tenant = Annotated[str, typer.Argument(help="tenant_id, as in the devices' topics.")]
Farm = Annotated[str, typer.Argument(help="farm_id, as in the devices' topics.")]


@app.command("set")
def set_(
    tenant: Tenant,
    farm: Farm,
    *,
    timezone: Annotated[str, typer.Option(help="IANA zone of its days, such as Asia/Bangkok.")],
) -> None:
    """Set a farm's time zone; aggregates by day are made again in it, in the background.

    It counts before the zone that the cloud has for the farm, and `farmiq farm unset` takes it
    back. A farm without any has the days of FARMIQ_EDGE_TIMEZONE.
    """
    from farmiq.plumbing import zones

    for name in (tenant, farm):
        terminal.check_id(name)
    if timezone not in zones.names():
        terminal.fail(f"no time zone is called {timezone!r}: give one such as Asia/Bangkok", code=2)
    with terminal.connect(terminal.EDGE) as connection:
        changed = connection.execute(
            """
            insert into farms as f (tenant_id, farm_id, timezone) values (%s, %s, %s)
            on conflict on constraint farms_pkey do update set timezone = excluded.timezone
            where f.timezone <> excluded.timezone
            """,
            (tenant, farm, timezone),
        ).rowcount
        if changed:
            _rezone(connection, tenant, farm, "farm.set", timezone)
    terminal.print_result(
        {"tenant_id": tenant, "farm_id": farm, "timezone": timezone, "changed": bool(changed)},
        f"{tenant}/{farm}  {timezone}" + ("" if changed else "  (as before)"),
    )


@app.command("unset")
def unset(tenant: Tenant, farm: Farm) -> None:
    """Take back what `farmiq farm set` set: the zone of the cloud counts again, if it has one."""
    with terminal.connect(terminal.EDGE) as connection:
        changed = connection.execute(
            "delete from farms where tenant_id = %s and farm_id = %s", (tenant, farm)
        ).rowcount
        if changed:
            _rezone(connection, tenant, farm, "farm.unset", None)
    terminal.print_result(
        {"tenant_id": tenant, "farm_id": farm, "changed": bool(changed)},
        f"{tenant}/{farm}  " + ("unset" if changed else "had no zone set here"),
    )


def _rezone(
    connection: "psycopg.Connection", tenant: str, farm: str, action: str, timezone: str | None
) -> None:
    from farmiq.plumbing import ids

    # Devices move between farms: every series of the tenant may have days here.
    connection.execute(
        "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
        "from telemetry_latest where tenant_id = %s on conflict do nothing",
        (tenant,),
    )
    connection.execute(
        "insert into audit_log (audit_id, at, actor, action, subject, detail) "
        "values (%s, fn_now(), 'cli', %s, %s, jsonb_build_object('timezone', %s::text))",
        (ids.new(), action, f"{tenant}/{farm}", timezone),
    )


@app.command("ls")
def ls() -> None:
    """List the farms that have a time zone, set here or by the cloud."""
    rows = terminal.rows(
        terminal.EDGE,
        "select tenant_id, farm_id, timezone, exists (select from farms f where "
        "f.tenant_id = z.tenant_id and f.farm_id = z.farm_id) as set_here "
        "from farm_zones z order by tenant_id, farm_id",
    )
    terminal.print_list(
        rows,
        lambda row: (
            f"{row['tenant_id']}/{row['farm_id']}",
            row["timezone"],
            "set here" if row["set_here"] else "from the cloud",
        ),
        empty="every farm's days are in FARMIQ_EDGE_TIMEZONE",
    )
