"""`farmiq camera-gateway quarantine`: messages of cameras that the gateway rejected."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import deadletters, terminal
from farmiq.cli.deadletters import Limit, OlderThan, Options, Reason, Source
from farmiq.cli.terminal import AsJson, StackName

if TYPE_CHECKING:
    from farmiq.plumbing.deadletters import Quarantine, Result, Table

app = typer.Typer(
    invoke_without_command=True,
    help=(
        "What cameras sent and could not be taken, kept with every reason. Look (`ls`, `show`), "
        "mend what was wrong (register the camera, its site, its dialect), then `redrive`; "
        "`discard` gives it up for good. More in docs/operate/cameras.md."
    ),
)

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="format, unknown, unassigned, dialect, security, conflict, limits or database.",
    ),
]
Mac = Annotated[str | None, typer.Option("--mac", help="Of this camera.")]
Unknown = Annotated[
    bool, typer.Option("--unknown", help="Cameras that nobody registered, one line each.")
]
FILTERS: Options = {
    "kind": (Kind, None),
    "mac": (Mac, None),
    "reason": (Reason, None),
    "older_than_hours": (OlderThan, None),
}
REDRIVE = """Send messages through the gateway once more, in the order in which they came.

    What is taken leaves quarantine together with its effect; what is refused again stays, with the
    reasons of today. A HELLO of then says nothing of now: it only leaves. Exit code 3: some are
    still refused.
    """


@app.callback()
def default(ctx: typer.Context, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """Without a further word it lists the newest."""
    if ctx.invoked_subcommand is None:
        ls(unknown=False, limit=50, stack=stack, as_json=as_json, **dict.fromkeys(FILTERS))


def _table() -> "Table":
    from farmiq.cloud.camera.gateway import quarantine

    return quarantine.TABLE


def _by(actor: str) -> "Quarantine":
    from farmiq.cloud.camera.gateway.chunks import Timing
    from farmiq.cloud.camera.gateway.quarantine import CameraQuarantine

    return CameraQuarantine(Timing(), actor)


async def _redrive(*arguments: Any, **options: Any) -> "Result":
    from farmiq.cloud.camera.gateway import quarantine

    return await quarantine.redrive(*arguments, **options)


def _check(chosen: dict[str, Any]) -> dict[str, Any]:
    from farmiq.cloud.camera.gateway.wire import REJECTION_KINDS
    from farmiq.cloud.camera.mac import normal

    deadletters.known_kind(chosen["kind"], REJECTION_KINDS)
    mac = chosen["mac"]
    try:
        return chosen | {"mac": normal(mac) if mac else None}
    except ValueError as error:
        terminal.fail(f"{mac!r} {error}", code=2)


SOURCE = Source(
    "farmiq camera-gateway quarantine",
    "FARMIQ_CLOUD_DB_URL",
    FILTERS,
    _table,
    _by,
    _check,
    REDRIVE,
    "Give messages up for good; their bytes and who did it stay in dead_letter_actions.",
    redrive=_redrive,
    empty="no messages of cameras in quarantine",
)


def ls(*, unknown: bool, **given: Any) -> None:
    """List the newest messages and how many there are by kind. Exit code 3: there are some."""
    if not unknown:
        deadletters.list_rows(SOURCE, **given)
    from farmiq.cloud.camera import registry

    async def look(pool: Any) -> Any:
        async with pool.connection() as connection:
            return await registry.unknown_cameras(connection, limit=given["limit"])

    SOURCE.check(given)
    rows = deadletters.on_a_pool(given["stack"], SOURCE.database, look)
    terminal.print_list(rows, _unknown_camera, as_json=given["as_json"])
    raise typer.Exit(3 if rows else 0)


def _unknown_camera(row: dict[str, Any]) -> tuple[str, ...]:
    first, last = row["first_received_at"], row["last_received_at"]
    return (
        row["mac"],
        f"{row['messages']:,} messages",
        f"{terminal.local(first)} to {terminal.local(last)}",
        row["topic"][:120],
    )


deadletters.add(app, "ls", ls, {**FILTERS, "unknown": (Unknown, False), "limit": (Limit, 50)})
deadletters.add_quarantine(app, SOURCE)
