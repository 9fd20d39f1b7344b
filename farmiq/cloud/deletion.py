"""Deletes a company, a device or a person, and leaves a record of what went.

all tables, the cloud's bucket, dead letters --> [deletion] --> deletions

Which tables there are says the catalog: whatever has a company, a device or an address in it is
found without being named here. It runs as the owner of the tables, in one transaction that locks
those which have such rows. The bucket comes first: if that fails, nothing of the tables is gone and
the same command does the rest.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from farmiq.cloud import history
from farmiq.messages import instants
from farmiq.plumbing import db, ids
from farmiq.plumbing.storage import objects

Kind = Literal["company", "device", "person"]
# Each lock, and all of them: services wait while we hold some and wait for the next.
LOCK_WITHIN, LOCKED_WITHIN_S = "2s", 30.0
# Records of medicines: who keeps animals for food has to have them for five years.
MEDICINES = "t.payload ->> 'record_type' in ('treatment', 'vaccination')"
MEDICINES_WHY = "records of medicines for animals that are food: Regulation (EU) 2019/6, Art. 108"
AUDIT_WHY = "what was done in the company, without the person's name: the company's own proof"
# Not a company's: nobody's rows, or rows that live for seconds.
_COUNTERS = ("telemetry_dirty", "telemetry_state", "deletions")
# Whether rows name objects of the bucket: without these rows nobody finds the objects again.
_NAMES_OBJECTS = """
select exists (select from media_objects where tenant_id = %(tenant)s and object_key is not null
    and (%(device)s::text is null or device_id = %(device)s))
  or exists (select from petri_observations where company_id = %(company)s
    and (%(device)s::text is null or device_id::text = %(device)s))
  or (%(device)s::text is null
    and exists (select from telemetry_archives where tenant_id = %(tenant)s))
"""


class DeletionError(ValueError):
    """There is nothing like that to delete, or it may not be deleted."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who or what goes. A record has its `name`, which is no longer anybody's address."""

    kind: Kind
    name: str
    tenant_id: str
    company_id: UUID
    device_id: str | None = None
    user_id: UUID | None = None
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Remaining:
    table: str
    rows: int
    why: str


@dataclass(slots=True)
class Deletion:
    """How many rows of which table, and objects below which prefix; of a dry run: would go."""

    subject: str
    kind: Kind
    by: str
    at: str
    rows: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, int] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    dead_letters: int | None = None
    remaining: list[Remaining] = field(default_factory=list)
    archive_files: int = 0
    in_backups: str = "until they are pruned: see the schedule of `farmiq backup`"

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.renamed or self.objects or self.archive_files)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows `t` of a table that go; `where` is SQL of ours, its values are in `values`."""

    table: str
    where: str
    values: tuple[Any, ...]


async def company(tx: db.Connection, tenant_id: str) -> Subject:
    company_id = await db.fetch_value(
        tx, "select company_id from companies where tenant_id = %s", tenant_id
    )
    if company_id is None:
        raise DeletionError(f"there is no company {tenant_id!r}: see `farmiq company ls`")
    return Subject("company", tenant_id, tenant_id, company_id)


async def device(tx: db.Connection, tenant_id: str, device_id: str) -> Subject:
    """A device of a barn by its id, or a camera by its device_id."""
    owner = await company(tx, tenant_id)
    return Subject("device", f"{tenant_id}/{device_id}", tenant_id, owner.company_id, device_id)


async def person(tx: db.Connection, email: str) -> Subject:
    rows = await db.fetch_all(
        tx,
        """
        select u.user_id, u.email, u.company_id, c.tenant_id
        from users u join companies c using (company_id) where u.email = lower(%s)
        """,
        email,
    )
    if not rows:
        raise DeletionError(f"nobody signs in as {email!r}: see `farmiq user ls`")
    user_id, address, company_id, tenant_id = rows[0]
    name = f"person-{hashlib.sha256(str(user_id).encode()).hexdigest()[:12]}"
    return Subject("person", name, tenant_id, company_id, user_id=user_id, email=address)


async def plan(
    tx: db.Connection, subject: Subject, bucket: objects.Bucket | None, *, by: str
) -> Deletion:
    """What would go, counted; nothing changes."""
    planned = Deletion(subject.name, subject.kind, by, instants.rfc3339(datetime.now(UTC)))
    every = await _rows(tx, subject)
    texts = await _texts(tx, subject)
    await _unforce(tx, await _tables(tx, subject))
    for rows in every:
        if count := await _count(tx, rows):
            planned.rows[rows.table] = count
    for rows in _medicines(subject):
        if count := await _count(tx, rows):
            planned.remaining.append(Remaining(rows.table, count, MEDICINES_WHY))
    for table, column, kind in texts:
        if count := await _count(tx, _named(table, column, kind, subject)):
            planned.renamed[f"{table}.{column}"] = count
    if planned.renamed:
        planned.remaining.append(
            Remaining("audit and records", sum(planned.renamed.values()), AUDIT_WHY)
        )
    for prefix, keys in await _keys(tx, subject, bucket):
        planned.objects[prefix] = len(keys)
    if files := await _archives(tx, subject):
        planned.archive_files = len(files)
    return planned


async def delete(
    tx: db.Connection, subject: Subject, bucket: objects.Bucket | None, *, by: str
) -> Deletion:
    """Delete it, in this transaction, and objects at once; `tidy` when it is committed."""
    await _lock(tx, await _tables(tx, subject))
    done = await plan(tx, subject, bucket, by=by)
    if done.is_empty:
        raise DeletionError(f"there is nothing of {subject.kind} {subject.name!r}")
    if bucket is None and (done.archive_files or await _names_objects(tx, subject)):
        raise DeletionError(
            "images or archived readings of it are in the cloud's bucket, and nobody would find "
            "them afterwards: set FARMIQ_CLOUD_S3_URL. Nothing was deleted"
        )
    going = [rows for rows in await _rows(tx, subject) if rows.table in done.rows]
    renamed = [text for text in await _texts(tx, subject) if ".".join(text[:2]) in done.renamed]
    guarded = {*(rows.table for rows in going), *(table for table, _, _ in renamed)}
    for table in guarded:
        await tx.execute(_alter(table, "disable trigger user"))
    if bucket is not None:
        for _, keys in await _keys(tx, subject, bucket):
            for key in keys:
                await bucket.delete(key)
        await _rewrite_archives(tx, subject, bucket)
    done.rows = await _delete(tx, going)
    for table, column, kind in renamed:
        await _rename(tx, _named(table, column, kind, subject), column, kind, subject)
    for table in guarded:
        await tx.execute(_alter(table, "enable trigger user"))
    await _force_again(tx)
    return done


async def hand_over_medicines(
    tx: db.Connection, subject: Subject, file: Path | None
) -> list[Remaining]:
    """Write a company's records of medicines to a file: its animals' keeper needs them.

    Raises DeletionError if there are some and no file was named.
    """
    if subject.kind != "company":
        return []
    await _unforce(tx, {"barn_events"})
    rows = await db.fetch_dicts(
        tx,
        f"select event_id, farm_id, barn_id, occurred_at, payload from barn_events t "  # noqa: S608
        f"where t.tenant_id = %s and {MEDICINES} order by occurred_at, event_id",
        (subject.tenant_id,),
    )
    await _force_again(tx)
    if not rows:
        return []
    if file is None:
        raise DeletionError(
            f"there are {len(rows)} records of medicines, which the keeper of the animals needs "
            f"for five years: say --medicines FILE, and hand that over"
        )
    lines = [json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows]
    body = "".join(lines).encode()
    await asyncio.to_thread(file.write_bytes, body)
    sha256 = hashlib.sha256(body).hexdigest()
    return [Remaining(f"barn_events, in a file of SHA-256 {sha256}", len(rows), MEDICINES_WHY)]


async def tidy(tx: db.Connection, subject: Subject, bucket: objects.Bucket) -> int:
    """Delete files of the company's readings that no row names: those that were written again."""
    await tx.execute(_LOCK_ARCHIVES, (history.LOCK,))
    await _unforce(tx, {"telemetry_archives"})
    rows = await db.fetch_all(
        tx, "select key from telemetry_archives where tenant_id = %s", subject.tenant_id
    )
    await _force_again(tx)
    unknown = set(await bucket.keys(history.folder(subject.tenant_id))) - {key for (key,) in rows}
    for key in unknown:
        await bucket.delete(key)
    return len(unknown)


async def record(tx: db.Connection, done: Deletion) -> str:
    """Note what went, chained to the record before; returns its hash."""
    await tx.execute("lock table deletions in share row exclusive mode")
    before = await db.fetch_value(tx, "select sha256 from deletions order by number desc limit 1")
    document = {**asdict(done), "previous_sha256": before}
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    await tx.execute(
        "insert into deletions (deletion_id, at, record, sha256) values (%s, %s, %s, %s)",
        (ids.new(), done.at, text, sha256),
    )
    return sha256


async def broken_records(tx: db.Connection) -> list[int]:
    """Numbers of records that are not what they were, or that follow one that is missing."""
    rows = await db.fetch_all(tx, "select number, record, sha256 from deletions order by number")
    broken, before = [], None
    for number, document, sha256 in rows:
        text = json.dumps(document, sort_keys=True, ensure_ascii=False)
        is_same = hashlib.sha256(text.encode()).hexdigest() == sha256
        if not is_same or document["previous_sha256"] != before:
            broken.append(number)
        before = sha256
    return broken


# Which rows


async def _columns(tx: db.Connection) -> dict[str, dict[str, str]]:
    """Column → type of every table of ours that is no partition; generated columns left out."""
    rows = await db.fetch_all(
        tx,
        """
        select c.relname, a.attname, format_type(a.atttypid, null)
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
          and not c.relispartition and a.attnum > 0 and not a.attisdropped
          and a.attgenerated = ''
        order by 1, a.attnum
        """,
    )
    tables: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        if table not in _COUNTERS:
            tables.setdefault(table, {})[column] = kind
    return tables


async def _rows(tx: db.Connection, subject: Subject) -> list[_Rows]:
    tables = await _columns(tx)
    planned = [_of(subject, table, columns) for table, columns in tables.items()]
    return [rows for rows in planned if rows is not None]


async def _tables(tx: db.Connection, subject: Subject) -> set[str]:
    """Those that may have rows that go, or that name the person."""
    texts = await _texts(tx, subject)
    return {rows.table for rows in await _rows(tx, subject)} | {table for table, _, _ in texts}


def _of(subject: Subject, table: str, columns: dict[str, str]) -> _Rows | None:
    if subject.kind == "person":
        return _of_person(subject, table, columns)
    owner = next((name for name in ("company_id", "tenant_id") if name in columns), None)
    if owner is None:
        return None
    of = subject.company_id if owner == "company_id" else subject.tenant_id
    if subject.kind == "company":
        return _Rows(table, f"t.{owner} = %s", (of,))
    if table == "camera_chunks":
        where = (
            "t.company_id = %s and t.transfer_id in "
            "(select transfer_id from camera_transfers where device_id::text = %s)"
        )
        return _Rows(table, where, (of, subject.device_id))
    if "device_id" not in columns:
        return None
    where = f"t.{owner} = %s and t.device_id::text = %s"
    if table == "barn_events":
        where += f" and ({MEDICINES}) is not true"
    return _Rows(table, where, (of, subject.device_id))


def _of_person(subject: Subject, table: str, columns: dict[str, str]) -> _Rows | None:
    if table in {"sign_ins", "second_factors", "memberships", "users"}:
        return _Rows(table, "t.user_id = %s", (subject.user_id,))
    if table == "alert_contacts":
        # The whole address: that of another person may have it in it.
        where = (
            "t.user_id = %s or exists (select from jsonb_each_text(t.addresses) a "
            "where lower(a.value) = %s)"
        )
        return _Rows(table, where, (subject.user_id, subject.email))
    if "address" in columns and "tenant_id" in columns:
        where = "t.tenant_id = %s and lower(t.address) = %s"
        return _Rows(table, where, (subject.tenant_id, subject.email))
    return None


def _medicines(subject: Subject) -> list[_Rows]:
    """What stays of a device: the law wants it."""
    if subject.kind != "device":
        return []
    where = f"t.tenant_id = %s and t.device_id = %s and {MEDICINES}"
    return [_Rows("barn_events", where, (subject.tenant_id, subject.device_id))]


async def _texts(tx: db.Connection, subject: Subject) -> list[tuple[str, str, str]]:
    """Columns of the company's tables that may name the person: what stays gets another name."""
    if subject.kind != "person":
        return []
    going = {rows.table for rows in await _rows(tx, subject)} - {"alert_contacts"}
    return [
        (table, column, kind)
        for table, columns in (await _columns(tx)).items()
        if table not in going and not table.startswith("telemetry_")
        for column, kind in columns.items()
        if {"company_id", "tenant_id"} & set(columns) and kind in {"text", "jsonb"}
    ]


def _named(table: str, column: str, kind: str, subject: Subject) -> _Rows:
    value = subject.email if kind == "text" else f'%"{subject.email}"%'
    match = f"t.{column} = %s" if kind == "text" else f"t.{column}::text like %s"
    return _Rows(table, match, (value,))


async def _rename(tx: db.Connection, rows: _Rows, column: str, kind: str, subject: Subject) -> None:
    name = sql.Identifier(column)
    new = (
        sql.SQL("{}").format(sql.Literal(subject.name))
        if kind == "text"
        else sql.SQL("replace(t.{}::text, {}, {})::jsonb").format(
            name, sql.Literal(f'"{subject.email}"'), sql.Literal(f'"{subject.name}"')
        )
    )
    statement = sql.SQL("update {} t set {} = {} where ").format(
        sql.Identifier(rows.table), name, new
    )
    await tx.execute(statement + sql.SQL(rows.where), rows.values)


async def _count(tx: db.Connection, rows: _Rows) -> int:
    statement = sql.SQL("select count(*) from {} t where ").format(sql.Identifier(rows.table))
    count: int = await db.fetch_value(tx, statement + sql.SQL(rows.where), *rows.values)
    return count


async def _delete(tx: db.Connection, going: Sequence[_Rows]) -> dict[str, int]:
    """Delete these rows in one statement: tables that refer to each other have no order."""
    if not going:
        return {}
    parts = [
        sql.SQL("{} as (delete from {} t where ").format(
            sql.Identifier(f"in_{rows.table}"), sql.Identifier(rows.table)
        )
        + sql.SQL(rows.where)
        + sql.SQL(" returning 1)")
        for rows in going
    ]
    counts = [
        sql.SQL("(select count(*) from {})").format(sql.Identifier(f"in_{rows.table}"))
        for rows in going
    ]
    statement = (
        sql.SQL("with ") + sql.SQL(", ").join(parts) + sql.SQL(" select ")
        + sql.SQL(", ").join(counts)
    )  # fmt: skip
    cursor = await tx.execute(statement, [value for rows in going for value in rows.values])
    (deleted,) = await cursor.fetchall()
    return dict(zip((rows.table for rows in going), deleted, strict=True))


async def _lock(tx: db.Connection, tables: Collection[str]) -> None:
    """Lock these tables until the transaction ends, readers out too, before anything goes.

    Services lock rows of several tables in an order of their own: where each would wait for the
    other, ours are given back and asked for again. Raises DeletionError.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, sorted(tables)))
    ends_at = time.monotonic() + LOCKED_WITHIN_S
    await tx.execute(f"set local lock_timeout = '{LOCK_WITHIN}'".encode())
    while True:
        try:
            async with tx.transaction():
                await tx.execute(_LOCK_ARCHIVES, (history.LOCK,))
                await tx.execute(sql.SQL("lock table {} in access exclusive mode").format(names))
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable) as error:
            if time.monotonic() >= ends_at:
                raise DeletionError(
                    f"the tables were in use for {LOCKED_WITHIN_S:.0f} s ({db.first_line(error)}): "
                    "choose a quieter hour. No row has gone"
                ) from None
        else:
            return


async def _unforce(tx: db.Connection, tables: Collection[str]) -> None:
    """Let the owner see all rows of these tables; they are locked until the transaction ends.

    A superuser sees them anyway.
    """
    if await db.fetch_value(
        tx, "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
    ):
        return
    await _lock(tx, tables)
    for table in sorted(tables):
        await tx.execute(_alter(table, "no force row level security"))


async def _force_again(tx: db.Connection) -> None:
    """Have row level security hold for the owner of all tables, as it does everywhere."""
    rows = await db.fetch_all(
        tx,
        """
        select relname from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
          and relrowsecurity and not relforcerowsecurity
        """,
    )
    for (table,) in rows:
        await tx.execute(_alter(table, "force row level security"))


def _alter(table: str, what: LiteralString) -> sql.Composed:
    return sql.SQL("alter table {} ").format(sql.Identifier(table)) + sql.SQL(what)


# The bucket


async def _keys(
    tx: db.Connection, subject: Subject, bucket: objects.Bucket | None
) -> list[tuple[str, list[str]]]:
    """Objects that go, by prefix."""
    if bucket is None or subject.kind == "person":
        return []
    if subject.kind == "company":
        prefixes = [
            f"tenants/{subject.tenant_id}/",
            f"aside/tenants/{subject.tenant_id}/",
            f"camera/{subject.company_id}/",
            history.folder(subject.tenant_id),
        ]
        below = [(prefix, await bucket.keys(prefix)) for prefix in prefixes]
        return [(prefix, keys) for prefix, keys in below if keys]
    rows = await db.fetch_all(
        tx,
        "select object_key from media_objects where tenant_id = %s and device_id = %s "
        "and object_key is not null",
        subject.tenant_id,
        subject.device_id,
    )
    planned = []
    images = [key for (key,) in rows]
    images += [key for image in images for key in await bucket.keys(f"aside/{image}/")]
    if images:
        planned.append((f"tenants/{subject.tenant_id}/…/{subject.device_id}/", images))
    prefix = f"camera/{subject.company_id}/{subject.device_id}/"
    if keys := await bucket.keys(prefix):
        planned.append((prefix, keys))
    return planned


async def _names_objects(tx: db.Connection, subject: Subject) -> bool:
    if subject.kind == "person":
        return False
    values = {
        "tenant": subject.tenant_id, "company": subject.company_id, "device": subject.device_id
    }  # fmt: skip
    cursor = await tx.execute(_NAMES_OBJECTS, values)
    (row,) = await cursor.fetchall()
    return bool(row[0])


async def _archives(tx: db.Connection, subject: Subject) -> list[tuple[str, date]]:
    """Files that may have readings of the device: they are written again without them."""
    if subject.kind != "device":
        return []
    rows = await db.fetch_all(
        tx,
        """
        select key, month from telemetry_archives
        where tenant_id = %s and %s collate "C" between first_device_id and last_device_id
        """,
        subject.tenant_id,
        subject.device_id,
    )
    return [(key, month) for key, month in rows]


async def _rewrite_archives(tx: db.Connection, subject: Subject, bucket: objects.Bucket) -> None:
    for key, month in await _archives(tx, subject):
        from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

        table = parquet.read_all(await bucket.get(key))
        rest, going = parquet.without(table, "device_id", parquet.texts([str(subject.device_id)]))
        if not going.num_rows:
            continue
        if rest.num_rows:
            file = history.encode(rest, month)
            if not await bucket.put_verified(
                file.key, file.body, content_type=parquet.CONTENT_TYPE
            ):
                raise DeletionError(f"the bucket has other bytes under {file.key} than were put")
            await history.note(tx, file, was=key)
        await tx.execute(
            "delete from telemetry_archives where tenant_id = %s and key = %s",
            (subject.tenant_id, key),
        )


_LOCK_ARCHIVES = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"
