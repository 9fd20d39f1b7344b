"""Readings that left the database: Parquet files in the cloud's bucket, and how they are read.

telemetry_readings --archive--> history/tenant=…/metric=…/month=…/….parquet, telemetry_archives
    --> [history] --> range API, exports, rollups of late readings

A file has readings of one company, metric and month, by device and time. Whoever reads both tiers
asks the database for readings first and for files after that: a reading that moves meanwhile is in
one of the answers, or in both, and an event counts once. Which files there are is in a table under
row level security; to answer somebody the bucket is never listed.
"""

import hashlib
import importlib.util
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from farmiq.config import CloudSettings
from farmiq.plumbing import db
from farmiq.plumbing.storage import objects

if TYPE_CHECKING:
    from farmiq.plumbing.parquet import Kind

PREFIX = "history/"
# Advisory lock of the process that moves or deletes archived readings.
LOCK = "archive readings"
# Files have whole months that ended at least a month ago: none has readings younger than this.
MIN_AGE = timedelta(days=28)
COLUMNS: Mapping[str, "Kind"] = {
    "tenant_id": "text",
    "event_id": "id",
    "farm_id": "text",
    "barn_id": "text",
    "device_id": "text",
    "metric_type": "text",
    "metric_value": "number",
    "unit": "text",
    "occurred_at": "moment",
    "trace_id": "text",
    "stored_at": "moment",
    "clock_suspect": "flag",
}
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")


class HistoryUnavailableError(Exception):
    """Readings of that time are in the bucket, and that cannot be read now."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    tenant_id: str
    key: str
    metric_type: str
    first_at: datetime
    last_at: datetime
    size_bytes: int
    is_dropped: bool


@dataclass(frozen=True, slots=True)
class History:
    """The files. Without a bucket none can be read: HistoryUnavailableError says so."""

    bucket: objects.Bucket | None

    async def tables(
        self,
        files: Sequence[ArchiveFile],
        *,
        devices: Collection[str],
        begin: datetime,
        end: datetime,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[tuple[ArchiveFile, Any]]:
        """Each file with its readings of these devices and times.

        Raises HistoryUnavailableError.
        """
        if not files:
            return
        if self.bucket is None:
            raise HistoryUnavailableError(
                "readings of that time are in the cloud's bucket: set FARMIQ_CLOUD_S3_URL"
            )
        if (missing := problem()) is not None:
            raise HistoryUnavailableError(missing)
        from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

        read = partial(
            parquet.read_some,
            column="device_id",
            values=devices,
            moment="occurred_at",
            begin=begin,
            end=end,
            columns=columns,
        )
        for file in files:
            try:
                table = await self.bucket.read_file(file.key, size_bytes=file.size_bytes, read=read)
            except objects.UNAVAILABLE as error:
                raise HistoryUnavailableError(
                    f"readings of that time are in the cloud's bucket, which cannot be read now: "
                    f"{file.key}: {db.first_line(error)}"
                ) from error
            yield file, table


def of(settings: CloudSettings) -> History:
    url = settings.s3_url
    if url is None:
        return History(None)
    return History(objects.Bucket(url.get_secret_value(), tls=settings.tls))


def problem() -> str | None:
    """What this installation lacks to read or write files, in a sentence, or None."""
    if importlib.util.find_spec("pyarrow") is None:
        return "older readings are in Parquet files: install farmiq[history], which brings pyarrow"
    return None


async def files(
    connection: db.Connection,
    *,
    metrics: Collection[str],
    devices: Collection[str],
    begin: datetime,
    end: datetime,
    tenant_id: str | None = None,
) -> list[ArchiveFile]:
    """The files that may hold such readings; without a tenant, of the person who asks."""
    return await db.fetch_as(
        connection,
        ArchiveFile,
        """
        select a.tenant_id, a.key, a.metric_type, a.first_at, a.last_at, a.size_bytes,
          a.dropped_at is not null as is_dropped
        from telemetry_archives a
        where a.tenant_id = coalesce(%(tenant)s, (select get_active_tenant_id()))
          and a.metric_type = any(%(metrics)s)
          and a.month >= date_trunc('month', %(begin)s at time zone 'UTC')::date
          and a.first_at < %(end)s and a.last_at >= %(begin)s
          and exists (select from unnest(%(devices)s::text[]) d
            where d collate "C" between a.first_device_id and a.last_device_id)
        order by a.metric_type, a.first_device_id, a.first_at, a.key
        """,
        {
            "tenant": tenant_id, "metrics": list(metrics), "devices": list(devices),
            "begin": begin, "end": end,
        },
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file before it is stored: its bytes, and what its row says of it."""

    key: str
    body: bytes
    month: date
    table: Any


def encode(table: Any, month: date) -> NewFile:
    """The file of these readings, of one company, metric and month; its name is its hash."""
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    body = parquet.write(table)
    name = hashlib.sha256(body).hexdigest()[:32]
    tenant_id, metric_type = (table[name][0].as_py() for name in ("tenant_id", "metric_type"))
    return NewFile(f"{folder(tenant_id, metric_type, month)}{name}.parquet", body, month, table)


async def note(tx: db.Connection, file: NewFile, *, was: str | None = None) -> None:
    """Say that the file is in the bucket; `was` is the key of one that it takes the place of."""
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    devices, moments = (parquet.span(file.table, name) for name in ("device_id", "occurred_at"))
    tenant_id, metric_type = (file.table[name][0].as_py() for name in ("tenant_id", "metric_type"))
    await tx.execute(
        """
        insert into telemetry_archives (tenant_id, key, metric_type, month, first_device_id,
          last_device_id, first_at, last_at, row_count, size_bytes, sha256, dropped_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
          (select dropped_at from telemetry_archives where tenant_id = %s and key = %s))
        on conflict on constraint telemetry_archives_pkey do nothing
        """,
        (
            tenant_id, file.key, metric_type, file.month, *devices, *moments,
            file.table.num_rows, len(file.body),
            hashlib.sha256(file.body).hexdigest(), tenant_id, was,
        ),
    )  # fmt: skip


def folder(tenant_id: str, metric_type: str | None = None, month: date | None = None) -> str:
    """Where the files of a company, of one of its metrics, or of a month lie: a Hive layout."""
    path = f"{PREFIX}tenant={_escaped(tenant_id)}/"
    if metric_type is not None:
        path += f"metric={_escaped(metric_type)}/"
    return path if month is None else f"{path}month={month:%Y-%m}/"


def _escaped(name: str) -> str:
    """A name as one part of a path, whatever is in it: not one dot or slash is left."""
    return _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], name.encode()).decode()
