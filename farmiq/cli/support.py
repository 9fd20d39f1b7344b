"""`farmiq support-bundle`: one archive for the person who helps."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from farmiq.cli import terminal


def support_bundle(
    *,
    output: Annotated[
        Path | None,
        typer.Option(help="Where the archive goes; default: farmiq-support-<time>.tar.gz here."),
    ] = None,
    logs: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with *.log files to take the ends of; may be repeated."),
    ] = None,
) -> None:
    """Write an archive for support: what is installed and set, its state, the last log lines.

    Versions, settings, what `farmiq doctor` says, metrics, revision of the schema, counts of
    tables and queues, ends of logs. No password, key or token is in it, and no row of a table;
    names of farms and devices may stand in log lines. Look into it before you send it.
    """
    from farmiq import support
    from farmiq.plumbing import log

    log.configure("error")
    environment = terminal.environment()
    target = output or Path(f"farmiq-support-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    folders = [*support.log_folders(environment), *(logs or [])]
    files = asyncio.run(support.collect(environment, folders))
    size = support.write(files, target)
    terminal.print_result(
        {"file": target, "size_bytes": size, "files": list(files)},
        f"{target}: {size / 1000:,.0f} kB, {len(files)} files",
    )
