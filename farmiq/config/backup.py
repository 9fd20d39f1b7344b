"""Settings of backups, for the machine that makes them."""

from pathlib import Path
from typing import Any

from pydantic import PositiveFloat, PositiveInt, SecretStr, field_validator

from farmiq.config.settings import Settings, required, setting


class BackupSettings(Settings):
    """For `farmiq backup`, `restore` and `drill`: where copies go, and how long they stay."""

    url: SecretStr = required(
        "FARMIQ_BACKUP_URL",
        "where backups go, on another machine: file:///folder (a mounted disk) or "
        "https://key:secret@host/bucket/folder; each site has a folder of its own below it",
    )
    key_file: Path = required(
        "FARMIQ_BACKUP_KEY_FILE",
        "the key that seals backups (farmiq backup key FILE); keep a copy of it elsewhere: "
        "without it no backup can be read",
    )
    spool: Path = setting(
        "FARMIQ_BACKUP_SPOOL",
        Path("/var/lib/farmiq/backup"),
        "folder on this machine for changes on their way to the repository",
    )
    programs: Path | None = setting(
        "FARMIQ_PG_BIN",
        None,
        "folder of PostgreSQL's programs, of the server's major version; default: the packaged "
        "ones, else PATH",
    )
    files: tuple[Path, ...] = setting(
        "BACKUP_FILES",
        (),
        "files and folders that are stored with each backup, comma-separated: settings, keys, "
        "certificates, the broker's configuration",
    )
    base_hours: PositiveFloat = setting(
        "BACKUP_BASE_HOURS", 24, "how often `farmiq backup stream` copies the whole database"
    )
    bucket_hours: PositiveFloat = setting(
        "BACKUP_BUCKET_HOURS", 1, "how often it copies the images that are new"
    )
    wal_s: PositiveFloat = setting(
        "BACKUP_WAL_SECONDS", 30, "how much may be lost at most, but for the time of an upload"
    )
    days: PositiveFloat = setting(
        "BACKUP_RETENTION_DAYS", 30, "how far back a restore can go at least", ge=1
    )
    at_least: PositiveInt = setting(
        "BACKUP_MIN_BASES", 2, "copies of the whole database that stay whatever their age"
    )

    @field_validator("files", mode="before")
    @classmethod
    def _paths(cls, given: Any) -> Any:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given
