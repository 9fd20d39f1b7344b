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
        "Deployment", "HorizontalPodAutoscaler", "Ingress", "Job", "Namespace",
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


def resources(kustomization: Path) -> list[Path]:
    """The files and folders that it is built from."""
    document = documents(kustomization)[0]
    names = [*document.get("resources", ()), *document.get("components", ())]
    return [(kustomization.parent / name).resolve() for name in names]


def built(kustomization: Path) -> list[dict[str, Any]]:
    """All objects of a build, and what it generates, under the names that the code gave."""
    found = []
    for each in resources(kustomization):
        found += documents(each) if each.is_file() else built(each / "kustomization.yaml")
    for kind, name in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
        generated = documents(kustomization)[0].get(name, ())
        found += [{"kind": kind, "metadata": {"name": each["name"]}} for each in generated]
    return found


def named_in(node: Any) -> set[tuple[str, str]]:
    """(kind, name) of the settings and secrets that an object needs."""
    if isinstance(node, list):
        return {pair for each in node for pair in named_in(each)}
    if not isinstance(node, dict):
        return set()
    refs = {("configMapRef", "name"): "ConfigMap", ("secretRef", "name"): "Secret"}
    pairs = {(kind, node[ref][key]) for (ref, key), kind in refs.items() if ref in node}
    if "defaultMode" in node:
        pairs.add(("Secret", node["secretName"]))
    return pairs.union(*map(named_in, node.values()))


def test_kustomizations_name_files_that_exist() -> None:
    kustomizations = [path for path in FILES if path.name == "kustomization.yaml"]
    listed = {each for path in kustomizations for each in resources(path)}
    for each in listed:
        assert each.is_file() or (each / "kustomization.yaml").is_file(), each
    assert {path for path in OWN if path not in listed} == set()


@pytest.mark.parametrize("folder", ["example/pre", "example", "example/post"])
def test_each_build_makes_the_settings_and_secrets_that_its_pods_name(folder: str) -> None:
    """Generated names end in a hash: only what is built together finds each other."""
    objects = built(HERE / folder / "kustomization.yaml")
    made = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert named_in(objects) <= made
    assert ("Namespace", "farmiq") in made
    assert {("Secret", "farmiq-admin"), ("ConfigMap", "farmiq-cloud")} <= made
    settings = HERE / "example" / "settings"
    assert settings in resources(HERE / folder / "kustomization.yaml"), "its image"


def test_example_names_settings_that_exist_and_the_version_of_this_code() -> None:
    example = documents(HERE / "example" / "settings" / "kustomization.yaml")[0]
    base = documents(HERE / "base" / "settings" / "kustomization.yaml")[0]
    known = {
        name
        for site in ("cloud", "admin")
        for name in re.findall(r"(?m)^#?(\w+)=", config.template(site))
    }
    generators = [*example["configMapGenerator"], *base["configMapGenerator"]]
    literals = [line for each in generators for line in each["literals"]]
    given = {line.partition("=")[0] for line in literals} - {"FARMIQ_STATE_DIR"}
    for secret in example["secretGenerator"]:
        for file in secret.get("envs", []):
            text = (HERE / "example" / "settings" / f"{file}.example").read_text(encoding="utf-8")
            given |= set(re.findall(r"(?m)^(\w+)=", text))
    assert given <= known
    assert example["images"][0]["newTag"] == __version__
    assert f"farmiq:{__version__}" in (ROOT / "deploy" / "Containerfile").read_text()
