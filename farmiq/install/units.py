"""systemd units as data: what all of ours have, and how one is written."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | tuple[str, ...] | None
Section = Mapping[str, Value]

# What no program of ours needs. A unit that needs one of these says so beside its own lines.
HARDENED: Section = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateMounts": "yes",
    "PrivateDevices": "yes",
    "PrivateUsers": "yes",
    "DevicePolicy": "closed",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "KeyringMode": "private",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": ("@system-service", "~@privileged"),
    "SystemCallErrorNumber": "EPERM",
    "UMask": "0077",
    # A core holds keys and passwords.
    "LimitCORE": "0",
    "TasksMax": "512",
}
# A server that never gives up: it starts again for ever, two seconds after it ended.
LASTING: Section = {"Type": "exec", "Restart": "always", "RestartSec": "2"}
# Done once in a run of the machine, before what needs it.
ONCE: Section = {"Type": "oneshot", "Restart": "no", "RemainAfterExit": "yes"}
# Sends nothing to another machine and hears none.
LOOPBACK: Section = {"IPAddressDeny": "any", "IPAddressAllow": "localhost"}


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One unit file: its sections with their lines, in the order in which they are written."""

    name: str
    sections: Mapping[str, Section] = field(default_factory=dict)

    @property
    def text(self) -> str:
        head = "# Made by `farmiq install`, which writes it again. Changes of your own go into\n"
        head += f"# /etc/systemd/system/{self.name}.d/own.conf.\n"
        return head + "\n".join(
            f"[{name}]\n" + "".join(_lines(section)) for name, section in self.sections.items()
        )

    def part_of(self, target: str) -> "Unit":
        """The same, stopped and restarted with its target."""
        head = {**self.sections["Unit"], "PartOf": target}
        return Unit(name=self.name, sections={**self.sections, "Unit": head})


def service(
    name: str,
    description: str,
    *,
    user: str,
    start: str,
    memory: str,
    unit: Section | None = None,
    own: Section | None = None,
) -> Unit:
    """A hardened service; its own lines win over those that all have."""
    head = {"Description": description, "StartLimitIntervalSec": "0", **(unit or {})}
    run = {"User": user, "Group": user, "ExecStart": start, "MemoryMax": memory}
    return Unit(
        name=f"{name}.service",
        sections={"Unit": head, "Service": {**run, **LASTING, **HARDENED, **(own or {})}},
    )


def timer(name: str, description: str, *, calendar: str) -> Unit:
    """Starts the service of its name; a time that passed while the machine was off is made up."""
    when = {"OnCalendar": calendar, "Persistent": "true", "RandomizedDelaySec": "30min"}
    return Unit(
        name=f"{name}.timer",
        sections={
            "Unit": {"Description": description},
            "Timer": when,
        },
    )


def target(name: str, description: str, wants: tuple[str, ...], lasting: tuple[str, ...]) -> Unit:
    """All units of a site under one name; it starts with the machine.

    What is `lasting` is started whenever it is not running, also if what it waits for has failed.
    """
    return Unit(
        name=f"{name}.target",
        sections={
            "Unit": {
                "Description": description,
                "Wants": " ".join(wants),
                "Upholds": " ".join(lasting),
            },
            "Install": {"WantedBy": "multi-user.target"},
        },
    )


def environment(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Values of `Environment=`; systemd reads % and quotes in them."""
    return tuple(
        '"{}={}"'.format(name, value.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in variables.items()
    )


def _lines(section: Section) -> list[str]:
    return [
        f"{name}={value}\n"
        for name, given in section.items()
        if given is not None
        for value in ((given,) if isinstance(given, str) else given)
    ]
