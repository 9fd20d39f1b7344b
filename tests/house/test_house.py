"""The house rules that no linter knows."""

import ast
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from farmiq import config, services
from farmiq.cloud import bus
from farmiq.plumbing import log
from tests.integration.test_readiness import CHECKS, OTHERS

ROOT = Path(__file__).parent.parent.parent
CODE = sorted((ROOT / "farmiq").rglob("*.py"))
# Words that say nothing about what is inside.
NOT_USED = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager"}
NOT_USED |= {"managers", "processor", "processors", "impl"}


def test_flow_page_shows_the_output_of_farmiq_flow() -> None:
    text = (ROOT / "docs" / "develop" / "flow.md").read_text()
    assert f"```text\n{services.flow()}```" in text, "paste the output of `farmiq flow`"


def test_every_service_is_in_the_folder_of_its_name_and_says_where_it_stands() -> None:
    for service in services.SERVICES:
        site, _, tail = service.name.partition("-")
        module = service.module.split(".")
        assert module[1] == site == service.site
        # The services that differ by a table name are entries of one module.
        folders = ["sinks"] if module[2] == "sinks" else module[2:-1]
        if folders != ["sinks"]:
            assert tail.startswith("-".join(folders)), f"{service.name} lives in {folders}"
        source = (ROOT / Path(*module)).with_suffix(".py").read_text()
        picture = ast.get_docstring(ast.parse(source)) or ""
        assert f"[{folders[-1]}]" in picture, f"{service.module}: no picture in the docstring"
        assert "-->" in picture or "<--" in picture


def test_every_service_module_names_itself_as_the_list_does() -> None:
    for service in services.SERVICES:
        if service.module == "farmiq.cloud.sinks":
            sink = pkgutil.resolve_name(f"{service.module}:{service.run}").__self__
            assert sink.work.service == service.name
            continue
        source = (ROOT / Path(*service.module.split("."))).with_suffix(".py").read_text()
        assert f'NAME = "{service.name}"' in source


def test_only_config_reads_the_environment() -> None:
    readers = [
        str(file.relative_to(ROOT))
        for file in CODE
        if re.search(r"os\.(environ|getenv)", file.read_text())
    ]
    assert readers == ["farmiq/config/environment.py"]


def test_every_field_of_a_log_line_is_on_the_allow_list() -> None:
    """What is not on it would be left out without a word."""
    odd = [
        f"{file.relative_to(ROOT)}:{call.lineno} {keyword.arg}"
        for file in CODE
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and _logs(call)
        for keyword in call.keywords
        if keyword.arg and keyword.arg not in {*log.ALLOWED, "exc_info"}
    ]
    assert odd == []


def _logs(call: ast.Call) -> bool:
    """`….warning("what.happened", …)`: the name of a line has a dot."""
    said = call.args[0] if call.args else None
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("debug", "info", "warning", "error")
        and isinstance(said, ast.Constant)
        and isinstance(said.value, str)
        and "." in said.value
    )


def test_every_check_of_readiness_is_seen_to_fail_when_its_engine_is_away() -> None:
    """Each name of `server.ready(…)` is on the list of tests/integration/test_readiness.py."""
    source = "\n".join(file.read_text(encoding="utf-8") for file in CODE)
    names = set(re.findall(r'server\.ready\(\s*"([^"]+)"', source))
    templates = set(re.findall(r'server\.ready\(\s*f"([^"]+)"', source))
    assert templates == {"{family}.database", "{sink.family}.{sink.work.purpose}.queue"}
    sinks = re.findall(r'\bSink\(\s*"(\w+)",\s*bus\.(\w+)', source)
    assert {getattr(bus, work) for _, work in sinks} == set(bus.WORKS)
    names |= {f"{family}.{getattr(bus, work).purpose}.queue" for family, work in sinks}
    listed = {name for engines in CHECKS.values() for checks in engines.values() for name in checks}
    assert names - OTHERS - listed == set()
    assert names >= OTHERS
    # Of the sinks of a service, the database is checked once, under the name of the first.
    families: dict[str, set[str]] = {}
    for family, work in sinks:
        families.setdefault(getattr(bus, work).service, set()).add(f"{family}.database")
    assert [service for service, any_of in families.items() if not any_of & listed] == []


def test_names_say_what_is_inside() -> None:
    for file in CODE:
        parts = file.relative_to(ROOT).with_suffix("").parts
        words = {word for part in parts for word in part.split("_")}
        assert not words & NOT_USED, file


def test_literals_of_the_same_members_have_one_order() -> None:
    """`typing` takes them for one type: what is imported first would decide what documents say."""
    orders: dict[frozenset[str], set[tuple[str, ...]]] = {}
    for file in CODE:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=members)):
                    names = tuple(ast.unparse(member) for member in members)
                    orders.setdefault(frozenset(names), set()).add(names)
    assert orders
    assert [found for found in orders.values() if len(found) > 1] == []


def test_tests_call_no_private_function_of_ours() -> None:
    """What a test calls is a surface: give it a name of its own, or go through what has one."""
    private = {name for file in CODE for name in _PRIVATE.findall(file.read_text("utf-8"))}
    private.remove("_replace")  # that of a namedtuple
    for file in sorted((ROOT / "tests").rglob("*.py")):
        text = file.read_text("utf-8")
        called = set(re.findall(r"(?<!\bself)\.(_[a-z]\w*)\(", text))
        assert not called & private - set(_PRIVATE.findall(text)), file


_PRIVATE = re.compile(r"\bdef (_[a-z]\w*)\(")


def test_every_module_says_what_it_is() -> None:
    silent = [str(file) for file in CODE if not ast.get_docstring(ast.parse(file.read_text()))]
    assert silent == []


@pytest.mark.parametrize("site", list(config.TEMPLATES))
def test_the_template_of_a_site_names_every_setting_with_a_word_on_it(site: str) -> None:
    text = config.template(site)
    for name, field in config.TEMPLATES[site].variables().items():
        assert f"{name}=" in text
        assert field.description
        assert field.description in text


def test_help_is_quick_because_heavy_things_are_imported_late() -> None:
    """No engine, server or client library is loaded for `farmiq --help`."""
    heavy = ("psycopg", "aio_pika", "boto3", "fastapi", "uvicorn", "paho", "jinja2")
    program = "import sys, farmiq.cli; print([m for m in sys.argv[1:] if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", ["services", "plumbing.migrations", "doctor", "cloud.identity.accounts"]
)
def test_command_that_serves_nothing_imports_no_web_framework(module: str) -> None:
    """What `farmiq flow`, `migrate`, `doctor` and `user` import when they start."""
    program = f"import sys, farmiq.{module}; print('fastapi' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_no_file_names_a_registry_host_or_a_path_of_one_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    hosts = re.compile(rb"(files\.pythonhosted|pypi|registry\.npmjs|deb\.debian)\.(org|com)")
    named = [
        name
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file() and hosts.search((ROOT / name).read_bytes())
    ]
    assert named == []


def test_every_connection_is_told_which_certificates_to_trust() -> None:
    """Else a site with an authority of its own finds a service or a command that cannot connect."""
    by_tls = re.compile(
        r"(amqp\.(connection|publisher|counts|depths?)|nats\.connect(ed)?|mqtt\.connected"
        r"|(objects\.)?Bucket|objects\.Source|rabbit\.Api)$"
    )
    by_verify = re.compile(r"httpx2\.((Async)?Client|get|post|stream)$")
    untold = []
    for file in CODE:
        if "lab" in file.relative_to(ROOT).parts or file.name.startswith("simulated_"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called, given = ast.unparse(node.func), {word.arg for word in node.keywords}
                lacks_tls = by_tls.match(called) and "tls" not in given
                if lacks_tls or (by_verify.match(called) and "verify" not in given):
                    untold.append(f"{file.relative_to(ROOT)}:{node.lineno} {called}")
    assert untold == []


@pytest.mark.req("DD-03", "WV-34")
def test_no_cache_server_is_among_the_dependencies() -> None:
    locked = (ROOT / "requirements.lock").read_text()
    for name in ("redis", "memcache", "pymemcache", "valkey"):
        assert not re.search(rf"^{name}", locked, re.MULTILINE)


@pytest.mark.req("XC-05")
def test_the_package_says_from_which_python_on_it_runs() -> None:
    assert importlib.metadata.metadata("farmiq")["Requires-Python"] == ">=3.11"


@pytest.mark.req("RB-05", "FB-14")
def test_the_edge_has_no_amqp_client_and_no_address_of_the_bus() -> None:
    for file in (ROOT / "farmiq" / "edge").rglob("*.py"):
        assert "amqp" not in file.read_text(), file
    assert not any("AMQP" in name for name in config.EdgeSettings.variables())
