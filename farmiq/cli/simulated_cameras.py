"""`farmiq simulate cameras` and `farmiq simulate check-cameras`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from farmiq.cli import terminal

_FAULTS = "Faults (shares from 0 to 1)"
_FLEET = "The fleet"


def _rate(words: str) -> Any:
    return typer.Option(min=0, max=1, help=words, rich_help_panel=_FAULTS)


def cameras(
    *,
    count: Annotated[int, typer.Option(min=1, max=2000, rich_help_panel=_FLEET)] = 20,
    dialect: Annotated[
        str, typer.Option(help="standard, esp32cam or both.", rich_help_panel=_FLEET)
    ] = "both",
    encoding: Annotated[
        str,
        typer.Option(help="Of chunks: array, base64, binary or all.", rich_help_panel=_FLEET),
    ] = "all",
    seed: Annotated[
        int,
        typer.Option(
            help="Another seed is another fleet; 1 is the demo's.", rich_help_panel=_FLEET
        ),
    ] = 2,
    register: Annotated[
        str | None,
        typer.Option(
            help="Tenant in whose registry the cameras are put first, at sites in three zones.",
            rich_help_panel=_FLEET,
        ),
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            help="Of cameras that --register puts there, as cron; several take turns. "
            "Default: every two hours.",
            rich_help_panel=_FLEET,
        ),
    ] = None,
    logins: Annotated[
        Path | None,
        typer.Option(
            help='{"cameras": [{"mac", "user", "password"}]}; else the address says the login.',
            rich_help_panel=_FLEET,
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(min=0, help="Seconds between wakes; 0: as the cloud answers."),
    ] = 5.0,
    wakes: Annotated[int | None, typer.Option(min=1, help="So many wakes of each.")] = None,
    seconds: Annotated[float | None, typer.Option(help="How long; default: until Ctrl-C.")] = None,
    spread: Annotated[
        float, typer.Option(min=0, help="Seconds within which they first wake; 0: all at once.")
    ] = 0.0,
    qos: Annotated[int, typer.Option(min=0, max=1, help="0: nobody says what arrived.")] = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Firmware that sends old images only when asked.")
    ] = False,
    all_faults: Annotated[
        bool, typer.Option("--all-faults", help="A bit of each.", rich_help_panel=_FAULTS)
    ] = False,
    loss: Annotated[float, _rate("Of chunks, lost.")] = 0.0,
    duplicates: Annotated[float, _rate("Of chunks, sent twice.")] = 0.0,
    reorder: Annotated[float, _rate("Of transmissions, chunks in any order.")] = 0.0,
    deaths: Annotated[float, _rate("Of wakes, ended in the middle of an image.")] = 0.0,
    drifting: Annotated[float, _rate("Of cameras: a clock up to four minutes off.")] = 0.0,
    lost_clocks: Annotated[float, _rate("Of cameras: a clock that began in 1970.")] = 0.0,
    same_names: Annotated[float, _rate("Of cameras: every image is IMG_001.jpg.")] = 0.0,
    weak: Annotated[float, _rate("Of cameras: a battery that runs low.")] = 0.0,
    looping: Annotated[float, _rate("Of cameras: a firmware loop.")] = 0.0,
    loop_wakes: Annotated[
        int, typer.Option(min=0, help="Extra wakes of a loop.", rich_help_panel=_FAULTS)
    ] = 200,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where cards and captures.jsonl, the journal, are kept."),
    ] = None,
    witness: Annotated[
        bool,
        typer.Option("--witness", help="Read back each image in the moment it is acknowledged."),
    ] = False,
) -> int:
    """Simulate battery cameras over real MQTT: they wake, send an image in chunks, and sleep.

    Their firmware is fixed and knows two dialects (device/{mac}/… and ESP32CAM/{mac}/…). An image
    stays on a camera's card until ACK_OK. Publishes to FARMIQ_CAMERAS_MQTT_URL (the running
    demo's). Try: --count 200 --loss 0.3 --wakes 1 --register hillside --dir fleet; then
    `farmiq simulate check-cameras --dir fleet`. Exit code 3: images still wait on the cards;
    1: an image was acknowledged that could not be read back.
    """
    from farmiq.lab.simulate import camera_faults, camera_wire, runner
    from farmiq.lab.simulate.camera import Firmware
    from farmiq.lab.simulate.fleet import Timing
    from farmiq.plumbing import log

    log.configure("error")
    environment = terminal.environment()
    url = terminal.needed("FARMIQ_CAMERAS_MQTT_URL", environment)
    faults = camera_faults.Faults(
        loss=loss, duplicates=duplicates, reorder=reorder, deaths=deaths, drifting=drifting,
        lost_clocks=lost_clocks, same_names=same_names, weak=weak, looping=looping,
    )  # fmt: skip
    faults = camera_faults.seeded(
        camera_faults.ALL if all_faults else faults, seed=seed, loop_wakes=loop_wakes
    )
    kits = camera_faults.fleet(
        count,
        faults=faults,
        dialects=_chosen(dialect, "both", camera_wire.DIALECTS),
        encodings=_chosen(encoding, "all", camera_wire.ENCODINGS),
    )
    known = runner.read_camera_logins(logins) if logins else None
    if register is not None:
        _register(kits, register, schedule)
    if register is not None and known is None and "@" not in url:
        known = _log_in(kits, register, folder)
    plan = runner.Plan(
        faults=faults,
        timing=Timing(every_s=every or None, qos=qos),
        firmware=Firmware(volunteers=not strict),
        wakes=wakes,
        seconds=seconds,
        spread_s=spread,
    )
    summary = asyncio.run(
        runner.run_cameras(
            kits,
            url,
            folder,
            plan,
            say=terminal.progress(),
            witness=_cloud(environment).witness if witness else None,
            logins=known,
        )
    )
    terminal.print_result(
        summary,
        f"{summary['cameras']} cameras woke {summary['wakes']} times: {summary['captured']} images "
        f"captured, {summary['acked']} acknowledged, {summary['waiting']} wait"
        + (f" ({summary['stranded']} of them nobody can ask for)" if summary["stranded"] else "")
        + f"; "
        f"{summary['deaths']} deaths, {summary['unreadable']} acknowledged and not readable",
    )
    return 1 if summary["unreadable"] else 3 if summary["waiting"] else 0


def check_cameras(
    *,
    folder: Annotated[Path, typer.Option("--dir", help="The folder of `simulate cameras`.")],
) -> int:
    """Compare what simulated cameras captured with the cloud's database and store.

    Every image complete and byte for byte, each wake counted once, nothing lost, twice or
    invented, nothing acknowledged that cannot be read back. Exit code 1 if something is wrong, 3 if
    images still wait on the cards. Needs FARMIQ_CLOUD_DB_URL and FARMIQ_CLOUD_S3_URL (the
    running demo's).
    """
    journal = folder / "captures.jsonl"
    if not journal.exists():
        terminal.fail(f"{journal} does not exist: `farmiq simulate cameras --dir` makes it", code=2)
    account = asyncio.run(_cloud(terminal.environment()).report(journal))
    findings = account.findings
    terminal.print_result(
        account.as_json(),
        f"captured {findings.sent}, complete {findings.stored}, waiting {account.waiting}; "
        f"lost {len(findings.lost)}, twice {len(findings.twice)}, "
        f"invented {len(findings.invented)}, changed {len(findings.changed)}, "
        f"acknowledged and not readable {len(account.unreadable)}, "
        f"sessions miscounted {len(account.miscounted)}",
    )
    return 1 if not account.clean else 3 if account.waiting else 0


def _chosen(word: str, every: str, known: Any) -> Any:
    if word == every:
        return known
    if word not in known:
        terminal.fail(f"{word} is none of {', '.join(known)}, {every}", code=2)
    return (word,)


def _register(kits: Any, tenant: str, schedules: list[str] | None) -> None:
    from farmiq.lab.simulate import camera_account

    with terminal.connect(terminal.CLOUD) as connection:
        new = camera_account.register(
            connection, kits, tenant_id=tenant, schedules=schedules or camera_account.SCHEDULES
        )
    if not terminal.wants_json():
        typer.echo(f"{new} cameras registered for {tenant}, {len(kits) - new} were known")


def _log_in(kits: Any, tenant: str, folder: Path | None) -> dict[str, tuple[str, str]]:
    """New logins for all; older ones of these cameras end, those of other companies too."""
    import json

    from farmiq.cloud.camera import registration

    async def make(tx: Any) -> dict[str, tuple[str, str]]:
        by = terminal.actor()
        return {
            kit.mac: (
                kit.mac,
                await registration.make_login(tx, kit.mac, made_by=by, tenant_id=tenant, move=True),
            )
            for kit in kits
        }

    made = terminal.in_transaction(make, terminal.CLOUD)
    if folder is not None:
        rows = [{"mac": mac, "user": user, "password": word} for mac, (user, word) in made.items()]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "logins.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"cameras": rows}, indent=1), encoding="utf-8")
    return made


def _cloud(environment: Any) -> Any:
    from farmiq.lab.simulate.camera_account import Cloud
    from farmiq.plumbing.storage.objects import Bucket

    return Cloud(
        terminal.needed("FARMIQ_CLOUD_DB_URL", environment),
        Bucket(terminal.needed("FARMIQ_CLOUD_S3_URL", environment)),
    )
