"""`farmiq alert …` of the cloud: episodes, rules, trying a rule, maintenance windows."""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.messages.alerts import AlertRule
    from farmiq.plumbing import db

T = TypeVar("T")
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
RuleId = Annotated[str, typer.Argument(help="rule_id, as `farmiq alert rules` prints it.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")]

_TEXT = str | None
# Fields of a rule, by the name of the option.
RULE: terminal.Options = {
    "signal": (
        Annotated[_TEXT, typer.Option(help="What it looks at, such as telemetry.temperature.")],
        None,
    ),
    "condition": (
        Annotated[_TEXT, typer.Option(help="above, below, rises, falls, differs or absent.")],
        None,
    ),
    "threshold": (Annotated[float | None, typer.Option(help="The limit.")], None),
    "clear": (
        Annotated[float | None, typer.Option(help="It is over on this side; default: threshold.")],
        None,
    ),
    "for_": (
        Annotated[_TEXT, typer.Option("--for", help="True for so long, such as 10m or 2h.")],
        None,
    ),
    "clear_for": (Annotated[_TEXT, typer.Option(help="Over for so long; default 5m.")], None),
    "window": (Annotated[_TEXT, typer.Option(help="With rises and falls: within so long.")], None),
    "baseline": (
        Annotated[_TEXT, typer.Option(help="standard (of the breed) or same_hour.")],
        None,
    ),
    "severity": (Annotated[_TEXT, typer.Option(help="info, warning or critical.")], None),
    "name": (Annotated[_TEXT, typer.Option(help="What people call it.")], None),
    "farm": (Annotated[_TEXT, typer.Option(help="Only this farm.")], None),
    "barn": (Annotated[_TEXT, typer.Option(help="Only this barn.")], None),
    "device": (Annotated[_TEXT, typer.Option(help="Only this device.")], None),
    "species": (Annotated[_TEXT, typer.Option(help="Only with these animals, by comma.")], None),
    "min_age": (Annotated[int | None, typer.Option(help="From this age on, in days.")], None),
    "max_age": (Annotated[int | None, typer.Option(help="Up to this age, in days.")], None),
    "enable": (Annotated[bool, typer.Option("--enable", help="Switch it on.")], False),
    "disable": (Annotated[bool, typer.Option("--disable", help="Switch it off.")], False),
}
_FIELDS = {
    "for_": "for_s", "clear_for": "clear_for_s", "window": "window_s", "farm": "farm_id",
    "barn": "barn_id", "device": "device_id", "min_age": "min_age_days", "max_age": "max_age_days",
}  # fmt: skip
_DURATIONS = ("for_s", "clear_for_s", "window_s")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def add_to(app: terminal.Group) -> None:
    """Add the commands of the cloud to `farmiq alert`."""
    app.command("episodes")(episodes)
    app.command("ack")(acknowledge)
    app.command("end")(end)
    app.command("rules")(rules)
    app.command("rule-set", options=RULE)(rule_set)
    app.command("rule-rm")(rule_remove)
    app.command("try", options=RULE)(try_)
    app.add_typer(windows, name="window")


def _of_company(
    work: "Callable[[db.Connection], Awaitable[T]]", tenant: str
) -> "Callable[[db.Connection], Awaitable[T]]":
    """`work`, if there is such a company: a wrong name is not a farm where all is well."""

    async def checked(tx: "db.Connection") -> T:
        query = "select from companies where tenant_id = %s"
        if (await tx.execute(query, (tenant,))).rowcount == 0:
            terminal.fail(f"there is no company {tenant!r}; `farmiq company ls` lists them")
        return await work(tx)

    return checked


# --- episodes


def episodes(
    *,
    tenant: Tenant,
    state: Annotated[
        str | None,
        typer.Option(help="open, active, acknowledged, resolved or withdrawn; default: all."),
    ] = None,
    severity: Annotated[
        str | None, typer.Option(help="info, warning, critical or security.")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Only of this rule.")] = None,
    farm: Annotated[str | None, typer.Option(help="Only this farm's.")] = None,
    barn: Annotated[str | None, typer.Option(help="Only this barn's.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device's.")] = None,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Where the page before ended (its next_cursor).")
    ] = None,
) -> int:
    """List what was wrong in the cloud, newest first. Exit code 3: something is open."""
    from farmiq import api
    from farmiq.cloud.alerts.episodes import queries
    from farmiq.cloud.alerts.models import AlertEpisode, EpisodeFilter

    query = terminal.query(
        EpisodeFilter, state=state, severity=severity, rule=rule, farm=farm, barn=barn,
        device=device, limit=limit, cursor=cursor,
    )  # fmt: skip
    page = terminal.in_transaction(
        _of_company(lambda tx: queries.page(tx, tenant, query.page()), tenant), terminal.CLOUD
    )
    rows, following = api.cut(page, limit, at="opened_at", key="episode_id")
    terminal.print_cursor_page(
        rows,
        following,
        _episode_cells,
        name="alerts",
        shown=lambda row: AlertEpisode(**row).model_dump(mode="json"),
        empty="nothing was wrong",
    )
    return 3 if any(row["state"] in ("active", "acknowledged") for row in rows) else 0


EpisodeId = Annotated[str, typer.Argument(help="As `farmiq alert episodes` prints it.")]
EpisodeNote = Annotated[str | None, typer.Option(help="What others should know.")]


def acknowledge(episode_id: EpisodeId, *, tenant: Tenant, note: EpisodeNote = None) -> None:
    """Say that you look after an episode: nobody else is called."""
    from farmiq.cloud import episodes as shared

    _change_episode(shared.acknowledge, episode_id, tenant=tenant, note=note, refused="ended")


def end(episode_id: EpisodeId, *, tenant: Tenant, note: EpisodeNote = None) -> None:
    """Say that an episode is over, whatever its values are.

    Its rule opens another one when the values were clear and are bad again.
    """
    from farmiq.cloud import episodes as shared

    _change_episode(shared.end, episode_id, tenant=tenant, note=note, refused="already")


def _change_episode(
    change: "Callable[..., Awaitable[str | None]]",
    episode_id: str,
    *,
    tenant: str,
    note: str | None,
    refused: str,
) -> None:
    from farmiq.cloud import episodes as shared

    wanted = terminal.check_uuid(episode_id, "is no episode_id")
    if note is not None and len(note) > shared.MAX_NOTE:
        terminal.fail(f"--note has more than {shared.MAX_NOTE} characters", code=2)

    async def work(tx: "db.Connection") -> str | None:
        return await change(tx, tenant, wanted, by=terminal.actor(), note=note)

    outcome = terminal.in_transaction(work, terminal.CLOUD)
    if outcome is None:
        terminal.fail(f"tenant {tenant} has no episode {episode_id}")
    if outcome == refused:
        terminal.fail("the episode is over")
    terminal.print_result({"episode_id": episode_id, "outcome": outcome}, outcome)


def _episode_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ended = f" to {terminal.local(row['resolved_at'])}" if row["resolved_at"] else ""
    about = "" if row["paged_at"] or row["state"] != "active" else "  (nobody was called)"
    held = f"  (held by {row['held_by']})" if row["held_by"] else about
    return (
        str(row["episode_id"]),
        row["severity"],
        row["state"],
        f"{terminal.local(row['opened_at'])}{ended}{held}\n    {row['subject']}: {row['message']}",
    )


# --- rules


def rules(
    *,
    tenant: Tenant,
    own: Annotated[bool, typer.Option("--own", help="Only what the company set itself.")] = False,
) -> None:
    """List the rules that are in force, each as a sentence."""
    from farmiq.cloud.alerts.episodes import queries

    everything = terminal.in_transaction(
        _of_company(lambda tx: queries.all_rules(tx, tenant), tenant), terminal.CLOUD
    )
    rows = [row for row in everything if not (own and row["is_default"])]
    terminal.print_list(rows, _rule_cells, document={"rules": rows}, empty="no own rules")


def rule_set(rule_id: RuleId, *, tenant: Tenant, **given: Any) -> None:
    """Add a rule, or change fields of one; of one that ships with the product too.

    `farmiq alert rule-set barn3-hot --signal telemetry.temperature --condition above --threshold 30
    --for 10m --barn 3 --severity critical --tenant t-001`
    """
    from farmiq.cloud.alerts.episodes import queries

    async def work(tx: "db.Connection") -> dict[str, Any] | None:
        rule = await _rule(tx, tenant, rule_id, given)
        await queries.set_rule(tx, tenant, rule, actor=terminal.actor())
        return await queries.rule(tx, tenant, rule_id)

    row = terminal.in_transaction(work, terminal.CLOUD)
    assert row is not None  # noqa: S101 - it was just set
    terminal.print_result(row, "  ".join(_rule_cells(row)))


def rule_remove(rule_id: RuleId, *, tenant: Tenant) -> None:
    """Remove a rule; one that ships under the same id is in force again."""
    from farmiq.cloud.alerts.episodes import queries

    async def work(tx: "db.Connection") -> bool:
        return await queries.remove_rule(tx, tenant, rule_id, actor=terminal.actor())

    try:
        removed = terminal.in_transaction(work, terminal.CLOUD)
    except queries.RejectedError as error:
        terminal.fail(str(error))
    if not removed:
        terminal.fail(f"tenant {tenant} has no rule {rule_id}")
    terminal.print_result({"removed": rule_id}, f"{rule_id} removed")


def try_(
    rule_id: Annotated[
        str, typer.Argument(help="A rule that exists; options change it. Or any new id.")
    ] = "try",
    *,
    tenant: Tenant,
    days: Annotated[int, typer.Option(min=1, max=7, help="Over so many days.")] = 7,
    **given: Any,
) -> None:
    """Show the episodes that a rule would have made; nothing is changed."""
    from dataclasses import asdict

    from farmiq.cloud.alerts import dry_run
    from farmiq.farm.alerts import rules as farm_rules

    async def work(tx: "db.Connection") -> tuple["AlertRule", dry_run.Trial]:
        rule = await _rule(tx, tenant, rule_id, given)
        return rule, await dry_run.try_rule(tx, tenant, rule, days=days)

    rule, trial = terminal.in_transaction(work, terminal.CLOUD)
    sentence = farm_rules.sentence(rule)
    count = len(trial.episodes)
    terminal.print_result(
        {"sentence": sentence, **asdict(trial)},
        f"{sentence}: {count} in {days} days, of {trial.series_count} series",
        *("  ".join(_tried_cells(row)) for row in trial.episodes),
        f"values from {terminal.local(trial.values_from, absent='never')} on",
        *([] if trial.is_whole else ["there was too much to look at: episodes may be missing"]),
    )


def _tried_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ended = terminal.local(row["resolved_at"], absent="open")
    return terminal.local(row["opened_at"]), ended, row["subject"], row["message"]


async def _rule(
    tx: "db.Connection", tenant_id: str, rule_id: str, given: Mapping[str, Any]
) -> "AlertRule":
    """The rule of this id with the given fields changed. Fails with all that is wrong."""
    import msgspec

    from farmiq.cloud.alerts.episodes import queries
    from farmiq.farm.alerts import rules as farm_rules
    from farmiq.messages.alerts import AlertRule

    known = await queries.rule(tx, tenant_id, rule_id)
    names = {field.name for field in msgspec.structs.fields(AlertRule)}
    fields = {name: value for name, value in (known or {}).items() if name in names}
    fields |= {"rule_id": rule_id, **_given(given)}
    for needed in ("signal", "condition"):
        if needed not in fields:
            terminal.fail(f"there is no rule {rule_id} yet: a new one needs --{needed}", code=2)
    try:
        rule = msgspec.convert(fields, AlertRule)
    except msgspec.ValidationError as error:
        terminal.fail(str(error), code=2)
    if problems := farm_rules.problems(rule):
        terminal.fail("\n".join(f"{field}: {reason}" for field, reason in problems), code=2)
    return rule


def _given(given: Mapping[str, Any]) -> dict[str, Any]:
    switch = {"enabled": given["enable"]} if given["enable"] or given["disable"] else {}
    fields = switch | {
        _FIELDS.get(option, option): value
        for option, value in given.items()
        if value is not None and option not in ("enable", "disable")
    }
    fields |= {name: seconds(fields[name]) for name in _DURATIONS if name in fields}
    if "species" in fields:
        fields["species"] = [name.strip() for name in fields["species"].split(",")]
    return fields


def seconds(text: str) -> int:
    """A duration such as 90, 90s, 10m, 2h or 1d; fails for anything else."""
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", text.strip())
    if match is None:
        terminal.fail(f"{text!r} is no duration such as 90s, 10m or 2h", code=2)
    return int(match[1]) * _UNITS[match[2]]


def _rule_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    off = "" if row["enabled"] else "  (switched off)"
    return row["rule_id"], row["severity"], f"{row['sentence']}{off}"


# --- maintenance windows

windows = terminal.Group("Maintenance: hold back calls for a while. Needs FARMIQ_CLOUD_DB_URL.")


@windows.command("add")
def window_add(
    *,
    tenant: Tenant,
    for_: Annotated[str, typer.Option("--for", help="So long, such as 2h.")],
    reason: Annotated[str, typer.Option(help="Why.")],
    start: Annotated[
        str | None, typer.Option("--from", help="Not before this time (RFC 3339); default: now.")
    ] = None,
    farm: Annotated[str | None, typer.Option(help="Only this farm.")] = None,
    barn: Annotated[str | None, typer.Option(help="Only this barn.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device.")] = None,
    edge: Annotated[str | None, typer.Option(help="Only this edge.")] = None,
    rule: Annotated[str | None, typer.Option(help="Only this rule.")] = None,
) -> None:
    """Call nobody about what is in the scope for a while; episodes are recorded."""
    import msgspec

    from farmiq.cloud.alerts.api import window_problem
    from farmiq.cloud.alerts.episodes import queries
    from farmiq.cloud.alerts.models import WindowValues

    try:
        begin_at = datetime.fromisoformat(start) if start else datetime.now(UTC)
    except ValueError:
        terminal.fail(f"--from {start!r} is not a time such as 2026-05-31T06:00:00Z", code=2)
    if begin_at.tzinfo is None:
        terminal.fail("--from has no zone: end it with Z", code=2)
    begin_at = begin_at.astimezone(UTC)
    end_at = begin_at + timedelta(seconds=seconds(for_))
    values = {
        "begin_at": begin_at,
        "end_at": end_at,
        "reason": reason,
        "farm_id": farm,
        "barn_id": barn,
        "device_id": device,
        "edge_cluster_id": edge,
        "rule_id": rule,
    }
    try:
        msgspec.convert(values, WindowValues)
    except msgspec.ValidationError as error:
        terminal.fail(str(error), code=2)
    if problem := window_problem(begin_at, end_at):
        terminal.fail(f"--for: end_at {problem}", code=2)

    async def work(tx: "db.Connection") -> dict[str, Any]:
        return await queries.add_window(tx, tenant, values, actor=terminal.actor())

    row = terminal.in_transaction(work, terminal.CLOUD)
    terminal.print_result(row, "  ".join(_window_cells(row)))


@windows.command("ls")
def window_ls(*, tenant: Tenant, limit: Limit = 100) -> None:
    """List windows that are open or to come."""
    from farmiq.cloud.alerts.episodes import queries

    wanted = {"current": True, "after_at": None, "after_id": None, "limit": limit}
    rows = terminal.in_transaction(lambda tx: queries.windows(tx, tenant, wanted), terminal.CLOUD)
    terminal.print_list(rows, _window_cells, document={"windows": rows}, empty="none is open")


@windows.command("rm")
def window_rm(
    window_id: Annotated[str, typer.Argument(help="As `farmiq alert window ls` prints it.")],
    *,
    tenant: Tenant,
) -> None:
    """End a window now."""
    from farmiq.cloud.alerts.episodes import queries

    wanted: UUID = terminal.check_uuid(window_id, "is no window_id")

    async def work(tx: "db.Connection") -> bool:
        return await queries.remove_window(tx, tenant, wanted, actor=terminal.actor())

    if not terminal.in_transaction(work, terminal.CLOUD):
        terminal.fail(f"tenant {tenant} has no window {window_id}")
    terminal.print_result({"removed": window_id}, "ended")


def _window_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("farm_id", "barn_id", "device_id", "edge_cluster_id", "rule_id")
    scope = " ".join(str(row[name]) for name in names if row[name])
    return (
        str(row["window_id"]),
        f"{terminal.local(row['begin_at'])} to {terminal.local(row['end_at'])}",
        scope or "everything",
        str(row["reason"]),
    )
