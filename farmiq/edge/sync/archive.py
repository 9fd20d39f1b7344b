"""Archives: rows that leave the outbox undelivered, as gzip JSON lines with a checksum beside."""

import asyncio
import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from farmiq.messages import instants
from farmiq.plumbing import ids


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that is on the disk for good."""

    archive_id: UUID
    file: Path
    sha256: bytes
    row_count: int


async def write(folder: Path, rows: Sequence[dict[str, Any]]) -> Archive:
    """One line per row with every column; returns when file and folder are flushed."""
    return await asyncio.to_thread(_write, folder, rows)


def _write(folder: Path, rows: Sequence[dict[str, Any]]) -> Archive:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    archive_id = ids.new()
    file = folder / f"outbox-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{archive_id}.jsonl.gz"
    lines = "".join(json.dumps(row, default=_text, ensure_ascii=False) + "\n" for row in rows)
    packed = gzip.compress(lines.encode(), mtime=0)
    digest = hashlib.sha256(packed)
    _keep(file, packed)
    # As sha256sum writes it, so that `sha256sum -c` reads it.
    _keep(file.with_name(f"{file.name}.sha256"), f"{digest.hexdigest()}  {file.name}\n".encode())
    _flush(folder)
    return Archive(archive_id, file, digest.digest(), len(rows))


def _keep(file: Path, content: bytes) -> None:
    """Whole or not at all, whatever happens meanwhile."""
    unfinished = file.with_name(f".{file.name}.part")
    with unfinished.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    unfinished.rename(file)


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(value: object) -> str:
    return instants.rfc3339(value) if isinstance(value, datetime) else str(value)
