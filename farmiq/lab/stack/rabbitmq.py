"""RabbitMQ: the installed one, else Debian's package unpacked beside the stacks.

The broker and its port mapper (epmd) are two children, so that neither outlives the stack.
"""

import asyncio
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from farmiq.lab.stack import debian, files
from farmiq.lab.stack.engine import (
    HOST,
    SYSTEM_PATH,
    NotReadyError,
    Place,
    Say,
    StackError,
    address,
    make_outside,
    new_password,
    outside,
    plain_environment,
)
from farmiq.lab.stack.processes import Launch
from farmiq.plumbing.tls import Tls

USER = "farmiq"
VHOST = "farmiq"
NODE = "farmiq@localhost"
ERLANG = "/usr/lib/erlang"
HOW_TO_GET_ONE = (
    "RabbitMQ is not installed, and this is no Debian system to take it from. "
    "Do one of these: install rabbitmq-server so that it is on the PATH; "
    "set FARMIQ_AMQP_URL to a server of yours; "
    "or start all engines with deploy/compose.yaml."
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A RabbitMQ that can be started: its scripts, Erlang's programs, libraries it brings."""

    scripts: Path
    erlang: Path
    libraries: tuple[Path, ...] = ()

    @property
    def version(self) -> str:
        return self.scripts.parent.name.rpartition("-")[2]


@dataclass(frozen=True, kw_only=True)
class RabbitMQ:
    """One node with the management API; it never joins a cluster."""

    name: str = "rabbitmq"
    ports: tuple[str, ...] = ("rabbitmq", "rabbitmq-api", "rabbitmq-dist", "rabbitmq-epmd")
    passwords: tuple[str, ...] = ("rabbitmq",)
    required: tuple[str, ...] = ("FARMIQ_AMQP_URL",)
    optional: tuple[str, ...] = ("FARMIQ_RABBITMQ_API_URL",)
    patience_s: float = 120

    def prepare(self, place: Place) -> None:
        find(place.downloads, say=place.say)
        text = configuration(
            amqp_port=place.ports["rabbitmq"],
            api_port=place.ports["rabbitmq-api"],
            password=place.passwords["rabbitmq"],
        )
        files.write_private(place.folder / "rabbitmq.conf", text)
        files.write_private(place.folder / "enabled_plugins", "[rabbitmq_management].\n")
        cookie = place.folder / ".erlang.cookie"
        if not cookie.exists():
            files.write_private(cookie, new_password())
            cookie.chmod(0o400)

    def launches(self, place: Place) -> tuple[Launch, ...]:
        installation = find(place.downloads, say=place.say)
        environment = node_environment(place.folder, place.ports, installation)
        port_mapper = (
            str(installation.erlang / "epmd"),
            "-port",
            str(place.ports["rabbitmq-epmd"]),
        )
        return (
            Launch(
                argv=(*port_mapper, "-address", HOST),
                environment=environment,
                folder=place.folder,
                log=place.log.with_name("epmd.log"),
            ),
            Launch(
                argv=(str(installation.scripts / "rabbitmq-server"),),
                environment=environment,
                folder=place.folder,
                log=place.log,
            ),
        )

    def urls(self, place: Place) -> dict[str, str]:
        login = f"{USER}:{place.passwords['rabbitmq']}@{HOST}"
        return {
            "FARMIQ_AMQP_URL": f"amqp://{login}:{place.ports['rabbitmq']}/{VHOST}",
            "FARMIQ_RABBITMQ_API_URL": f"http://{login}:{place.ports['rabbitmq-api']}",
        }

    def probe(self, urls: Mapping[str, str]) -> str:
        knock(urls["FARMIQ_AMQP_URL"])
        version = asyncio.run(open_channel(urls["FARMIQ_AMQP_URL"]))
        if "FARMIQ_RABBITMQ_API_URL" in urls:
            check_api(urls["FARMIQ_RABBITMQ_API_URL"])
        return version

    def finish(self, place: Place) -> None:
        """Nothing: user and vhost come from the configuration."""

    def available(self, downloads: Path) -> str:
        installation = installed() or extracted(downloads)
        if installation is not None:
            return f"RabbitMQ {installation.version} in {installation.scripts}"
        if debian.usable():
            return "RabbitMQ of Debian's packages, downloaded at the first start (35 MB)"
        raise StackError(HOW_TO_GET_ONE)


def find(downloads: Path, *, say: Say) -> Installation:
    """Return a RabbitMQ, downloading it if that is the way to have one."""
    installation = installed() or extracted(downloads)
    if installation is not None:
        return installation
    if not debian.usable():
        raise StackError(HOW_TO_GET_ONE)
    if outside(downloads) == home(downloads).parent:
        make_outside(downloads)
    debian.extract(("rabbitmq-server",), home(downloads), say=say, finish=make_movable)
    installation = extracted(downloads)
    if installation is None:
        raise StackError(
            f"Debian's rabbitmq-server was unpacked into {home(downloads)} but holds no server."
        )
    return installation


def installed() -> Installation | None:
    """Return the RabbitMQ of this system; not by Debian's wrapper, which insists on its user."""
    search = f"{os.defpath}:{SYSTEM_PATH}"
    erlang = shutil.which("epmd") or shutil.which("epmd", path=f"{ERLANG}/bin:{search}")
    server = shutil.which("rabbitmq-server")
    folders = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    if server is not None:
        folders.append(Path(server).resolve().parent)
    for scripts in folders:
        if erlang is not None and (scripts / "rabbitmq-env").exists():
            return Installation(scripts=scripts, erlang=Path(erlang).parent)
    return None


def extracted(downloads: Path) -> Installation | None:
    """Return the RabbitMQ that was unpacked there before."""
    top = home(downloads)
    for scripts in sorted(top.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")):
        return Installation(
            scripts=scripts,
            erlang=top / "usr/lib/erlang/bin",
            libraries=tuple(debian.library_folders(top)),
        )
    return None


def home(downloads: Path) -> Path:
    """Return where it is unpacked; RabbitMQ's scripts do not work in a path with spaces."""
    folder = downloads.resolve()
    return (outside(folder) if " " in str(folder) else folder) / "rabbitmq"


def make_movable(draft: Path) -> None:
    """Let Erlang's start script find its home beside itself instead of in /usr."""
    script = draft / "usr/lib/erlang/bin/erl"
    beside = '"$(dirname "$(dirname "$(readlink -f "$0")")")"'
    text = script.read_text(encoding="utf-8").replace(f"ROOTDIR={ERLANG}", f"ROOTDIR={beside}")
    script.write_text(text, encoding="utf-8")


def configuration(*, amqp_port: int, api_port: int, password: str) -> str:
    """Return the text of rabbitmq.conf: loopback only, small, one administrator."""
    return f"""\
listeners.tcp.1 = {HOST}:{amqp_port}
management.tcp.ip = {HOST}
management.tcp.port = {api_port}
default_vhost = {VHOST}
default_user = {USER}
default_pass = {password}
default_user_tags.administrator = true
default_permissions.configure = .*
default_permissions.read = .*
default_permissions.write = .*
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 100MB
raft.wal_max_size_bytes = 33554432
log.file = false
log.console = true
log.console.level = info
"""


def node_environment(
    folder: Path, ports: Mapping[str, int], installation: Installation, *, node: str = NODE
) -> dict[str, str]:
    """Return the environment that makes a node small, private and independent of /etc."""
    path = f"{installation.erlang}:{SYSTEM_PATH}"
    environment = {
        **plain_environment(folder, path=path),
        "RABBITMQ_NODENAME": node,
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-such-file"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_DIST_PORT": str(ports["rabbitmq-dist"]),
        "ERL_EPMD_PORT": str(ports["rabbitmq-epmd"]),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_CRASH_DUMP_SECONDS": "0",
        "RABBITMQ_LOG": "-color",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "+S 2:2 +SDio 4 +sbwt none +sbwtdcpu none +sbwtdio none"
            " -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
        ),
        # The script then becomes the server instead of waiting for it: one pid to know.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    if installation.libraries:
        environment["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in installation.libraries)
    return environment


def knock(url: str) -> None:
    """See whether anything listens: the AMQP library logs every refused connection as an error."""
    parts = address(url)
    port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
    try:
        socket.create_connection((parts.hostname or HOST, port), timeout=3).close()
    except OSError as problem:
        raise NotReadyError(str(problem)) from problem


async def open_channel(url: str) -> str:
    """Log in over AMQP, open a channel, and return the server's name and version."""
    import aio_pika  # noqa: PLC0415
    from aiormq.exceptions import AMQPError  # noqa: PLC0415

    try:
        async with asyncio.timeout(5), await aio_pika.connect(url) as connection:
            await connection.channel()
            transport = connection.transport
            properties = transport.connection.server_properties if transport else {}
    except (AMQPError, OSError, TimeoutError) as problem:
        raise NotReadyError(str(problem) or type(problem).__name__) from problem
    return f"{_text(properties.get('product'))} {_text(properties.get('version'))}".strip()


def check_api(url: str) -> None:
    """Ask the management API who we are; the login is in the address."""
    try:
        whoami = f"{url.rstrip('/')}/api/whoami"
        answer = httpx2.get(whoami, timeout=5, verify=Tls().client(), trust_env=False)
    except httpx2.HTTPError as problem:
        raise NotReadyError(f"the management API: {problem}") from problem
    if answer.status_code != httpx2.codes.OK:
        raise NotReadyError(f"the management API answered {answer.status_code}")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
