"""`farmiq weighings`: the weigh sessions of an edge, as its database has them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "Weigh sessions of this edge: an animal on the scale, its weights and its images. They "
    "need FARMIQ_EDGE_DB_URL or a running demo.\n\n"
    "A session that lacks a part for too long is INCOMPLETE; docs/operate/weighvision.md says "
    "what to do. Exit code 3: some of those shown are."
)


@app.command("ls")
def ls(
    *,
    day: Annotated[
        str | None, typer.Option(help="Begun on this day of the farm, such as 2026-05-31.")
    ] = None,
    station: Annotated[str | None, typer.Option(help="Only this station's.")] = None,
    state: Annotated[
        str | None, typer.Option(help="created, finalized, cancelled or INCOMPLETE.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended (its next_cursor).")
    ] = None,
) -> int:
    """List weigh sessions, newest first."""
    from farmiq.api import cut
    from farmiq.edge.weighvision import queries
    from farmiq.edge.weighvision.api import WeighSession, WeighSessionFilter

    query = terminal.query(
        WeighSessionFilter, day=day, station=station, state=state, tenant=tenant, limit=limit,
        cursor=cursor,
    )  # fmt: skip
    zone = terminal.environment().get("FARMIQ_EDGE_TIMEZONE") or "UTC"
    sessions = terminal.in_transaction(lambda tx: queries.page(tx, query.page(), timezone=zone))
    rows, following = cut(sessions, limit, at="start_at", key="session_id")
    terminal.print_cursor_page(
        rows,
        following,
        _cells,
        name="sessions",
        shown=lambda row: WeighSession(**row).model_dump(mode="json"),
        empty="a session appears with the first event of a station",
    )
    return 3 if any(row["state"] == "INCOMPLETE" for row in rows) else 0


@app.command("show")
def show(
    session: Annotated[str, typer.Argument(help="session_id, as `farmiq weighings ls` prints it.")],
) -> int:
    """Show one weigh session: its state, what is missing, its events and its images."""
    from farmiq.edge.weighvision import queries
    from farmiq.edge.weighvision.api import WeighSessionInFull

    problem = "is no session_id; `farmiq weighings ls` prints them"
    session_id = terminal.check_uuid(session, problem)
    weighing = terminal.in_transaction(lambda tx: queries.show(tx, session_id))
    if weighing is None:
        terminal.fail(f"no event of session {session_id} has come to this edge")
    terminal.print_result(
        WeighSessionInFull(**weighing).model_dump(mode="json"),
        "  ".join(_cells(weighing)).rstrip(),
        *_details(weighing),
    )
    return 3 if weighing["state"] == "INCOMPLETE" else 0


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    weight = row["final_weight_kg"] or row["initial_weight_kg"]
    kg = f"{weight:.2f} kg" if weight else "no weight"
    why = row["incomplete_reason"] or row["cancel_reason"]
    return (
        str(row["session_id"]),
        terminal.local(row["start_at"]),
        f"{row['tenant_id']}/{row['station_id']}",
        f"{kg:>10}",
        row["state"],
        f"({why})" if why else "",
    )


def _details(weighing: dict[str, Any]) -> list[str]:
    counted = "?" if weighing["image_count"] is None else weighing["image_count"]
    missing = ", ".join(weighing["missing"])
    return [
        f"valid      {'yes' if weighing['valid'] else f'no, missing: {missing}'}",
        f"device     {weighing['device_id']} at {weighing['farm_id']}/{weighing['barn_id']}",
        f"images     {weighing['stored_image_count']} stored, {counted} counted by the station",
        *(f"           {image['media_id']}  {_image(image)}" for image in weighing["images"]),
        "events",
        *(
            f"           {terminal.local(event['occurred_at'])}  {event['event_id']}  "
            f"{event['event_type']}"
            + (f"  {event['weight_kg']:g} kg" if event["weight_kg"] else "")
            for event in weighing["events"]
        ),
    ]


def _image(image: dict[str, Any]) -> str:
    if image["bound"]:
        return "stored"
    if image["announced_at"] is None:
        return f"{image['upload_status']}, not announced"
    return f"announced, {image['upload_status'] or 'never asked for'}"
