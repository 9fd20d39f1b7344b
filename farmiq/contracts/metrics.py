"""The catalogue of metrics: docs/operate/metrics.md, made from the code.

A metric may have only labels that are listed here, each with what bounds its values: a label that
a device or a person can invent values for would fill the memory of whoever scrapes.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase

import farmiq

PREFIX = "farmiq_"
# What bounds the values of each label.
LABELS = {
    "change": "open, resolve",
    "chore": "periodic work, as the code names it",
    "event_type": "types of events in the catalogue of messages",
    "family": "queues of the bus that land in tables",
    "how": "ways to drop rows",
    "kind": "words of the code for what was refused, or for a way to send",
    "limit": "limits of HTTP connections",
    "mark": "what a backup does: copy, change, verify, drill",
    "name": "leases that one of several processes holds",
    "outcome": "words of the code for how it ended",
    "output": "kinds of sirens",
    "path": "disks of the setting DISK_PATHS",
    "queue": "queues of the topology (`farmiq topology diff`)",
    "route": "routes as the code writes them, `none` for all that is no route",
    "service": "services (`farmiq flow`)",
    "severity": "severities of alerts",
    "state": "states of devices, cameras and edges",
    "status": "statuses of HTTP",
    "step": "steps of a camera site's day",
    "table": "tables",
    "tenant_id": "companies; shown only to who has API_METRICS_TOKEN",
    "verdict": "verdicts on an image",
    "what": "kinds of things that are removed for space",
    "window": "windows of buckets",
}
SERIES = {"counter": "_total"}
# Programs that are started by path, not imported: they end, or read a pipe, when they are.
PROGRAMS = ("worker", "sandbox_worker", "decoding_worker")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One metric: `name` is that of its series, as Prometheus shows it."""

    place: str
    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class UnboundedLabelError(Exception):
    """A metric has a label of which nobody said what bounds its values."""


def entries() -> list[Entry]:
    """Every metric of every service, by the folder that has it."""
    _import_services()
    listed = []
    places = dict(_places())
    for metric, place in places.items():
        if not metric._name.startswith(PREFIX):  # noqa: SLF001 - it has no public name
            continue
        kind, labels = str(metric._type), tuple(metric._labelnames)  # noqa: SLF001
        name = metric._name + SERIES.get(kind, "")  # noqa: SLF001
        check_labels(name, labels)
        listed.append(Entry(place, name, kind, labels, metric._documentation))  # noqa: SLF001
    return sorted(listed)


def check_labels(name: str, labels: Iterable[str]) -> None:
    """Raises UnboundedLabelError for a label that is not listed above."""
    if unknown := [label for label in labels if label not in LABELS]:
        raise UnboundedLabelError(
            f"{name}: nobody said what bounds the values of {unknown[0]!r}; a word of the code is "
            "fine (add it to LABELS), an id of a device, a person or a message is not"
        )


def document() -> str:
    """The page docs/operate/metrics.md."""
    listed = entries()
    lines = [
        "# Metrics",
        "",
        "Made by `make docs` from the code; a test compares. Every process answers `/metrics` in",
        "the format of Prometheus ([http.md](http.md): who sees figures by tenant). Alerts on",
        "them: [runbooks.md](runbooks.md). Dashboards: [watch.md](watch.md).",
        "A counter begins at nothing when its process starts: use `increase` or `rate`.",
        "",
    ]
    for place in dict.fromkeys(entry.place for entry in listed):
        lines += [f"## {place}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{entry.name}` | {entry.kind} | {', '.join(entry.labels)} | {entry.meaning} |"
            for entry in listed
            if entry.place == place
        ]
        lines.append("")
    lines += [
        "## Labels",
        "",
        "What bounds the values of a label; a metric with another label fails the tests.",
        "",
        "| label | bounded by |",
        "|---|---|",
        *(f"| {label} | {bound} |" for label, bound in LABELS.items()),
        "",
    ]
    return "\n".join(lines)


def _import_services() -> None:
    for name in ("plumbing", "edge", "cloud", "device"):
        package = importlib.import_module(f"{farmiq.__name__}.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in PROGRAMS:
                importlib.import_module(module.name)


def _places() -> Iterable[tuple[MetricWrapperBase, str]]:
    """Each metric with the folder of the module that made it."""
    known = set(prometheus_client.REGISTRY._collector_to_names)  # noqa: SLF001 - as above
    for name, module in sorted(sys.modules.items()):
        parts = name.split(".")
        if parts[0] != farmiq.__name__ or len(parts) < 3:  # noqa: PLR2004 - farmiq.site.folder
            continue
        for value in vars(module).values():
            if isinstance(value, MetricWrapperBase) and value in known:
                site, folder = parts[1], parts[2]
                place = "every process" if site == "plumbing" else f"{site}: {folder}"
                yield value, place
