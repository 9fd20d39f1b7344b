"""`farmiq metric`: how a metric travels to the cloud."""

from typing import Annotated

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "Metrics of the edge: every reading to the cloud, or aggregates. They need "
    "FARMIQ_EDGE_DB_URL or a running demo.",
)


@app.command("set")
def set_(
    metric: Annotated[str, typer.Argument(help="metric_type, such as temperature.")],
    *,
    sync: Annotated[
        str, typer.Option(help="raw: every reading goes to the cloud; agg: one event per bucket.")
    ],
    window: Annotated[
        str | None, typer.Option(help="With agg: buckets of 1m, 1h or 1d. Default: as it was, 1m.")
    ] = None,
) -> None:
    """Say how a metric travels to the cloud, from now on. Readings stay at the edge either way.

    With agg, a bucket is sent when it is over, and again when late readings change it. The first
    one of a sensor's metric is also sent while it is open, so that the console shows it at once.
    """
    from farmiq.plumbing import ids

    terminal.check_id(metric)
    if sync not in ("raw", "agg"):
        terminal.fail(f"{sync!r} is neither raw nor agg", code=2)
    if window not in (None, "1m", "1h", "1d"):
        terminal.fail(f"{window!r} is none of 1m, 1h, 1d", code=2)
    with terminal.connect(terminal.EDGE) as connection:
        connection.execute(
            """
            insert into metric_settings as m (metric_type, sync, agg_window)
            values (%(metric)s, %(sync)s, coalesce(%(window)s, '1m'))
            on conflict on constraint metric_settings_pkey do update set
              sync = excluded.sync, agg_window = coalesce(%(window)s, m.agg_window)
            """,
            {"metric": metric, "sync": sync, "window": window},
        )
        connection.execute(
            "insert into audit_log (audit_id, at, actor, action, subject, detail) "
            "values (%s, fn_now(), 'cli', 'metric.set', %s, jsonb_build_object('sync', %s::text))",
            (ids.new(), metric, sync),
        )
    terminal.print_result({"metric_type": metric, "sync": sync}, f"{metric}  {sync}")


@app.command("ls")
def ls() -> None:
    """List the metrics that were set; all others are raw."""
    rows = terminal.rows(
        terminal.EDGE,
        "select metric_type, sync, agg_window from metric_settings order by metric_type",
    )
    terminal.print_list(
        rows,
        lambda row: (
            row["metric_type"],
            row["sync"],
            row["agg_window"] if row["sync"] == "agg" else "",
        ),
        empty="every metric is sent raw",
    )
