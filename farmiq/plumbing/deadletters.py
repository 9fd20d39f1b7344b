"""Dead letters in a table: what could not be processed is listed, shown, redriven, discarded.

`Table` describes where such rows are and how they are filtered: one set of functions serves the
edge's quarantine, the cameras' quarantine and the outbox. A redrive handles the message once more:
what is accepted leaves the table in the transaction of its effect, what is rejected stays with the
reasons of today. A crash at any line leaves one or the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from farmiq import crash
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff

# Rows in one transaction: enough to be quick, few enough to hold their locks only briefly.
BATCH = 100
MAX_COUNTS = 1000
_ATTEMPTS = 5

# By name of the condition; a value of None does not filter.
Filter = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where dead letters are. All texts are SQL of ours; values come as parameters.

    `conditions` is what a filter may name, each with its value as `%(name)s`; `groups` is what
    counts are grouped by, from the name in the answer to the column.
    """

    name: str
    id: str
    columns: str
    conditions: Mapping[str, str]
    newest_first: str
    oldest_first: str
    groups: Mapping[str, str] = field(default_factory=dict)

    def where(self, chosen: Filter) -> str:
        named = [self.conditions[name] for name, value in chosen.items() if value is not None]
        return " and ".join(f"({condition})" for condition in named) or "true"


def quarantine_table(
    name: str, *, columns: str, filters: Mapping[str, str], newest_first: str, groups: Sequence[str]
) -> Table:
    """A table of messages that were rejected when they came; both quarantines have these columns.

    Ages are measured with the database's clock.
    """
    age = "last_received_at {} (select fn_now()) - %({})s * interval '1 hour'"
    return Table(
        name=name,
        id="quarantine_id",
        columns=f"""{columns}, reasons, raw_size_bytes,
          raw_size_bytes > octet_length(raw) as truncated, received_count, first_received_at,
          last_received_at, redriven_count, last_redriven_at""",
        conditions={
            "ids": "quarantine_id = any(%(ids)s::uuid[])",
            "before": "quarantine_id < %(before)s::uuid",
            "kind": "kind = %(kind)s",
            "reason": "position(lower(%(reason)s::text) in "
            "lower(array_to_string(reasons, e'\\n'))) > 0",
            "older_than_hours": age.format("<", "older_than_hours"),
            "newer_than_hours": age.format(">=", "newer_than_hours"),
            **filters,
        },
        newest_first=newest_first,
        oldest_first="quarantine_id",
        groups={"reason" if column == "gist" else column: column for column in groups},
    )


async def ls(
    connection: db.Connection, table: Table, chosen: Filter, *, limit: int
) -> list[dict[str, Any]]:
    """Rows without their payloads, newest first."""
    query = f"""
        select {table.columns} from {table.name} where {table.where(chosen)}
        order by {table.newest_first} limit %(limit)s
        """  # noqa: S608 - the texts are those of the table's description, which is ours
    return await _fetch(connection, query, {**chosen, "limit": limit})


async def show(
    connection: db.Connection, table: Table, row_id: UUID, *, payload: str
) -> dict[str, Any] | None:
    """One row with its payload, which is the column of that name."""
    query = f"select {table.columns}, {payload} from {table.name} where {table.id} = %(id)s"  # noqa: S608
    rows = await _fetch(connection, query, {"id": row_id})
    return rows[0] if rows else None


async def count(connection: db.Connection, table: Table, chosen: Filter) -> int:
    """How many rows `ls` would list without a limit."""
    query = f"select count(*) from {table.name} where {table.where(chosen)}"  # noqa: S608
    rows = await _fetch(connection, query, chosen)
    number: int = rows[0]["count"]
    return number


async def counts(connection: db.Connection, table: Table, chosen: Filter) -> list[dict[str, Any]]:
    """Rows and messages by the groups of the table, most rows first."""
    named = ", ".join(f'{column} as "{name}"' for name, column in table.groups.items())
    places = ", ".join(str(number + 1) for number in range(len(table.groups)))
    query = f"""
        select {named}, count(*) as "rows", sum(received_count)::bigint as messages
        from {table.name} where {table.where(chosen)}
        group by {places} order by "rows" desc, {places} limit {MAX_COUNTS}
        """  # noqa: S608
    return await _fetch(connection, query, chosen)


async def choose(
    connection: db.Connection, table: Table, chosen: Filter, *, limit: int, lock: bool = False
) -> list[UUID]:
    """The ids of the rows, oldest first; with `lock` those that nobody else has locked."""
    query = f"""
        select {table.id} as id from {table.name} where {table.where(chosen)}
        order by {table.oldest_first} limit %(limit)s {"for update skip locked" if lock else ""}
        """  # noqa: S608
    return [row["id"] for row in await _fetch(connection, query, {**chosen, "limit": limit})]


async def _fetch(connection: db.Connection, query: str, values: Filter) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query.encode(), values)
        return await cursor.fetchall()


# --- redrive and discard, of the two quarantines


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in quarantine, locked until the transaction ends."""

    id: UUID
    topic: str
    payload: bytes
    received_at: datetime
    kind: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the `chosen` rows.

    `truncated` ones cannot be redriven, since their bytes were cut, nor can `conflicts`, whose id
    belongs to another content; it is None where there are none of that kind.
    """

    chosen: int
    truncated: int = 0
    conflicts: int | None = 0
    accepted: int = 0
    refused: int = 0
    gone: int = 0
    dry_run: bool = False

    def described(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class Quarantine(Protocol):
    """What a redrive or discard does to the messages of one table, on behalf of one person."""

    @property
    def table(self) -> Table: ...
    @property
    def batch(self) -> int:
        """How many messages are handled in one transaction."""

    @property
    def conflict(self) -> str | None:
        """SQL condition of the rows that can never be redriven."""

    async def apply(
        self, tx: db.Connection, letters: Sequence[DeadLetter]
    ) -> Mapping[UUID, Mapping[str, Any]]:
        """Handle the messages as if they had just come; returns what the rejected say now."""

    def rejection(self, reasons: Sequence[str]) -> Mapping[str, Any]:
        """What a row that is rejected again says from now on, by column."""

    async def audit(
        self, tx: db.Connection, *, accepted: Sequence[UUID], rejected: Sequence[UUID]
    ) -> None: ...

    async def discard(self, tx: db.Connection, ids: Sequence[UUID]) -> int:
        """Delete the rows, with everything that is written about it; returns how many."""


async def redrive(
    pool: db.Pool, source: Quarantine, chosen: Filter, *, limit: int, dry_run: bool = False
) -> Result:
    """Handle the rows again, oldest first. Raises db.UNAVAILABLE if the database stays down."""
    table = source.table
    query = f"""
        select {table.id} as id, raw_size_bytes > octet_length(raw) as truncated,
          {source.conflict or "false"} as conflict
        from {table.name} where {table.where(chosen)} order by {table.oldest_first} limit %(limit)s
        """  # noqa: S608
    async with pool.connection() as connection:
        rows = await _fetch(connection, query, {**chosen, "limit": limit})
    truncated = sum(row["truncated"] for row in rows)
    conflicts = sum(row["conflict"] and not row["truncated"] for row in rows)
    counted = conflicts if source.conflict else None
    if dry_run:
        return Result(len(rows), truncated, counted, dry_run=True)
    ids = [row["id"] for row in rows if not row["truncated"] and not row["conflict"]]
    accepted = rejected = 0
    for start in range(0, len(ids), source.batch):
        taken, left = await _redrive_patiently(pool, source, ids[start : start + source.batch])
        accepted, rejected = accepted + taken, rejected + left
    gone = len(ids) - accepted - rejected
    return Result(len(rows), truncated, counted, accepted, rejected, gone)


async def discard(
    pool: db.Pool, source: Quarantine, chosen: Filter, *, limit: int, dry_run: bool = False
) -> Result:
    """Delete the rows, oldest first."""
    async with pool.connection() as connection:
        ids = await choose(connection, source.table, chosen, limit=limit)
    gone = 0
    for start in range(0, 0 if dry_run else len(ids), BATCH):
        async with db.transaction(pool) as tx:
            gone += await source.discard(tx, ids[start : start + BATCH])
    conflicts = 0 if source.conflict else None
    return Result(len(ids), conflicts=conflicts, gone=gone, dry_run=dry_run)


async def delete(tx: db.Connection, table: Table, ids: Sequence[UUID]) -> list[str]:
    """Delete rows of a quarantine; returns the topics of those that were there."""
    query = f"delete from {table.name} where {table.id} = any(%(ids)s) returning topic"  # noqa: S608
    return [row["topic"] for row in await _fetch(tx, query, {"ids": list(ids)})]


async def _redrive_patiently(
    pool: db.Pool, source: Quarantine, ids: Sequence[UUID]
) -> tuple[int, int]:
    """Try again after a deadlock with the gateway, or a moment without the database."""
    backoff = Backoff(cap_s=2.0)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _redrive_batch(pool, source, ids)
        except db.UNAVAILABLE:
            await backoff.wait()
    return await _redrive_batch(pool, source, ids)


async def _redrive_batch(pool: db.Pool, source: Quarantine, ids: Sequence[UUID]) -> tuple[int, int]:
    """(accepted, rejected); one by one if the data of one breaks the transaction (C-81)."""
    try:
        return await _redrive_once(pool, source, ids)
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        if len(ids) == 1:
            async with db.transaction(pool) as tx:
                await source.audit(tx, accepted=[], rejected=ids)
                why = f"the database refused it: {db.first_line(error)}"
                await _mark_rejected(tx, source.table, ids[0], source.rejection([why]))
            return 0, 1
    done = [await _redrive_batch(pool, source, [row_id]) for row_id in ids]
    return sum(accepted for accepted, _ in done), sum(rejected for _, rejected in done)


async def _redrive_once(pool: db.Pool, source: Quarantine, ids: Sequence[UUID]) -> tuple[int, int]:
    async with db.transaction(pool) as tx:
        letters = await _lock(tx, source, ids)
        rejected = await source.apply(tx, letters)
        accepted = [letter.id for letter in letters if letter.id not in rejected]
        if letters:
            await source.audit(tx, accepted=accepted, rejected=list(rejected))
        await delete(tx, source.table, accepted)
        for letter_id, columns in rejected.items():
            await _mark_rejected(tx, source.table, letter_id, columns)
        crash.here("quarantine.in_redrive")
    return len(accepted), len(rejected)


async def _lock(tx: db.Connection, source: Quarantine, ids: Sequence[UUID]) -> list[DeadLetter]:
    """The rows that are still there, can be redriven, and are not locked by somebody else."""
    query = f"""
        select {source.table.id} as id, topic, raw as payload, kind,
          first_received_at as received_at
        from {source.table.name}
        where {source.table.id} = any(%(ids)s) and raw_size_bytes = octet_length(raw)
          and not ({source.conflict or "false"})
        order by {source.table.id} for update skip locked
        """  # noqa: S608
    rows = await _fetch(tx, query, {"ids": list(ids)})
    return [DeadLetter(**{**row, "payload": bytes(row["payload"])}) for row in rows]


async def _mark_rejected(
    tx: db.Connection, table: Table, letter_id: UUID, columns: Mapping[str, Any]
) -> None:
    changed = ", ".join(f"{name} = %({name})s" for name in columns)
    await tx.execute(
        f"""
        update {table.name} set {changed},
          redriven_count = redriven_count + 1, last_redriven_at = fn_now()
        where {table.id} = %(id)s
        """.encode(),  # noqa: S608
        {**columns, "id": letter_id},
    )
