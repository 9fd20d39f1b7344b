"""Master data in PostgreSQL: one statement for each kind, made from its columns. Audited."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from farmiq.cloud.farms.kinds import BATCHES, Kind
from farmiq.messages.wording import worded
from farmiq.plumbing import db, ids
from farmiq.roster import Problem, RosterError

MAX_ROWS = 1000
# Who did it, if nobody is named.
PROGRAM = "farmiq"

# A batch is in its barn from placed_on to closed_on, both included, by the farm's own days.
STATUS: LiteralString = """
  case when placed_on > fn_farm_date(tenant_id, farm_id, fn_now()) then 'planned'
    when closed_on < fn_farm_date(tenant_id, farm_id, fn_now()) then 'closed'
    else 'active' end
"""
# What a list may be filtered by, as conditions on a row of its table.
FILTERS: dict[str, LiteralString] = {
    "farm": "farm_id = %(farm)s",
    "barn": "barn_id = %(barn)s",
    "species": "lower(species) = lower(%(species)s)",
    "breed": "lower(breed) = lower(%(breed)s)",
    "sex": "sex = %(sex)s",
    "status": f"{STATUS} = %(status)s",
    "on": "placed_on <= %(on)s and (closed_on is null or closed_on >= %(on)s)",
}


class RejectedError(Exception):
    """The row cannot be stored: `field` is wrong, or else another row is in its place."""

    def __init__(self, reason: str, *, field: str | None = None) -> None:
        super().__init__(reason)
        self.field = field


class UnknownError(RejectedError):
    """The company does not have what `field` names."""


async def save(
    tx: db.Connection,
    kind: Kind,
    tenant_id: str,
    rows: Sequence[msgspec.Struct],
    *,
    actor: str = PROGRAM,
) -> int:
    """Add the rows or change those that are there; returns how many are new or other than before.

    Raises RejectedError; then the transaction must be rolled back.
    """
    changed = 0
    for row in rows:
        if (is_new := await _save(tx, kind, tenant_id, row)) is not None:
            changed += 1
            action = "add" if is_new else "change"
            await _audit(tx, actor, action, tenant_id, kind, _key(kind, row), _detail(kind, row))
    return changed


async def import_(
    tx: db.Connection,
    kind: Kind,
    tenant_id: str,
    lines: Mapping[int, Any],
    *,
    problems: Sequence[Problem] = (),
    actor: str = PROGRAM,
    dry_run: bool = False,
) -> int:
    """Save the rows of a file, by line; returns how many are new or other than before.

    `problems` are of lines that are no rows. Raises RosterError with these and with every line that
    cannot be stored; then nothing was.
    """
    async with tx.transaction(force_rollback=dry_run):
        rejected: list[Problem] = []
        try:
            async with tx.transaction():
                changed = sum(
                    [await _save(tx, kind, tenant_id, row) is not None for row in lines.values()]
                )
        except RejectedError:
            changed, rejected = await _save_in_any_order(tx, kind, tenant_id, lines)
        if problems or rejected:
            raise RosterError([*problems, *rejected])
        detail = {"rows": len(lines), "changed": changed}
        await _audit(tx, actor, "import", tenant_id, kind, None, detail)
    return changed


async def _save_in_any_order(
    tx: db.Connection, kind: Kind, tenant_id: str, lines: Mapping[int, Any]
) -> tuple[int, list[Problem]]:
    """(how many rows are new or other than before, every line that cannot be stored).

    Those are tried again while others are stored: a batch fits when the file has closed, further
    down, the one that is in its barn.
    """
    changed = 0
    while True:
        problems: list[Problem] = []
        for line, row in lines.items():
            try:
                async with tx.transaction():
                    changed += await _save(tx, kind, tenant_id, row) is not None
            except RejectedError as error:
                problems.append(Problem(line, error.field or "", str(error)))
        if not problems or len(problems) == len(lines):
            return changed, problems
        lines = {problem.line: lines[problem.line] for problem in problems}


async def page(
    connection: db.Connection,
    kind: Kind,
    tenant_id: str,
    *,
    filters: Mapping[str, Any] | None = None,
    after: Sequence[Any] | None = None,
    limit: int = MAX_ROWS,
) -> list[dict[str, Any]]:
    """Rows in the order of their key, behind the key `after`."""
    given = {name: value for name, value in (filters or {}).items() if value is not None}
    key = sql.SQL(", ").join(map(sql.Identifier, kind.key))
    conditions: list[sql.Composable] = [sql.SQL(FILTERS[name]) for name in given]
    if after is not None:
        names = [f"after_{number}" for number in range(len(kind.key))]
        behind = sql.SQL(", ").join(map(sql.Placeholder, names))
        conditions.append(sql.SQL("({}) > ({})").format(key, behind))
        given |= dict(zip(names, after, strict=True))
    query = sql.SQL("{select} {where} order by {key} limit %(limit)s").format(
        select=_select(kind),
        where=sql.SQL("").join(sql.SQL(" and ({})").format(condition) for condition in conditions),
        key=key,
    )
    return await db.fetch_dicts(
        connection, query, {**given, "tenant_id": tenant_id, "limit": limit}
    )


async def find(
    connection: db.Connection, kind: Kind, tenant_id: str, key: Mapping[str, Any]
) -> dict[str, Any] | None:
    query = sql.SQL("{} and {}").format(_select(kind), _is(kind))
    rows = await db.fetch_dicts(connection, query, {"tenant_id": tenant_id, **key})
    return rows[0] if rows else None


async def remove(
    tx: db.Connection, kind: Kind, tenant_id: str, key: Mapping[str, Any], *, actor: str = PROGRAM
) -> bool:
    """Remove one row; False if there is none. Raises RejectedError if others refer to it.

    Also for a batch that must not be sold yet: nothing would say so any more (D-460).
    """
    if kind is BATCHES and (until := await _withdrawal(tx, tenant_id, key["batch_id"])):
        safe_from, today = until
        if safe_from > today:
            reason = worded(
                "it is not to be sold before %(day)s: close the %(kind)s instead",
                day=safe_from,
                kind=kind.noun,
            )
            raise RejectedError(reason)
    query = sql.SQL("delete from {} where tenant_id = %(tenant_id)s and {}").format(
        sql.Identifier(kind.table), _is(kind)
    )
    try:
        cursor = await tx.execute(query, {"tenant_id": tenant_id, **key})
    except psycopg.errors.ForeignKeyViolation as error:
        table = error.diag.table_name
        raise RejectedError(
            worded(
                "%(table)s refer to this %(kind)s: remove them first", table=table, kind=kind.noun
            )
        ) from error
    if cursor.rowcount:
        name = " ".join(str(key[column]) for column in kind.key)
        await _audit(tx, actor, "remove", tenant_id, kind, name, None)
    return cursor.rowcount > 0


def _select(kind: Kind) -> sql.Composed:
    status = sql.SQL(f", {STATUS} as status") if kind is BATCHES else sql.SQL("")
    return sql.SQL(
        "select {columns}, changed_at{status} from {table} where tenant_id = %(tenant_id)s"
    ).format(
        columns=sql.SQL(", ").join(map(sql.Identifier, kind.columns)),
        status=status,
        table=sql.Identifier(kind.table),
    )


def _is(kind: Kind) -> sql.Composed:
    return sql.SQL(" and ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in kind.key
    )


async def _save(tx: db.Connection, kind: Kind, tenant_id: str, row: Any) -> bool | None:
    """True if the row is new, False if it was another before, None if nothing changed."""
    before = await _withdrawal(tx, tenant_id, row.batch_id) if kind is BATCHES else None
    is_new = await _write(tx, kind, tenant_id, row)
    if before and is_new is False:
        after = await _withdrawal(tx, tenant_id, row.batch_id)
        if after is None or after[0] < before[0]:
            raise RejectedError(
                worded(
                    "%(row)s: it is not to be sold before %(day)s, by a treatment that "
                    "does not name it and would be of no batch then; correct that record "
                    "first, with this batch_id",
                    row=_name(kind, row),
                    day=before[0],
                )
            )
    return is_new


async def _withdrawal(tx: db.Connection, tenant_id: str, batch_id: str) -> tuple[date, date] | None:
    """(from when a batch may be sold, today at its farm); None if it had no treatment."""
    rows = await db.fetch_all(
        tx,
        """
        select fn_safe_to_sell_from(tenant_id, batch_id), fn_farm_date(tenant_id, farm_id, fn_now())
        from batches where tenant_id = %s and batch_id = %s
        """,
        tenant_id,
        batch_id,
    )
    return rows[0] if rows and rows[0][0] is not None else None


async def _write(tx: db.Connection, kind: Kind, tenant_id: str, row: msgspec.Struct) -> bool | None:
    """As _save."""
    try:
        cursor = await tx.execute(_upsert(kind), {"tenant_id": tenant_id, **_values(row)})
    except psycopg.errors.ForeignKeyViolation as error:
        missing = (error.diag.constraint_name or "").split("_")[-2]
        reason = worded(
            "%(row)s: its %(kind)s is not registered", row=_name(kind, row), kind=missing
        )
        raise UnknownError(reason, field=f"{missing}_id") from error
    except psycopg.errors.IntegrityError as error:
        raise RejectedError(f"{_name(kind, row)}: {error.diag.message_primary}") from error
    except psycopg.DataError as error:
        reason = f"{_name(kind, row)}: {db.first_line(error)}"
        raise RejectedError(reason, field="body") from error
    written = await cursor.fetchone()
    return bool(written[0]) if written else None


def _upsert(kind: Kind) -> sql.Composed:
    columns = ["tenant_id", *kind.columns]
    others = [name for name in kind.columns if name not in kind.key]
    excluded = [sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in others]
    return sql.SQL(
        "insert into {table} as t ({columns}) values ({values}) "
        "on conflict on constraint {pkey} do update "
        "set ({others}, changed_at) = row ({excluded}, now()) "
        "where ({mine}) is distinct from ({excluded}) returning xmax = 0"
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


def _key(kind: Kind, row: msgspec.Struct) -> str:
    return " ".join(str(getattr(row, column)) for column in kind.key)


def _name(kind: Kind, row: msgspec.Struct) -> str:
    return f"{kind.noun} {_key(kind, row)}"


def _detail(kind: Kind, row: msgspec.Struct) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(row)
    return {name: value for name, value in values.items() if name not in kind.key}


async def _audit(  # noqa: PLR0917 - the columns, in their order
    tx: db.Connection,
    actor: str,
    action: str,
    tenant_id: str,
    kind: Kind,
    key: str | None,
    detail: Mapping[str, Any] | None,
) -> None:
    await tx.execute(
        """
        insert into master_data_actions (action_id, at, actor, action, tenant_id, kind, key, detail)
        values (%s, fn_now(), %s, %s, %s, %s, %s, %s)
        """,
        (
            ids.new(), actor, action, tenant_id, kind.table, key,
            Jsonb(detail) if detail is not None else None,
        ),
    )  # fmt: skip
