"""`farmiq quarantine`: messages that the edge rejected, and what becomes of them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import deadletters, terminal
from farmiq.cli.deadletters import Limit, OlderThan, Reason, Source
from farmiq.cli.terminal import Options

if TYPE_CHECKING:
    from farmiq.plumbing.deadletters import Quarantine, Table

app = terminal.Group(
    "Messages that could not be taken, kept with every reason. Look (`ls`, `show`), mend what "
    "was wrong (the device, the registry, this version), then `redrive`; `discard` gives them "
    "up for good. docs/operate/quarantine.md tells more. "
    "They need FARMIQ_EDGE_DB_URL or a running demo."
)

Kind = Annotated[
    str | None,
    typer.Option("--kind", help="security, conflict, format, not_recorded, database or size."),
]
Topic = Annotated[str | None, typer.Option("--topic", help="How the topic begins.")]
NewerThan = Annotated[
    float | None, typer.Option("--newer-than", min=0, help="Received in the last so many hours.")
]
FILTERS: Options = {
    "kind": (Kind, None),
    "reason": (Reason, None),
    "topic": (Topic, None),
    "older_than_hours": (OlderThan, None),
    "newer_than_hours": (NewerThan, None),
}
REDRIVE = """Send messages through the gateway once more, oldest first, as if they had just arrived.

    What is accepted leaves quarantine together with its effect; what is refused again stays, with
    the reasons of today. Each message has its effect once, however often this runs or is killed.
    Exit code 3: some are still refused.
    """


def _table() -> "Table":
    from farmiq.edge.ingress import quarantine

    return quarantine.TABLE


def _by(actor: str) -> "Quarantine":
    from farmiq.edge.ingress import handlers, quarantine

    return quarantine.Quarantine(handlers.handle, actor)


def _check(chosen: dict[str, Any]) -> dict[str, Any]:
    from farmiq.edge.ingress import rules

    terminal.check_known(chosen["kind"], rules.KINDS, f"{chosen['kind']!r} is no kind; choose")
    return chosen


SOURCE = Source(
    "farmiq quarantine",
    "FARMIQ_EDGE_DB_URL",
    FILTERS,
    _table,
    _by,
    _check,
    REDRIVE,
    "Give messages up for good, oldest first; they are counted on the loss ledger.",
)


@app.command("ls", options={**FILTERS, "limit": (Limit, 50)})
def ls(**given: Any) -> int:
    """List the newest messages and how many there are by reason. Exit code 3: there are some."""
    return deadletters.list_rows(SOURCE, **given)


deadletters.add_quarantine(app, SOURCE)
