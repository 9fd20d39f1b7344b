"""`farmiq edge`: how edges become known to the cloud, and stop being so."""

import getpass
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "Edges and the keys by which the cloud knows them.\n\n"
    "In the cloud (they need FARMIQ_CLOUD_DB_ADMIN_URL): `invite` prints a code that is good once; "
    "`add-tenant` lets a known edge speak for a further tenant; `ls` and `show` say which edges "
    "there are and how they are; `revoke` ends a key within seconds.\n\n"
    "At the edge: `enroll` makes its key and registers it with the code; `rotate` replaces it. The "
    "private key never leaves the edge. docs/operate/enrolment.md tells it from the beginning.",
)

Cluster = Annotated[str, typer.Argument(help="edge_cluster_id, such as hill-farm-1.")]


@app.command()
def invite(
    *,
    cluster: Annotated[
        str, typer.Option("--cluster", help="edge_cluster_id that the edge will have.")
    ],
    tenant: Annotated[
        list[str], typer.Option("--tenant", help="Tenant that it speaks for; repeatable.")
    ],
    hours: Annotated[
        float, typer.Option(min=0.01, max=720, help="How long the code is good.")
    ] = 24,
) -> None:
    """Make a code with which one edge may register its key, once. It is printed this once.

    Give it to the person at the edge: `farmiq edge enroll --cloud URL --code CODE`. It may be
    asked for again for an edge that is known: it then gets a further key. It is audited.
    """
    from datetime import timedelta

    from farmiq.cloud.edges import registry

    for name in (cluster, *tenant):
        terminal.check_id(name)
    code, until = terminal.in_transaction(
        lambda tx: registry.invite(
            tx, cluster, tenant, lasts=timedelta(hours=hours), actor=_actor()
        ),
        terminal.CLOUD_OWNER,
    )
    terminal.print_result(
        {"code": code, "edge_cluster_id": cluster, "tenants": tenant, "expires_at": until}, code
    )
    terminal.progress()(
        f"good once, until {terminal.local(until)}, for edge {cluster} of {', '.join(tenant)}"
    )


@app.command()
def enroll(
    *,
    cloud: Annotated[
        str, typer.Option("--cloud", envvar="FARMIQ_CLOUD_URL", help="Such as https://cloud.farm.")
    ],
    code: Annotated[
        str, typer.Option("--code", prompt=True, help="As `farmiq edge invite` printed it.")
    ],
    key_file: Annotated[
        Path,
        typer.Option(
            "--key-file",
            envvar="FARMIQ_EDGE_KEY_FILE",
            help="Where the private key goes (0600); one that is there is used, never replaced.",
        ),
    ] = Path("edge-key.jwk"),
    algorithm: Annotated[
        Literal["Ed25519", "RS256"],
        typer.Option(help="Of a key that is made; RS256 where a gateway checks nothing else."),
    ] = "Ed25519",
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Send the code without TLS, beyond this machine.")
    ] = False,
) -> None:
    """Make this edge's key and register its public part with the cloud.

    Prints the settings that the edge's services then need. If the answer gets lost, run it again
    with the same code and file.
    """
    from farmiq.edge.sync import enrolment

    if not plain_http and not is_safe(cloud):
        terminal.fail(
            f"{cloud} is not https: the code would travel readable (--plain-http)", code=2
        )
    made = enrolment.enroll(cloud.rstrip("/"), code, key_file, tls=tls(), algorithm=algorithm)
    settings = {
        "FARMIQ_CLOUD_URL": cloud.rstrip("/"),
        "FARMIQ_EDGE_CLUSTER_ID": made["edge_cluster_id"],
        "FARMIQ_EDGE_KEY_FILE": str(key_file.absolute()),
        "FARMIQ_TOKEN_ISSUER": made["issuer"],
        "FARMIQ_TOKEN_AUDIENCE": made["audience"],
    }
    terminal.progress()(
        f"enrolled as {made['edge_cluster_id']} for {', '.join(made['tenants'])}, key "
        f"{made['key_id']}; put this into the edge's settings:"
    )
    terminal.print_result(
        {**made, "settings": settings}, *(f'{name}="{value}"' for name, value in settings.items())
    )


@app.command()
def rotate(
    *,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=720, help="How long the old key stays good as well.")
    ] = 24,
) -> None:
    """Replace this edge's key; services that run find the new one by themselves within minutes.

    Reads FARMIQ_CLOUD_URL, FARMIQ_EDGE_KEY_FILE and FARMIQ_EDGE_CLUSTER_ID, as the services do.
    With another machine of the same edge, copy the new file there within the overlap.
    """
    from farmiq.config import EdgeSettings
    from farmiq.edge.sync import enrolment

    environment = terminal.environment()
    for name in ("FARMIQ_CLOUD_URL", "FARMIQ_EDGE_KEY_FILE"):
        terminal.needed(name, environment)
    settings = EdgeSettings.load_some(environment)
    made = enrolment.rotate(settings, overlap_hours=overlap_hours, tls=tls())
    old_key_until = terminal.local(made["old_key_until"])
    terminal.print_result(
        made, f"new key {made['key_id']}; the old one is good until {old_key_until}"
    )


@app.command("add-tenant")
def add_tenant(
    cluster: Cluster,
    *,
    tenant: Annotated[
        list[str], typer.Option("--tenant", help="Further tenant that it speaks for; repeatable.")
    ],
    key: Annotated[str | None, typer.Option(help="Only this key, as `show` names it.")] = None,
) -> None:
    """Let an edge that is known speak for a further tenant, with the key that it has.

    Nothing has to be done at the edge: it sends that tenant's events within half a minute. It is
    audited.
    """
    from farmiq.cloud.edges import registry

    for name in (cluster, *tenant):
        terminal.check_id(name)
    added = terminal.in_transaction(
        lambda tx: registry.add_tenants(tx, cluster, tenant, key_id=key, actor=_actor()),
        terminal.CLOUD_OWNER,
    )
    lines = [f"key {key_id} of {cluster} speaks for {tenant_id} now" for key_id, tenant_id in added]
    terminal.print_result(
        {"added": _keys(added)}, *(lines or [f"{cluster} speaks for {', '.join(tenant)} already"])
    )


@app.command()
def revoke(
    cluster: Cluster,
    *,
    tenant: Annotated[str | None, typer.Option(help="Only for this tenant.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, as `show` names it.")] = None,
) -> None:
    """End an edge's keys and its open invitations; tokens are refused within seconds.

    Nothing is lost: the edge raises an alert and keeps what it has until it is let in again, by
    another invitation. It is audited.
    """
    from farmiq.cloud.edges import registry

    ended = terminal.in_transaction(
        lambda tx: registry.revoke(tx, cluster, tenant_id=tenant, key_id=key, actor=_actor()),
        terminal.CLOUD_OWNER,
    )
    lines = (f"revoked {key_id} for {tenant_id}" for key_id, tenant_id in ended)
    terminal.print_result({"revoked": _keys(ended)}, *lines)
    if not ended:
        terminal.fail(f"no good key of {cluster!r} fits; `farmiq edge show {cluster}` shows them")


@app.command("ls")
def ls() -> int:
    """List the edges by tenant: keys, when they were last heard, what waits there.

    Exit code 3: one that has a good key is silent.
    """
    from farmiq.cloud.edges import registry

    edges = terminal.in_transaction(registry.list_edges, terminal.CLOUD_OWNER)
    empty = "`farmiq edge invite` makes a code for an edge"
    terminal.print_list(edges, _cells, empty=empty)
    return 3 if any(edge["state"] == "silent" and _good(edge) for edge in edges) else 0


@app.command()
def show(cluster: Cluster) -> None:
    """Show one edge: its keys, what it last said of itself, and what was done to it."""
    from farmiq.cloud.edges import registry

    async def look(tx: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return (
            await registry.list_edges(tx, edge_cluster_id=cluster),
            await registry.actions(tx, cluster),
        )

    edges, done = terminal.in_transaction(look, terminal.CLOUD_OWNER)
    if not edges and not done:
        terminal.fail(f"there is no edge {cluster!r}; `farmiq edge ls` lists them")
    lines: list[str] = []
    for edge in edges:
        lines.append("  ".join(_cells(edge)).rstrip())
        for key in edge["keys"]:
            state = "good" if key["good"] else "revoked" if key["revoked_at"] else "over"
            since = terminal.local(key["enrolled_at"])
            lines.append(f"  key {key['key_id']}  {state}  since {since}")
        lines += terminal.fields(edge["heartbeat"] or {}, indent="  ")
    lines += [
        f"{terminal.local(entry['at'])}  {entry['action']:<7} {entry['tenant_id']}  "
        f"by {entry['actor']}  {entry['key_id'] or ''}"
        for entry in done
    ]
    terminal.print_result({"edge_cluster_id": cluster, "tenants": edges, "actions": done}, *lines)


def _cells(edge: dict[str, Any]) -> tuple[str, ...]:
    heartbeat = edge["heartbeat"]
    how = (
        f"heard {terminal.local(heartbeat['received_at'])}  waiting {heartbeat['waiting']}  "
        f"dlq {heartbeat['dlq']}  disk {heartbeat['disk_percent']:.0f} %{_alerts(heartbeat)}"
        if heartbeat
        else "never heard"
    )
    keys = f"{_good(edge)} good key(s)"
    silent = "  SILENT" if edge["state"] == "silent" else ""
    return edge["edge_cluster_id"], edge["tenant_id"], keys, f"{how}{silent}"


def _alerts(heartbeat: dict[str, Any]) -> str:
    """Nothing for an edge of an older version, which does not say."""
    if heartbeat["open_alerts"] is None:
        return ""
    missing = heartbeat["alerts_missing"]
    unknown = f" ({missing} not as here)" if missing else ""
    return f"  alerts {heartbeat['open_alerts']}{unknown}"


def _good(edge: dict[str, Any]) -> int:
    return sum(key["good"] for key in edge["keys"])


def _actor() -> str:
    return f"cli:{getpass.getuser()}"


def is_safe(url: str) -> bool:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "localhost", "::1")


def tls() -> Any:
    from farmiq.config import EdgeSettings

    return EdgeSettings.load_some(terminal.environment()).tls.client()


def _keys(rows: Iterable[tuple[Any, str]]) -> list[dict[str, Any]]:
    return [{"key_id": key_id, "tenant_id": tenant_id} for key_id, tenant_id in rows]
