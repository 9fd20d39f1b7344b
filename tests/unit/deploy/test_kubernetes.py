"""deploy/kubernetes: made from the code, valid by Kubernetes' own schemas, complete."""

import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from farmiq import __version__, config, services
from farmiq.cloud import bus
from farmiq.contracts import openapi

ROOT = Path(__file__).parents[3]
HERE = ROOT / "deploy" / "kubernetes"
VERSION = "1.34"
FILES = sorted(HERE.rglob("*.yaml"))
OWN = [path for path in FILES if path.name != "kustomization.yaml"]


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def named(kind: str) -> dict[str, dict[str, Any]]:
    return {
        document["metadata"]["name"]: document
        for path in OWN
        for document in documents(path)
        if document["kind"] == kind
    }


def test_files_are_what_the_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "kubernetes"))
    written = {HERE / name: tool["text"](objects) for name, objects in tool["files"]().items()}

    differing = [path.name for path, text in written.items() if path.read_text() != text]
    assert differing == [], "make kubernetes"


def test_every_object_is_valid_by_the_schemas_of_kubernetes() -> None:
    """Strict: a misspelt field is an error."""
    kinds = set()
    for path in OWN:
        for document in documents(path):
            kubernetes_validate.validate(document, VERSION, strict=True)
            kinds.add(document["kind"])
    assert kinds == {
        "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "Job", "Namespace",
        "NetworkPolicy", "PodDisruptionBudget", "Service",
    }  # fmt: skip


def test_misspelt_field_is_found() -> None:
    document = documents(HERE / "base" / "deployments.yaml")[0]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {**document, "spec": {**document["spec"], "replica": 2}}, VERSION, strict=True
        )


def test_every_service_of_the_cloud_is_deployed_with_probes_and_a_budget() -> None:
    names = {service.name for service in services.SERVICES if service.site == "cloud"}
    deployments = named("Deployment")
    assert set(deployments) == set(named("Service")) == set(named("PodDisruptionBudget")) == names
    for name, deployment in deployments.items():
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        assert container["args"] == ["run", name]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_who_takes_events_is_scaled_by_each_of_its_queues() -> None:
    scaled = {
        metric["external"]["metric"]["selector"]["matchLabels"]["queue"]: name
        for name, autoscaler in named("HorizontalPodAutoscaler").items()
        for metric in autoscaler["spec"]["metrics"]
    }
    assert scaled == {work.queue: work.queue.split(".")[1] for work in bus.WORKS}


def test_each_route_reaches_the_service_that_answers_it() -> None:
    """As ingress-nginx does: the longest expression that fits the beginning."""
    rules = named("Ingress")["farmiq"]["spec"]["rules"][0]["http"]["paths"]
    backends = {rule["path"]: rule["backend"]["service"]["name"] for rule in rules}
    folders = {service.module.rpartition(".")[0]: service.name for service in services.SERVICES}
    seen = set()
    for route in openapi.app("cloud").routes:
        module = getattr(getattr(route, "endpoint", None), "__module__", "")
        owners = [name for folder, name in folders.items() if f"{module}.".startswith(f"{folder}.")]
        if "farmiq.cloud" in module and owners:
            path = re.sub(r"\{[^}]*\}", "x1", route.path)  # type: ignore[attr-defined]
            fitting = [pattern for pattern in backends if re.match(pattern, path)]
            assert backends[max(fitting, key=len)] in owners, path
            seen.add(path)
    assert len(seen) > 60


def test_kustomizations_name_files_that_exist() -> None:
    for path in FILES:
        if path.name == "kustomization.yaml":
            for name in documents(path)[0]["resources"]:
                found = path.parent / name
                assert found.is_file() or (found / "kustomization.yaml").is_file(), (
                    f"{path}: {name}"
                )
    listed = {
        (path.parent / name).resolve()
        for path in FILES if path.name == "kustomization.yaml"
        for name in documents(path)[0]["resources"]
    }  # fmt: skip
    assert {path for path in OWN if path not in listed} == set()


def test_example_names_settings_that_exist_and_the_version_of_this_code() -> None:
    example = documents(HERE / "example" / "kustomization.yaml")[0]
    known = {
        name
        for site in ("cloud", "admin")
        for name in re.findall(r"(?m)^#?(\w+)=", config.template(site))
    }
    literals = [line for each in example["configMapGenerator"] for line in each["literals"]]
    given = {line.partition("=")[0] for line in literals}
    given |= set(documents(HERE / "base" / "settings.yaml")[0]["data"]) - {"FARMIQ_STATE_DIR"}
    for secret in example["secretGenerator"]:
        for file in secret.get("envs", []):
            text = (HERE / "example" / f"{file}.example").read_text(encoding="utf-8")
            given |= set(re.findall(r"(?m)^(\w+)=", text))
    assert given <= known
    assert example["images"][0]["newTag"] == __version__
    assert f"farmiq:{__version__}" in (ROOT / "deploy" / "Containerfile").read_text()
