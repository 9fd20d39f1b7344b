"""`farmiq upgrade check`: what an upgrade to this version would do."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from farmiq.upgrade import Finding, Outlook, Step

app = terminal.Group(
    "Upgrade a site while it runs; docs/operate/upgrade.md has the procedure.\n\n"
    "Install the new version beside the old one and ask it: `farmiq upgrade check edge`."
)
SITES = ("edge", "cloud")


@app.callback()
def group() -> None:
    """A group of one command so far: without this, the command would have no name."""


@app.command("check")
def check(
    site: Annotated[str, typer.Argument(help="edge, cloud or all.")] = "all",
    *,
    backup_hours: Annotated[
        float, typer.Option(min=0, help="How old the newest backup may be; 0: none is needed.")
    ] = 24.0,
) -> int:
    """Say what an upgrade to this version would do, and whether it can begin. Changes nothing.

    The code that runs now, the migrations before and after the new code, which tables they lock and
    how large those are, whether the post step would be refused, disk, backup, and the versions of
    the other sites. All of it as the owner of the tables: FARMIQ_EDGE_DB_ADMIN_URL,
    FARMIQ_CLOUD_DB_ADMIN_URL. `all` looks at those that are set.

    Exit code 0: go; 3: something has to be mended first; 1: it could not be looked at.
    """
    from farmiq import upgrade
    from farmiq.services import SQL

    terminal.check_known(site, (*SITES, "all"), f"there is no site {site!r}; choose")
    environment = terminal.environment()
    variables = {name: f"FARMIQ_{name.upper()}_DB_ADMIN_URL" for name in SITES}
    known = [name for name in SITES if environment.get(variables[name])]
    outlooks = []
    for name in (known or SITES[:1]) if site == "all" else [site]:
        seen = upgrade.look(name, terminal.needed(variables[name], environment), SQL[name])
        if backup_hours:
            newest = partial(_newest, name)
            seen.findings.append(upgrade.check_backup(newest, hours=backup_hours))
        if seen.revision:
            seen.findings.append(upgrade.check_skew(_others(name, environment)))
        seen.findings += _bus(name, environment)
        outlooks.append(seen)
    go = all(seen.go for seen in outlooks)
    document = {"go": go, "sites": {seen.site: seen.document() for seen in outlooks}}
    lines = [line for seen in outlooks for line in _lines(seen)]
    terminal.print_result(document, *lines, "go" if go else "not yet: mend what is marked first")
    return 0 if go else 3


def _lines(seen: "Outlook") -> list[str]:
    lines = [f"{seen.site}: to {seen.version}, schema {seen.revision or 'empty'} to {seen.target}"]
    lines += [f"  runs now     {code}" for code in seen.running] or ["  runs now     nothing"]
    lines += [f"  {step.phase:<4}         {step.name}{_locked(step)}" for step in seen.steps]
    for finding in seen.findings:
        mark = "good" if finding.go else "STOP"
        lines.append(f"  {mark}  {finding.name:<12}  {finding.detail}")
        if finding.remedy:
            lines.append(f"  {'':<18}  {finding.remedy}")
    return lines


def _locked(step: "Step") -> str:
    words = [
        f"{lock.table} ({lock.size_bytes / 1e6:,.1f} MB) blocks {lock.blocks}"
        + (f", {' and '.join(lock.work)}" if lock.work else "")
        for lock in step.locks
    ]
    return f": {'; '.join(words)}" if words else ""


def _newest(site: str) -> "datetime | None":
    from farmiq.cli import backup
    from farmiq.config import SettingsError
    from farmiq.plumbing.backup import database, repository, sealed
    from farmiq.plumbing.sealing import SealError

    try:
        bases = database.bases(backup.site_of(site).repository)
    except (
        SettingsError, SealError, sealed.UnsealError, OSError, repository.RepositoryError
    ) as error:  # fmt: skip
        raise RuntimeError(f"it cannot be looked for: {str(error).splitlines()[0]}") from error
    return max((base.ended_at for base in bases), default=None)


def _others(site: str, environment: "Mapping[str, str]") -> list[tuple[str, str, int | None]]:
    """Who this site talks to, and what they run: the cloud as it answers, others as they said."""
    if site == "cloud":
        query = (
            "select edge_cluster_id, max(versions ->> 'farmiq') as version, "
            "max(versions ->> 'contract') as contract from edge_heartbeats group by 1 order by 1"
        )
        return [
            (
                f"edge {row['edge_cluster_id']}",
                row["version"] or "an unknown version",
                int(row["contract"]) if row["contract"] else None,
            )
            for row in terminal.rows(terminal.CLOUD_OWNER, query)
        ]
    query = (
        "select coalesce(firmware_version, 'an unknown version') as version, count(*) as count "
        "from devices join device_state using (tenant_id, device_id) "
        "where kind = 'station' and revoked_at is null group by 1 order by 1"
    )
    agents: list[tuple[str, str, int | None]] = [
        (f"{row['count']} stations", row["version"], None)
        for row in terminal.rows("FARMIQ_EDGE_DB_ADMIN_URL", query)
    ]
    return agents + _cloud(environment)


def _cloud(environment: "Mapping[str, str]") -> list[tuple[str, str, int | None]]:
    if not environment.get("FARMIQ_CLOUD_URL"):
        return []
    import httpx2

    from farmiq.config import EdgeSettings

    url = environment["FARMIQ_CLOUD_URL"].rstrip("/")
    tls = EdgeSettings.load_some(environment).tls
    try:
        context = tls.client() if url.startswith("https") else True
        answer = httpx2.get(f"{url}/version", timeout=5, verify=context).json()
        return [("the cloud", str(answer["version"]), answer.get("contract"))]
    except (httpx2.HTTPError, ValueError, KeyError):
        return [("the cloud", "an unknown version: it does not answer", None)]


def _bus(site: str, environment: "Mapping[str, str]") -> "list[Finding]":
    """What `farmiq topology apply` would do, where the bus may be asked."""
    if site != "cloud" or not environment.get("FARMIQ_RABBITMQ_API_URL"):
        return []
    from farmiq.cli import topology
    from farmiq.upgrade import Finding

    differences = topology.compare(environment)
    actions = [difference.action for difference in differences]
    if conflicts := [
        difference.name for difference in differences if difference.action == "conflict"
    ]:
        remedy = "docs/operate/bus.md says what to do about a conflict"
        return [Finding("bus", False, f"{conflicts[0]} is there in another form", remedy)]
    added, removed = actions.count("create") + actions.count("change"), actions.count("remove")
    detail = f"{added} to add before the new code (`farmiq topology apply --phase pre`), "
    return [Finding("bus", True, f"{detail}{removed} to remove afterwards (`--phase post`)")]
