"""What /metrics shows: all to who has the token, and to others nothing that names a tenant."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Labels whose values come from customers; all others are words of the code or of the machine.
NAMING = frozenset(("tenant_id", "company_id", "farm_id", "barn_id", "device_id", "site_id"))


@dataclass(frozen=True)
class Anonymous(Collector):
    """The same metrics without these labels: ages become the greatest one, all else the sum."""

    registry: Collector

    def collect(self) -> Iterator[Metric]:
        return (_without_names(family) for family in self.registry.collect())


def shown(*, names: bool) -> bytes:
    """As Prometheus reads it."""
    registry = prometheus_client.REGISTRY
    return prometheus_client.generate_latest(registry if names else _registry(registry))


def _registry(source: Collector) -> prometheus_client.CollectorRegistry:
    registry = prometheus_client.CollectorRegistry()
    registry.register(Anonymous(source))
    return registry


def _without_names(family: Metric) -> Metric:
    if not any(NAMING & sample.labels.keys() for sample in family.samples):
        return family
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = defaultdict(list)
    for sample in family.samples:
        labels_left = tuple(
            (name, text) for name, text in sample.labels.items() if name not in NAMING
        )
        values[sample.name, labels_left].append(sample.value)
    merged = Metric(family.name, family.documentation, family.type, family.unit)
    for (name, labels), numbers in values.items():
        merged.add_sample(name, dict(labels), _combined(family.name, numbers))
    return merged


def _combined(name: str, values: Iterable[float]) -> float:
    return max(values) if name.endswith("_seconds") else sum(values)
