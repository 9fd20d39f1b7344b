"""`farmiq install` and `farmiq prepare`: a machine becomes an edge, a cloud or a weigh station."""

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import edge, terminal

if TYPE_CHECKING:
    from farmiq.install.prompts import Prompt
    from farmiq.install.sites import Plan
    from farmiq.install.steps import Target

SITES = ("edge", "cloud", "device")
# Answers that the cloud gave, and the hash of the code that they were given for.
ENROLLED = ("issuer", "audience", "name", "code_sha256")


def install(
    site: Annotated[str, typer.Argument(help="edge, cloud or device (a weigh station).")],
    *,
    root: Annotated[
        Path, typer.Option(help="Folder of a whole system that is installed instead of this one.")
    ] = Path("/"),
    answers: Annotated[
        Path | None, typer.Option(help="File with answers, a line name=value each; none are asked.")
    ] = None,
    program: Annotated[
        Path | None, typer.Option(help="The `farmiq` that the units start, as that system sees it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be made or changed.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Stop it and remove what was made; data and keys stay.")
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="With --undo: data, keys, passwords and users go too.")
    ] = False,
) -> int:
    """Make this machine an edge, a cloud or a weigh station, with its engines, under systemd.

    Asks at most five questions, each with a default; without a terminal the defaults are taken.
    Answers are remembered: the second run asks nothing, changes what differs, restarts services
    whose unit or code is new (after an upgrade), and says so. A code that the edge was enrolled
    with is not used again. Exit code 3: something is left for a person to do.

    docs/operate/deploy.md tells what is made, and how it was tested.
    """
    from farmiq import __version__
    from farmiq.install import release, steps

    terminal.check_known(site, SITES, f"there is no {site!r}; choose")
    if purge and not undo:
        terminal.fail("--purge removes data: say it with --undo", code=2)
    target = steps.Target(root.resolve())
    if os.geteuid() != 0 and not dry_run:
        terminal.fail("it makes users and units: run it as root")
    if undo:
        return _undo(site, target, purge=purge)
    given = _answers(site, target, answers)
    program = program or _program(target)
    plan = _plan(site, target, given, program)
    earlier = steps.read(target, site)
    code = release.marks(plan.steps, target)
    stale = [name for name in code if earlier and earlier.code.get(name) != code[name]]
    if dry_run:
        wanted = [step.describe() for step in steps.lacking(plan.steps, target)]
        return _report(wanted, stale, plan, tense="would make or change ")
    _check_reachable(target, program)
    apply = partial(steps.apply, target=target, site=site, version=__version__, code=code)
    # Until they were started again the note has the old code.
    done = apply(plan.steps, answers=given, code=earlier.code if earlier else {})
    if given.get("code"):
        given = _enroll(given, target)
        plan = _plan(site, target, given, program)
        done += apply(plan.steps, answers=given, code=earlier.code if earlier else {})
    if (done or stale) and target.is_live:
        _start(site, done, stale)
    apply(plan.steps, answers=given)
    return _report(done, stale, plan, tense="made or changed ")


def prepare(
    site: Annotated[str, typer.Argument(help="edge or cloud.")],
    *,
    store_port: Annotated[
        int | None,
        typer.Option(help="Port of SeaweedFS's filer on this machine: it is told to flush."),
    ] = None,
) -> None:
    """Make what a site's services expect in its engines; safe to repeat. Its unit runs it.

    Waits for the engines, makes the database, its tables and the services' role, and in the cloud
    the queues and their login. Needs the settings of the site and of its owner (admin.env).
    """
    from farmiq.install import prepare as work

    terminal.check_known(site, SITES[:2], f"there is no site {site!r}; choose")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        terminal.progress()(line)

    environment = terminal.environment()
    terminal.needed(f"FARMIQ_{site.upper()}_DB_ADMIN_URL", environment)
    work.prepare(site, environment, store_port=store_port, say=say)
    terminal.print_result({"done": lines}, "ready")


def _answers(site: str, target: "Target", file: Path | None) -> dict[str, str]:
    """Those of the file, else those of the last time, else asked for at a terminal."""
    from farmiq.install import prompts, steps

    earlier = steps.read(target, site)
    if file is not None:
        given = prompts.read(file.read_text(encoding="utf-8"), site)
        known = earlier.answers if earlier else {}
        known = {name: known[name] for name in ENROLLED if "issuer" in known and name in known}
        if given.get("code") and _sha256(given["code"]) != known.get("code_sha256"):
            return prompts.complete(site, given, target, None)
        # Enrolled already: the name is the one that the cloud knows.
        code = {"code": ""} if known else {}
        return prompts.complete(site, {**given, **known, **code}, target, None)
    typed = (
        _prompt if sys.stdin.isatty() and not terminal.wants_json() and earlier is None else None
    )
    return prompts.complete(site, earlier.answers if earlier else {}, target, typed)


def _prompt(prompt: "Prompt", default: str) -> str:
    answer: str = typer.prompt(
        f"{prompt.name}: {prompt.text}\n", default=default, show_default=bool(default), err=True
    )
    return answer


def _program(target: "Target") -> Path:
    """The one that runs here, or the usual place in another system.

    By its link if that leads here: an upgrade moves the link.
    """
    from farmiq.install.sites import PROGRAM

    here = Path(sys.executable).with_name("farmiq")
    elsewhere = target.root != Path("/") or not here.exists()
    return PROGRAM if elsewhere or PROGRAM.resolve() == here.resolve() else here


def _plan(site: str, target: "Target", answers: dict[str, str], program: Path) -> "Plan":
    from farmiq.install import sites

    return sites.plan(site, target, answers, program=program)


def _check_reachable(target: "Target", program: Path) -> None:
    """A unit's user must reach the program, which it does not below /root."""
    closed = [path for path in target.at(program).resolve().parents if not path.stat().st_mode & 1]
    if target.root == Path("/") and closed:
        terminal.fail(
            f"{closed[-1]} is closed to the users of the units: install FarmIQ below /opt/farmiq"
        )


def _enroll(answers: dict[str, str], target: "Target") -> dict[str, str]:
    """Register the edge's key; the code is good once and is not remembered."""
    from farmiq.edge.sync import enrolment
    from farmiq.install.engines import LIBRARY

    if not edge.is_safe(answers["cloud"]):
        terminal.fail(f"{answers['cloud']} is not https: the code would travel readable", code=2)
    file = target.at(LIBRARY / "farmiq-edge" / "edge-key.jwk")
    made = enrolment.enroll(answers["cloud"].rstrip("/"), answers["code"], file, tls=edge.tls())
    terminal.progress()(f"enrolled as {made['edge_cluster_id']} for {', '.join(made['tenants'])}")
    return {
        **answers,
        "code": "",
        "code_sha256": _sha256(answers["code"]),
        "name": made["edge_cluster_id"],
        "issuer": made["issuer"],
        "audience": made["audience"],
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _start(site: str, done: list[str], stale: list[str]) -> None:
    """Tell systemd; units that run and have changed, or whose code has, start again.

    In one call: systemd orders them, engines first, and the services after their preparation.
    """
    changed = [Path(text.split()[-1]).name for text in done if "/etc/systemd/system/" in text]
    _systemctl("daemon-reload")
    _systemctl("start", f"farmiq-{site}.target")
    again = dict.fromkeys([*(name for name in changed if name.endswith(".service")), *stale])
    if again:
        _systemctl("try-restart", *again)


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(  # noqa: S603
        ["/usr/bin/systemctl", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        terminal.fail(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}")


def _undo(site: str, target: "Target", *, purge: bool) -> int:
    from farmiq.install import steps
    from farmiq.install.sites import UNITS

    note = steps.read(target, site)
    if note is None:
        terminal.print_result(
            {"removed": [], "left": []}, f"no {site} is installed: nothing to undo"
        )
        return 0
    ours = [Path(made.name).name for made in note.made if Path(made.name).parent == UNITS]
    if target.is_live and ours:
        _systemctl("stop", *ours)
    gone, left = steps.undo(target, note, purge=purge)
    if target.is_live:
        _systemctl("daemon-reload")
    terminal.print_result(
        {"removed": gone, "left": left},
        *(f"removed {text}" for text in gone),
        *(f"left    {text}" for text in left),
        *(
            [f"data, keys and users are left: `farmiq install {site} --undo --purge` removes them"]
            if left
            else []
        ),
    )
    return 0


def _report(done: list[str], stale: list[str], plan: "Plan", *, tense: str) -> int:
    terminal.print_result(
        {"changed": done, "new_code": stale, "to_do": plan.to_do},
        *(f"{tense}{text}" for text in done),
        *(f"new code: {name} is started again if it runs" for name in stale),
        *(() if done or stale else ("nothing to change",)),
        *(f"to do: {text}" for text in plan.to_do),
    )
    return 3 if plan.to_do else 0
