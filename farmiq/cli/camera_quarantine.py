"""`farmiq camera-gateway quarantine`: messages of cameras that the gateway rejected."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import deadletters, terminal
from farmiq.cli.deadletters import Limit, OlderThan, Reason, Source
from farmiq.cli.terminal import Options

if TYPE_CHECKING:
    from farmiq.plumbing.deadletters import Quarantine, Result, Table

app = terminal.Group(
    "What cameras sent and could not be taken, kept with every reason. Look (`ls`, `show`), "
    "mend what was wrong (register the camera, its site, its dialect), then `redrive`; "
    "`discard` gives it up for good. More in docs/operate/cameras.md.",
    invoke_without_command=True,
    no_args_is_help=False,
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


@app.callback(shared=terminal.STACK_AND_JSON)
def default(ctx: typer.Context) -> int:
    """Without a further word it lists the newest."""
    if ctx.invoked_subcommand is None:
        return ls(unknown=False, limit=50, **dict.fromkeys(FILTERS))
    return 0


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
    from farmiq.cloud.camera.mac import normal
    from farmiq.cloud.camera.protocol.wire import REJECTION_KINDS

    terminal.check_known(chosen["kind"], REJECTION_KINDS, f"{chosen['kind']!r} is no kind; choose")
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


@app.command("ls", options={**FILTERS, "unknown": (Unknown, False), "limit": (Limit, 50)})
def ls(*, unknown: bool, **given: Any) -> int:
    """List the newest messages and how many there are by kind. Exit code 3: there are some."""
    if not unknown:
        return deadletters.list_rows(SOURCE, **given)
    from farmiq.cloud.camera import registry

    SOURCE.check(given)
    rows = terminal.in_transaction(
        lambda tx: registry.unknown_cameras(tx, limit=given["limit"]), SOURCE.database
    )
    terminal.print_list(rows, _unknown_camera)
    return 3 if rows else 0


def _unknown_camera(row: dict[str, Any]) -> tuple[str, ...]:
    first, last = row["first_received_at"], row["last_received_at"]
    return (
        row["mac"],
        f"{row['messages']:,} messages",
        f"{terminal.local(first)} to {terminal.local(last)}",
        row["topic"][:120],
    )


deadletters.add_quarantine(app, SOURCE)
