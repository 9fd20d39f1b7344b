"""Master data in PostgreSQL: one statement for each kind, made from its columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from farmiq.cloud.farms.kinds import Kind

MAX_ROWS = 1000


class RejectedError(Exception):
    """The row cannot be stored: what it refers to is missing, or another is in its place."""


async def save(
    tx: psycopg.AsyncConnection[Any], kind: Kind, tenant_id: str, rows: Sequence[msgspec.Struct]
) -> int:
    """Add the rows or change those that are there; returns how many are new or other than before.

    Raises RejectedError; then the transaction must be rolled back.
    """
    cursor = tx.cursor()
    statement = _upsert(kind)
    changed = 0
    for row in rows:
        try:
            await cursor.execute(statement, {"tenant_id": tenant_id, **_values(row)})
        except psycopg.errors.IntegrityError as error:
            raise RejectedError(_reason(kind, row, error)) from error
        changed += cursor.rowcount
    return changed


async def page(
    tx: psycopg.AsyncConnection[Any],
    kind: Kind,
    tenant_id: str,
    *,
    after: Sequence[Any] = (),
    limit: int = MAX_ROWS,
) -> list[dict[str, Any]]:
    """Rows in the order of their key, behind the key `after`."""
    key = sql.SQL(", ").join(map(sql.Identifier, kind.key))
    behind = sql.SQL("and ({}) > ({})").format(
        key, sql.SQL(", ").join(sql.Placeholder() for _ in kind.key)
    )
    query = sql.SQL(
        "select {columns}, changed_at from {table} where tenant_id = %s {behind} "
        "order by {key} limit %s"
    ).format(
        columns=sql.SQL(", ").join(map(sql.Identifier, kind.columns)),
        table=sql.Identifier(kind.table),
        behind=behind if after else sql.SQL(""),
        key=key,
    )
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(query, (tenant_id, *after, limit))
        return await cursor.fetchall()


async def remove(
    tx: psycopg.AsyncConnection[Any], kind: Kind, tenant_id: str, key: Mapping[str, Any]
) -> bool:
    """Remove one row; False if there is none. Raises RejectedError if others refer to it."""
    query = sql.SQL("delete from {} where tenant_id = %(tenant_id)s and {}").format(
        sql.Identifier(kind.table),
        sql.SQL(" and ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in kind.key
        ),
    )
    try:
        cursor = await tx.execute(query, {"tenant_id": tenant_id, **key})
    except psycopg.errors.ForeignKeyViolation as error:
        table = error.diag.table_name
        raise RejectedError(f"{table} refer to this {kind.noun}: remove them first") from error
    return cursor.rowcount > 0


def _upsert(kind: Kind) -> sql.Composed:
    columns = ["tenant_id", *kind.columns]
    others = [name for name in kind.columns if name not in kind.key]
    excluded = [sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in others]
    return sql.SQL(
        "insert into {table} as t ({columns}) values ({values}) "
        "on conflict on constraint {pkey} do update "
        "set ({others}, changed_at) = row ({excluded}, now()) "
        "where ({mine}) is distinct from ({excluded})"
    ).format(
        table=sql.Identifier(kind.table),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        values=sql.SQL(", ").join(map(sql.Placeholder, columns)),
        pkey=sql.Identifier(f"{kind.table}_pkey"),
        others=sql.SQL(", ").join(map(sql.Identifier, others)),
        excluded=sql.SQL(", ").join(excluded),
        mine=sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(name)) for name in others),
    )


def _values(row: msgspec.Struct) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    return {
        name: Jsonb(value) if isinstance(value, dict) else value for name, value in values.items()
    }


def _reason(kind: Kind, row: msgspec.Struct, error: psycopg.errors.IntegrityError) -> str:
    name = " ".join(str(getattr(row, column)) for column in kind.key)
    match error:
        case psycopg.errors.ForeignKeyViolation():
            missing = (error.diag.constraint_name or "").split("_")[-2]
            return f"{kind.noun} {name}: its {missing} is not registered"
        case _:
            return f"{kind.noun} {name}: {error.diag.message_primary}"
