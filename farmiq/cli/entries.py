"""What `farmiq record` and `farmiq feed` share: options, and postings by hand."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.messages.bus import BusEvent

Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
Farm = Annotated[str, typer.Option(help="farm_id, as in the devices' topics.")]
Barn = Annotated[str, typer.Option(help="barn_id, as in the devices' topics.")]
OnlyFarm = Annotated[str | None, typer.Option("--farm", help="Only this farm's.")]
OnlyBarn = Annotated[str | None, typer.Option("--barn", help="Only this barn's.")]
OnlyBatch = Annotated[str | None, typer.Option("--batch", help="Only this batch's.")]
Batch = Annotated[str | None, typer.Option(help="The batch, if not the one in the barn then.")]
At = Annotated[datetime | None, typer.Option("--at", help="When it happened, UTC; default: now.")]
Replaces = Annotated[str | None, typer.Option(help="The id of what this one corrects.")]
Key = Annotated[
    str | None,
    typer.Option(help="Idempotency-Key: repeated with the same values it is done once."),
]
# So that a number below 0 is refused for what it is, and not as an option that nobody knows.
NUMBERS = {"ignore_unknown_options": True}
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(help="Where the page before ended (its next_cursor).")]


def print_page(
    stored: Sequence[Mapping[str, Any]],
    name: str,
    limit: int,
    cells: Callable[[Any], Sequence[str]],
    *,
    columns: Sequence[str],
    empty: str,
) -> None:
    """Entries that were read one beyond `limit`, with these columns and the cursor of the rest."""
    from farmiq.api import cut

    page, following = cut(stored, limit, at="occurred_at", key="event_id")
    rows = [{column: row[column] for column in columns} for row in page]
    terminal.print_cursor_page(rows, following, cells, name=name, empty=empty)


def body(at: datetime | None, **given: Any) -> bytes:
    """The JSON that a client would post: what was not given is absent."""
    import msgspec

    moment = {"occurred_at": at.replace(tzinfo=UTC)} if at else {}
    return msgspec.json.encode(
        moment | {name: value for name, value in given.items() if value is not None}
    )


def post(
    kind: type[Any], raw: bytes, accept: Callable[[Any, Any], Any], database: str
) -> "BusEvent":
    """Store what the bytes say in one transaction; an error is printed as a person reads it."""
    from farmiq.api import BodyOf
    from farmiq.plumbing.http import HttpError

    try:
        content = BodyOf(kind, max_bytes=len(raw)).decode(raw)
        event: BusEvent = terminal.in_transaction(lambda tx: accept(tx, content), database)
    except HttpError as error:
        reasons = [f"{detail['field']} {detail['reason']}" for detail in error.details or ()]
        terminal.fail("\n".join(reasons or [str(error)]), code=2 if error.status == 400 else 1)  # noqa: PLR2004
    return event
