"""`farmiq key`: keys of the edge's HTTP API."""

from typing import Annotated

import typer

from farmiq.cli import terminal

app = terminal.Group(
    "Keys of the edge's HTTP API. They need FARMIQ_EDGE_DB_ADMIN_URL or a running demo.",
)
OWNER = "FARMIQ_EDGE_DB_ADMIN_URL"
Name = Annotated[str, typer.Argument(help="Whose key it is, such as feed-office.")]


@app.command("add")
def add(
    name: Name,
    *,
    role: Annotated[
        str, typer.Option(help="viewer reads, operator also acts, admin may do everything.")
    ] = "viewer",
    tenant: Annotated[
        str | None, typer.Option(help="The only tenant that it reaches; default: all of them.")
    ] = None,
    area: Annotated[
        list[str] | None,
        typer.Option("--area", help="Part of the API that it is for, such as feed; repeatable."),
    ] = None,
) -> None:
    """Make a key and print it, this once: only its hash is kept.

    Give it no more than it needs: `--role operator --tenant t-001 --area feed` records feed of one
    tenant, and reads and does nothing else.
    """
    import psycopg

    from farmiq.edge import api_keys
    from farmiq.plumbing import ids

    terminal.check_known(role, api_keys.ROLES, f"{role!r} is no role; choose")
    if odd := sorted(set(area or ()) - set(api_keys.AREAS)):
        terminal.fail(f"{odd[0]!r} is no area; choose from {', '.join(api_keys.AREAS)}", code=2)
    if tenant is not None:
        terminal.check_id(tenant)
    key = api_keys.new_key()
    with terminal.connect(OWNER) as connection:
        try:
            connection.execute(
                "insert into api_keys (api_key_id, name, role, key_sha256, tenant_id, areas) "
                "values (%s, %s, %s, %s, %s, %s)",
                (ids.new(), name, role, api_keys.digest(key), tenant, area or None),
            )
        except psycopg.errors.UniqueViolation:
            terminal.fail(f"there is a key {name!r} already; revoke it or choose another name")
    made = {"name": name, "role": role, "key": key, "tenant_id": tenant, "areas": area or None}
    terminal.print_result(made, key)


@app.command("pin", value_error=2)
def pin(
    name: Name,
    *,
    pin: Annotated[
        str | None,
        typer.Option(envvar="FARMIQ_NEW_PIN", help="Asked for, or taken from the environment."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="The name has no PIN from now on.")
    ] = False,
) -> None:
    """Set the PIN with which the owner of a key signs in at the edge's console, beside its name.

    Everybody who is signed in with this key or its old PIN is signed out.
    """
    import sys

    from farmiq.edge import pins

    if not remove and pin is None:
        if not sys.stdin.isatty():
            terminal.fail("set FARMIQ_NEW_PIN: there is no terminal to ask for it", code=2)
        pin = typer.prompt("PIN", hide_input=True, confirmation_prompt=True, err=True)
    pin_hash = None if remove or pin is None else pins.hashed(pin)
    with terminal.connect(OWNER) as connection:
        row = connection.execute(
            "update api_keys set pin_bcrypt = %s where name = %s and revoked_at is null "
            "returning api_key_id",
            (pin_hash, name),
        ).fetchone()
        if row is None:
            terminal.fail(f"there is no valid key {name!r}; `farmiq key ls` shows them")
        ended = connection.execute(
            "delete from console_sign_ins where api_key_id = %s", row
        ).rowcount
    outcome = "has no PIN any more" if pin_hash is None else "has a new PIN"
    terminal.print_result(
        {"name": name, "has_pin": pin_hash is not None, "ended_sign_ins": ended},
        f"{name} {outcome}",
    )


@app.command("ls")
def ls() -> None:
    """List the keys: whose, what for, since when. The keys themselves are not kept."""
    rows = terminal.rows(
        OWNER,
        "select name, role, tenant_id, areas, created_at, revoked_at, "
        "pin_bcrypt is not null as has_pin from api_keys order by name",
    )
    terminal.print_list(
        rows,
        lambda row: (
            row["name"],
            row["role"],
            terminal.local(row["created_at"]),
            f"{row['tenant_id'] or 'all tenants'}, {', '.join(row['areas'] or ['all areas'])}",
            f"revoked {terminal.local(row['revoked_at'])}"
            if row["revoked_at"]
            else "with a PIN"
            if row["has_pin"]
            else "",
        ),
    )


@app.command("revoke")
def revoke(name: Name) -> None:
    """End a key; the next request with it is refused."""
    with terminal.connect(OWNER) as connection:
        row = connection.execute(
            "update api_keys set revoked_at = now() where name = %s and revoked_at is null", (name,)
        ).rowcount
    if not row:
        terminal.fail(f"there is no valid key {name!r}; `farmiq key ls` shows them")
    terminal.print_result({"revoked": {"name": name}}, f"revoked {name}")
