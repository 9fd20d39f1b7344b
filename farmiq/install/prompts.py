"""What an installation asks: at most five questions for a machine, each with a default."""

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from farmiq.install.steps import InstallError, Target
from farmiq.messages.ids import ID_PATTERN

LOOPBACK = "127.0.0.1"
# Where the cloud would be if there were one: an edge works without it, and what it has waits.
NO_CLOUD = "https://cloud.invalid"
# Somebody else's, by its definition; nothing is sent to it.
_ELSEWHERE = ("192.0.2.1", 9)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    name: str
    text: str
    default: Callable[[Target], str] = lambda _: ""
    problem: Callable[[str], str | None] = lambda _: None
    is_secret: bool = False


def _url(*schemes: str) -> Callable[[str], str | None]:
    def problem(given: str) -> str | None:
        parts = urlsplit(given)
        good = parts.scheme in schemes and (parts.hostname or parts.scheme == "file")
        forms = " or ".join(f"{scheme}://…" for scheme in schemes)
        return None if good or not given else f"it is to begin with {forms}"

    return problem


def _id(given: str) -> str | None:
    return None if re.match(ID_PATTERN, given) else "letters, digits and . _ : -, at most 128"


def _address(given: str) -> str | None:
    try:
        socket.inet_pton(socket.AF_INET, given)
    except OSError:
        return "an IPv4 address of this machine, such as 10.0.0.2"
    return None


def _place(given: str) -> str | None:
    parts = given.split("/")
    if not given or (len(parts) == 5 and all(re.match(ID_PATTERN, part) for part in parts)):  # noqa: PLR2004
        return None
    return "five ids with / between: tenant/farm/barn/device/station"


def _hostname(target: Target) -> str:
    file = target.at(Path("/etc/hostname"))
    name = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    return name if _id(name) is None else "edge-01"


def _own_address(_: Target) -> str:
    """The address from which this machine would reach others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return LOOPBACK
        address: str = probe.getsockname()[0]
        return address


_BACKUP = Prompt(
    name="backup",
    text="where backups go, on another machine: file:///mnt/… or https://key:secret@host/bucket; "
    "empty: none are made",
    problem=_url("file", "https", "http"),
    is_secret=True,
)
PROMPTS: Mapping[str, tuple[Prompt, ...]] = {
    "edge": (
        Prompt(
            name="cloud",
            text="address of the cloud, https://…; without one the edge works on its own",
            default=lambda _: NO_CLOUD,
            problem=_url("https", "http"),
        ),
        Prompt(
            name="code",
            text="code of `farmiq edge invite` for this edge; empty: enrol later",
            is_secret=True,
        ),
        Prompt(name="name", text="name of this edge", default=_hostname, problem=_id),
        Prompt(
            name="address",
            text="address of this machine in the barn, where devices and stations reach it",
            default=_own_address,
            problem=_address,
        ),
        _BACKUP,
    ),
    "cloud": (
        Prompt(
            name="public",
            text="address that people and edges use, https://… of the TLS proxy in front",
            default=lambda target: f"http://{_hostname(target)}:8080",
            problem=_url("https", "http"),
        ),
        Prompt(
            name="listen",
            text="address to listen on: of this machine alone behind a proxy",
            default=lambda _: LOOPBACK,
            problem=_address,
        ),
        Prompt(
            name="database",
            text="PostgreSQL as owner, postgresql://…; empty: one on this machine",
            problem=_url("postgresql"),
            is_secret=True,
        ),
        Prompt(
            name="rabbitmq",
            text="management API of RabbitMQ as administrator, http(s)://user:password@host:15672; "
            "empty: Debian's on this machine",
            problem=_url("https", "http"),
            is_secret=True,
        ),
        _BACKUP,
    ),
    "device": (
        Prompt(
            name="place",
            text="tenant/farm/barn/device/station, as `farmiq device add` was given them",
            problem=_place,
        ),
        Prompt(
            name="edge",
            text="address of the edge, such as http://10.0.0.2:8081",
            problem=_url("http", "https"),
        ),
        Prompt(
            name="url",
            text="the `url` that `farmiq device add` printed, mqtt://user:password@host:1883",
            problem=_url("mqtt", "mqtts"),
            is_secret=True,
        ),
        Prompt(name="token", text="the `token` that it printed", is_secret=True),
        Prompt(
            name="scale",
            text="the scale: serial:///dev/ttyUSB0 or tcp://host:port; empty: none",
            problem=_url("serial", "tcp"),
        ),
    ),
}


def read(text: str, site: str) -> dict[str, str]:
    """Answers of a file: a line `name=value` each; # begins a comment."""
    known = {prompt.name for prompt in PROMPTS[site]}
    answers = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.partition("=")
            if not equals or name.strip() not in known:
                raise InstallError(
                    f"line {number} of the answers is not one of {', '.join(sorted(known))}=…"
                )
            answers[name.strip()] = value.strip()
    return answers


def complete(
    site: str,
    given: Mapping[str, str],
    target: Target,
    typed: Callable[[Prompt, str], str] | None,
) -> dict[str, str]:
    """An answer to each prompt: given, asked for, or the default. Raises InstallError."""
    answers = dict(given)
    for prompt in PROMPTS[site]:
        if prompt.name not in answers:
            default = prompt.default(target)
            answers[prompt.name] = typed(prompt, default) if typed else default
        answer = answers[prompt.name]
        problem = prompt.problem(answer)
        if re.search(r"[\s\"'\\$`]", answer):
            problem = "no spaces, quotes, backslashes or dollar signs"
        if problem:
            raise InstallError(f"{prompt.name}: {problem}")
    return answers
