"""What each kind of machine gets: users, folders, keys, settings and units, as a list of steps.

The engines are those that the tests run, with the arguments and files that `farmiq.lab.stack`
writes for them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from farmiq.install import engines, units
from farmiq.install.engines import LIBRARY, SETTINGS
from farmiq.install.prompts import LOOPBACK
from farmiq.install.steps import Account, File, Folder, InstallError, Link, Step, Target
from farmiq.install.units import Section, Unit
from farmiq.lab.stack.engine import new_password
from farmiq.plumbing import sealing, tokens
from farmiq.plumbing.broker import nats_jwt

PROGRAM = Path("/opt/farmiq/venv/bin/farmiq")
UNITS = Path("/etc/systemd/system")
SECRETS = SETTINGS / "secrets.json"
CALLOUT_KEY = SETTINGS / "callout.nk"
BACKUP_KEY = SETTINGS / "backup.key"
SECRETS_KEY = SETTINGS / "seal.key"
# Who owns the tables: prepares the engines, backs up, drills.
OWNER = "farmiq-owner"
HTTP_PORT = {"edge": 8081, "cloud": 8080}
DATABASE_ROLE = {"edge": "farmiq_edge", "cloud": "farmiq_service"}


@dataclass
class Plan:
    """The steps of a machine, and what a person has to do after them."""

    steps: list[Step]
    to_do: list[str]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a plan is made from."""

    site: str
    target: Target
    program: Path
    answers: Mapping[str, str]
    secrets: dict[str, str]

    @property
    def user(self) -> str:
        return f"farmiq-{self.site}"

    @property
    def state(self) -> Path:
        return LIBRARY / self.user

    @property
    def key_file(self) -> Path:
        return self.state / "edge-key.jwk"

    def secret(self, name: str) -> str:
        return self.secrets.setdefault(name, new_password())


def plan(site: str, target: Target, answers: Mapping[str, str], *, program: Path) -> Plan:
    """Everything that this machine is to have. Changes nothing."""
    file = target.at(SECRETS)
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    machine = Machine(site=site, target=target, program=program, answers=answers, secrets=known)
    if not target.at(program).exists():
        raise InstallError(
            f"there is no {program} on that machine: install FarmIQ there first "
            "(docs/operate/deploy.md), or name it with --program"
        )
    other = {"edge": "cloud", "cloud": "edge"}.get(site)
    if other and target.at(UNITS / f"farmiq-{other}.service").exists():
        name = {"edge": "an edge", "cloud": "a cloud"}[other]
        raise InstallError(f"this machine is {name} already: an edge and a cloud need one each")
    return _agent(machine) if site == "device" else _site(machine)


def _agent(machine: Machine) -> Plan:
    user, answers = "farmiq-agent", machine.answers
    place = answers["place"].split("/") if answers["place"] else [""] * 5
    names = ("TENANT", "FARM", "BARN", "DEVICE", "STATION")
    values = {f"AGENT_{name}_ID": part for name, part in zip(names, place, strict=True)}
    values |= {
        "AGENT_EDGE_URL": answers["edge"],
        "AGENT_MQTT_URL": answers["url"],
        "AGENT_TOKEN": answers["token"],
        "AGENT_SCALE_URL": answers["scale"],
        "AGENT_BUFFER_DIR": str(LIBRARY / user),
    }
    lacking = [name for name, value in values.items() if not value and name != "AGENT_SCALE_URL"]
    agent = units.service(
        "farmiq-agent",
        "FarmIQ weigh station agent",
        user=user,
        start=f"{machine.program} agent run",
        memory="200M",
        # Not after the network: it weighs without one and sends when there is one.
        unit={"After": "local-fs.target time-sync.target"},
        own={
            **_settings("agent"),
            "StateDirectory": user,
            "StateDirectoryMode": "0700",
            # Serial scales and cameras of the machine itself.
            "SupplementaryGroups": "dialout video",
            "PrivateDevices": None,
            "PrivateUsers": None,
            "DeviceAllow": (
                "char-ttyS rw",
                "char-ttyUSB rw",
                "char-ttyACM rw",
                "char-video4linux rw",
            ),
            # Pictures are decoded in a process of their own: if it ends, the agent goes on.
            "OOMPolicy": "continue",
        },
    )
    steps: list[Step] = [Account(name=user, home=LIBRARY / user), Folder(path=SETTINGS, mode=0o711)]
    steps += _environment("agent", values, "settings of your own: `farmiq config device` lists all")
    steps += _enabled("farmiq-device", "FarmIQ weigh station", [agent])
    to_do = [f"{SETTINGS}/agent.env lacks {', '.join(lacking)}"] if lacking else []
    return Plan(steps, to_do)


def _site(machine: Machine) -> Plan:
    site, answers = machine.site, machine.answers
    chosen = engines.choose(machine)
    values = {name: value for engine in chosen for name, value in engine.variables.items()}
    values |= _edge_values(machine) if site == "edge" else _cloud_values(machine, values)
    admin_name, role_name = f"FARMIQ_{site.upper()}_DB_ADMIN_URL", f"FARMIQ_{site.upper()}_DB_URL"
    admin = {
        name: values.pop(name) for name in (admin_name, "FARMIQ_RABBITMQ_API_URL") if name in values
    }
    values.setdefault(
        role_name, _as_role(admin[admin_name], DATABASE_ROLE[site], machine.secret("role"))
    )
    accounts = [*dict.fromkeys(engine.user for engine in chosen), OWNER, machine.user]
    steps: list[Step] = [Account(name=name, home=LIBRARY / name) for name in accounts]
    steps += [
        Folder(path=SETTINGS, mode=0o711),
        File(path=SECRETS, text=json.dumps(machine.secrets, indent=1), mode=0o600, stays=True),
        Folder(path=LIBRARY / OWNER, owner=OWNER, group=OWNER, mode=0o700),
        Folder(path=machine.state, owner=machine.user, group=machine.user, mode=0o700),
    ]
    steps += [step for engine in chosen for step in engine.steps]
    steps += _keys(machine)
    steps += _environment(site, values, f"settings of your own: `farmiq config {site}` lists all")
    # After the services' own settings: the owner cannot enter their folder.
    steps.append(_file("admin", {**admin, "FARMIQ_STATE_DIR": str(LIBRARY / OWNER)}))
    wanted = [unit for engine in chosen for unit in engine.units]
    wanted += [_prepare(machine, wanted), _services(machine, chosen)]
    if answers["backup"]:
        steps += _backup_settings(machine)
        wanted += _backup_units(machine)
    steps += _enabled(f"farmiq-{site}", f"FarmIQ {site}", wanted)
    return Plan(steps, _to_do(machine))


def _to_do(machine: Machine) -> list[str]:
    if machine.site == "edge":
        enrolled = "issuer" in machine.answers
        return [] if enrolled else ["the cloud does not know this edge yet: docs/operate/deploy.md"]
    return []


def _edge_values(machine: Machine) -> dict[str, str]:
    answers = machine.answers
    values = {
        "FARMIQ_CLOUD_URL": answers["cloud"].rstrip("/"),
        "FARMIQ_EDGE_CLUSTER_ID": answers["name"],
        "FARMIQ_EDGE_KEY_FILE": str(machine.key_file),
        "FARMIQ_EDGE_HTTP_HOST": _listen(answers["address"]),
        "FARMIQ_EDGE_HTTP_PORT": str(HTTP_PORT["edge"]),
        "FARMIQ_EDGE_TIMEZONE": _timezone(machine.target),
        "FARMIQ_STATE_DIR": str(machine.state),
        "FARMIQ_EDGE_S3_PUBLIC_URL": ""
        if answers["address"] == LOOPBACK
        else f"http://{answers['address']}:{engines.UPLOAD_PORT}",
        "FARMIQ_DEVICES_MQTT_URL": f"mqtt://{answers['address']}:{engines.PORTS['mqtt-edge']}",
        "FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE": str(CALLOUT_KEY),
        "EDGE_DISK_PATHS": str(LIBRARY),
    }
    if "issuer" in answers:
        values["FARMIQ_TOKEN_ISSUER"] = answers["issuer"]
        values["FARMIQ_TOKEN_AUDIENCE"] = answers["audience"]
    return values


def _cloud_values(machine: Machine, known: Mapping[str, str]) -> dict[str, str]:
    answers = machine.answers
    api = answers["rabbitmq"] or known["FARMIQ_RABBITMQ_API_URL"]
    host, scheme = urlsplit(api).hostname, "amqps" if api.startswith("https") else "amqp"
    values = {
        "FARMIQ_CLOUD_HTTP_HOST": answers["listen"],
        "FARMIQ_CLOUD_HTTP_PORT": str(HTTP_PORT["cloud"]),
        "FARMIQ_PUBLIC_URL": answers["public"].rstrip("/"),
        "FARMIQ_STATE_DIR": str(machine.state),
        "FARMIQ_SECRETS_KEY_FILE": str(SECRETS_KEY),
        "FARMIQ_CLOUD_BROKER_CALLOUT_KEY_FILE": str(CALLOUT_KEY),
        "FARMIQ_RABBITMQ_API_URL": api,
        # The login that `farmiq prepare cloud` makes for the services.
        "FARMIQ_AMQP_URL": f"{scheme}://cloud:{machine.secret('amqp')}@{host}/farmiq",
    }
    if answers["database"]:
        values["FARMIQ_CLOUD_DB_ADMIN_URL"] = answers["database"]
    if answers["public"].startswith("https"):
        values["CONSOLE_COOKIE_SECURE"] = "true"
    return values


def _keys(machine: Machine) -> list[Step]:
    """Made once; each is read by one user alone."""
    seed = machine.secrets.setdefault("callout", nats_jwt.Key.new().seed)
    steps: list[Step] = [
        File(path=CALLOUT_KEY, text=seed, group=machine.user, mode=0o640, stays=True)
    ]
    if machine.site == "edge":
        steps.append(
            File(
                path=machine.key_file,
                text=lambda path: tokens.write_private(path, tokens.new_key()),
                owner=machine.user,
                group=machine.user,
                mode=0o600,
                made_once=True,
            )
        )
    else:
        steps.append(_sealing_key(SECRETS_KEY, machine.user))
    if machine.answers["backup"]:
        steps.append(_sealing_key(BACKUP_KEY, OWNER))
    return steps


def _sealing_key(path: Path, group: str) -> File:
    return File(path=path, text=sealing.write_new_key, group=group, mode=0o640, made_once=True)


def _prepare(machine: Machine, started: list[Unit]) -> Unit:
    servers = [
        unit for unit in started if "socket" not in str(unit.sections["Unit"].get("Requires"))
    ]
    names = " ".join(unit.name for unit in servers if unit.name.endswith(".service"))
    arguments = f" --store-port {engines.PORTS['filer']}"
    return units.service(
        "farmiq-prepare",
        f"FarmIQ {machine.site}: database, roles, tables and buckets",
        user=OWNER,
        start=f"{machine.program} prepare {machine.site}{arguments}",
        memory="512M",
        unit={"After": names, "Wants": names},
        own={
            **_settings(machine.site, "admin"),
            "Type": "oneshot",
            "RemainAfterExit": "yes",
            "Restart": "on-failure",
            "TimeoutStartSec": "15min",
        },
    )


def _services(machine: Machine, chosen: list[engines.Installed]) -> Unit:
    groups = " ".join(engine.user for engine in chosen if engine.user == "farmiq-broker")
    return units.service(
        machine.user,
        f"FarmIQ {machine.site}: all services",
        user=machine.user,
        start=f"{machine.program} run {machine.site}",
        memory="4G" if machine.site == "cloud" else "2G",
        unit={
            "Requires": "farmiq-prepare.service",
            "After": "farmiq-prepare.service network.target time-sync.target",
        },
        own={
            **_settings(machine.site),
            "StateDirectory": machine.user,
            "StateDirectoryMode": "0700",
            "WorkingDirectory": str(machine.state),
            # The broker's log, for what it refused.
            "SupplementaryGroups": groups,
            "LimitNOFILE": "65536",
            # Images are decoded in processes of their own: if one is too much, the others go on.
            "OOMPolicy": "continue",
            "TimeoutStopSec": "60",
        },
    )


def _backup_settings(machine: Machine) -> list[Step]:
    files = [str(SETTINGS), *([str(machine.key_file)] if machine.site == "edge" else [])]
    values = {
        "FARMIQ_BACKUP_URL": machine.answers["backup"],
        "FARMIQ_BACKUP_KEY_FILE": str(BACKUP_KEY),
        "FARMIQ_BACKUP_SPOOL": str(LIBRARY / OWNER / "backup"),
        "BACKUP_FILES": ",".join(files),
    }
    steps = _environment("backup", values, "settings of your own: `farmiq config backup` lists all")
    where = urlsplit(machine.answers["backup"])
    folder = Path(unquote(where.path))
    # One that is there, on a mounted disk, is the operator's: OWNER must be able to write to it.
    if where.scheme == "file" and not machine.target.at(folder).exists():
        steps.append(Folder(path=folder, owner=OWNER, group=OWNER, mode=0o700))
    return steps


def _backup_units(machine: Machine) -> list[Unit]:
    """`backup stream` copies everything daily and prunes too, so these have no timers."""
    site = machine.site
    where = urlsplit(machine.answers["backup"])
    own: Section = {
        **_settings(site, "admin", "backup"),
        "StateDirectory": OWNER,
        "StateDirectoryMode": "0700",
        # It stores the settings and keys of this machine, which root alone may read.
        "CapabilityBoundingSet": "CAP_DAC_READ_SEARCH",
        "AmbientCapabilities": "CAP_DAC_READ_SEARCH",
        "PrivateUsers": None,
        **({"ReadWritePaths": f"-{unquote(where.path)}"} if where.scheme == "file" else {}),
    }
    once = {**own, "Type": "oneshot", "Restart": "no", "TimeoutStartSec": "6h"}
    after = {"After": "farmiq-prepare.service", "Requires": "farmiq-prepare.service"}

    def unit(verb: str, words: str, text: str, lines: Section) -> Unit:
        return units.service(
            f"farmiq-{verb}", f"FarmIQ {site}: {text}", user=OWNER,
            start=f"{machine.program} {words}", memory="1G", unit=after, own=lines,
        )  # fmt: skip

    scratch = LIBRARY / OWNER / "drill"
    clean = {"ExecStartPre": f"/bin/rm -rf {scratch}", "ExecStopPost": f"/bin/rm -rf {scratch}"}
    return [
        unit("backup", f"backup stream {site}", "backup without end", own),
        unit("verify", f"backup verify {site}", "read the backup", once),
        unit(
            "drill",
            f"drill {site} --into {scratch}",
            "restore the backup and compare",
            {**once, **clean},
        ),
        units.timer("farmiq-verify", "Read the backup weekly", calendar="Sun 03:30"),
        units.timer(
            "farmiq-drill",
            "Restore the backup quarterly",
            calendar="*-01,04,07,10-02 03:30",
        ),
    ]


def _enabled(name: str, description: str, wanted: list[Unit]) -> list[Step]:
    """The units, and a target that starts with the machine and wants them all."""
    starters = [unit.name for unit in wanted if unit.name.endswith((".timer", ".socket"))]
    started = {f"{starter.rpartition('.')[0]}.service" for starter in starters}
    names = tuple(unit.name for unit in wanted if unit.name not in started)
    lasting = tuple(
        unit.name
        for unit in wanted
        if unit.sections.get("Service", {}).get("Restart") == "always" and unit.name not in started
    )
    everything = units.target(name, description, names, lasting)
    boot = UNITS / "multi-user.target.wants"
    listed = [*(unit.part_of(everything.name) for unit in wanted), everything]
    return [
        *(File(path=UNITS / unit.name, text=unit.text) for unit in listed),
        Folder(path=boot),
        Link(path=boot / everything.name, to=f"../{everything.name}"),
    ]


def _settings(*names: str) -> Section:
    """Files that systemd reads as root, before it becomes the unit's user; a person's own win."""
    files = [
        file for name in names for file in (f"{SETTINGS}/{name}.env", f"-{SETTINGS}/{name}.own.env")
    ]
    return {"EnvironmentFile": tuple(file for file in files if not file.endswith("admin.own.env"))}


def _environment(name: str, values: Mapping[str, str], words: str) -> list[Step]:
    own = f"# {words}. They win over {name}.env.\n"
    return [
        _file(name, values),
        File(
            path=SETTINGS / f"{name}.own.env",
            text=lambda path: _write(path, own),
            mode=0o600,
            made_once=True,
        ),
    ]


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _file(name: str, values: Mapping[str, str]) -> File:
    lines = [f"# Made by `farmiq install`, which writes it again; change {name}.own.env instead."]
    if name == "admin":
        lines = [
            "# Made by `farmiq install`. The owners of databases and bus: not for the services."
        ]
    lines += [f'{variable}="{value}"' for variable, value in sorted(values.items()) if value]
    return File(path=SETTINGS / f"{name}.env", text="\n".join(lines) + "\n", mode=0o600)


def _as_role(url: str, role: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{host}"))


def _listen(address: str) -> str:
    """Everywhere, if others are to reach it: this machine uses it by another address."""
    return address if address == LOOPBACK else "0.0.0.0"


def _timezone(target: Target) -> str:
    file = target.at(Path("/etc/timezone"))
    return (file.read_text(encoding="utf-8").strip() if file.exists() else "") or "UTC"
