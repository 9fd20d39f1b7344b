"""`farmiq company` and `farmiq user`: who there is, and who may sign in.

All of them connect as the owner of the cloud's tables: FARMIQ_CLOUD_DB_ADMIN_URL.
"""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

company = terminal.Group("Companies: each is a tenant of the bus.")
user = terminal.Group("People who sign in to the console.")

Email = Annotated[str, typer.Argument(help="How the person signs in.")]
NewPassword = Annotated[
    str | None,
    typer.Option(envvar="FARMIQ_NEW_PASSWORD", help="Asked for, or taken from the environment."),
]


@company.command("ls")
def company_ls() -> None:
    """List the companies. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    from farmiq.cloud.identity import accounts

    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        rows = accounts.companies(connection)
    terminal.print_list(
        rows,
        lambda row: (
            row["tenant_id"], row["name"], row["timezone"], _counted(row["people"], "person")
        ),
        empty="add a company with `farmiq company add`",
    )  # fmt: skip


@company.command("add", value_error=2)
def company_add(
    tenant: Annotated[
        str | None,
        typer.Argument(help="tenant_id of its events, for example hillside; default: its own id."),
    ] = None,
    *,
    name: Annotated[str, typer.Option(help="What people call it.")],
    timezone: Annotated[str, typer.Option(help="IANA zone of its days.")] = "UTC",
) -> None:
    """Add a company, or change its name and time zone. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    from farmiq.cloud.identity.accounts import add_company
    from farmiq.messages.ids import ID_PATTERN

    if tenant is not None and not re.match(ID_PATTERN, tenant):
        terminal.fail(
            f"{tenant!r} cannot be a tenant_id: letters, digits and . _ : -, at most 128", code=2
        )
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        company_id = add_company(connection, tenant, name=name, timezone=timezone)
    tenant_id = tenant or str(company_id)
    terminal.print_result(
        {"company_id": company_id, "tenant_id": tenant_id, "name": name, "timezone": timezone},
        f"{company_id}  {tenant_id}  {name}",
    )


@company.command("second-factor", value_error=2)
def company_second_factor(
    tenant: Annotated[str, typer.Argument(help="The company's tenant_id.")],
    *,
    role: Annotated[
        str,
        typer.Option(
            "--from",
            help="viewer (everybody), operator, technician, admin, super_admin, or nobody.",
        ),
    ],
) -> None:
    """Say from which role on people need a second factor. Needs FARMIQ_CLOUD_DB_ADMIN_URL.

    People without one have to set it up when they sign in next.
    """
    from farmiq.cloud.identity import accounts

    wanted = None if role == "nobody" else role
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        accounts.set_second_factor_rule(connection, tenant, wanted)
    terminal.print_result(
        {"tenant_id": tenant, "second_factor_from": wanted},
        f"{tenant}: a second factor is needed by "
        + (f"people whose role is {role} or above" if wanted else "nobody"),
    )


@user.command("add", value_error=2)
def user_add(
    email: Email,
    *,
    tenant: Annotated[str, typer.Option(help="The company's tenant_id.")],
    role: Annotated[str, typer.Option(help="viewer, operator, technician or admin.")] = "viewer",
    super_admin: Annotated[
        bool, typer.Option("--super-admin", help="May look at every company, one at a time.")
    ] = False,
    password: NewPassword = None,
) -> None:
    """Add a person, or change their password and rights. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    from farmiq.cloud.identity.accounts import add_user

    password = password or _prompt_for_password()
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        company_id = _company_id(connection, tenant)
        user_id = add_user(
            connection,
            email,
            company_id=company_id,
            password=password,
            role=role,
            super_admin=super_admin,
            actor=terminal.actor(),
        )
    also = ", super admin" if super_admin else ""
    terminal.print_result(
        {
            "user_id": user_id,
            "email": email,
            "tenant_id": tenant,
            "role": role,
            "super_admin": super_admin,
        },
        f"{user_id}  {email}  {role} of {tenant}{also}",
    )


@user.command("token")
def user_token(
    email: Annotated[str, typer.Argument(help="Whose rows are to be seen.")],
    *,
    hours: Annotated[float, typer.Option(min=0.01, max=8760, help="How long it is good.")] = 12,
) -> None:
    """Print a token for psql: `select begin_session('…')`, see docs/integrate/psql.md.

    It is as good as this person's password until it expires. Needs FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from datetime import timedelta

    from farmiq.cloud.identity.accounts import open_sign_in

    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        token = open_sign_in(
            connection, email, lasts=timedelta(hours=hours), actor=terminal.actor()
        )
    terminal.print_result({"email": email, "token": token}, token)


@user.command("ls")
def user_ls(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only of this company.")] = None,
) -> None:
    """List people, their rights and their open sign-ins. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    from farmiq.cloud.identity import accounts

    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        if tenant is not None:
            _company_id(connection, tenant)
        rows = accounts.users(connection, tenant)
    terminal.print_list(
        rows,
        lambda row: (
            row["email"],
            row["tenant_id"],
            (row["role"] or "no role") + (", super admin" if row["super_admin"] else ""),
            _counted(row["sign_ins"], "sign-in"),
        ),
        empty="add somebody with `farmiq user add`",
    )


@user.command("password", value_error=2)
def user_password(email: Email, *, password: NewPassword = None) -> None:
    """Give a person a new password; it ends every sign-in they have open.

    Needs FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from farmiq.cloud.identity import accounts

    password = password or _prompt_for_password()
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        ended = accounts.change_password(connection, email, password, actor=terminal.actor())
    terminal.print_result(
        {"email": email, "sign_ins_ended": ended},
        f"{email} has a new password; {_counted(ended, 'sign-in')} ended",
    )


@user.command("totp-reset", value_error=2)
def user_totp_reset(
    email: Email,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the second factor of a person who lost it; it ends every sign-in they have open.

    Make sure that it is them who asks. Needs FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from farmiq.cloud.identity import accounts

    if not yes:
        with terminal.connect(terminal.CLOUD_OWNER) as connection:
            accounts.known(connection, email)
        typer.confirm(f"Remove the second factor of {email}?", abort=True, err=True)
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        ended = accounts.reset_second_factor(connection, email, actor=terminal.actor())
    if ended is None:
        terminal.fail(f"{email} has no second factor")
    terminal.print_result(
        {"email": email, "sign_ins_ended": ended},
        f"{email} has no second factor any more; {_counted(ended, 'sign-in')} ended",
    )


@user.command("rm", value_error=2)
def user_rm(
    email: Email,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a person: they are signed out everywhere at once and cannot sign in again.

    What they did keeps their name (`farmiq user log`). Needs FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from farmiq.cloud.identity import accounts

    if not yes:
        with terminal.connect(terminal.CLOUD_OWNER) as connection:
            accounts.known(connection, email)
        typer.confirm(f"Remove {email}?", abort=True, err=True)
    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        ended = accounts.remove_user(connection, email, actor=terminal.actor())
    terminal.print_result(
        {"email": email, "removed": True, "sign_ins_ended": ended},
        f"{email} is removed; {_counted(ended, 'sign-in')} ended",
    )


@user.command("log")
def user_log(
    email: Annotated[str | None, typer.Argument(help="Only about this person.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 100,
) -> None:
    """Show who added, changed or removed whom, newest first. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    from farmiq.cloud.identity import accounts

    with terminal.connect(terminal.CLOUD_OWNER) as connection:
        rows = accounts.user_log(connection, email=email, limit=limit + 1)
    terminal.print_page(
        rows,
        limit,
        lambda row: (
            terminal.local(row["at"]),
            *(row[name] for name in ("actor", "action", "email", "tenant_id", "detail")),
        ),
        empty="nobody was added, changed or removed",
    )


def _prompt_for_password() -> str:
    import sys

    if not sys.stdin.isatty():
        terminal.fail("set FARMIQ_NEW_PASSWORD: there is no terminal to ask for it", code=2)
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _company_id(connection: "psycopg.Connection", tenant: str) -> "UUID":
    row = connection.execute(
        "select company_id from companies where tenant_id = %s", (tenant,)
    ).fetchone()
    if row is None:
        terminal.fail(
            f"there is no company {tenant!r}; `farmiq company ls` lists them, "
            "`farmiq company add` adds one"
        )
    company_id: UUID = row[0]
    return company_id


def _counted(count: int, what: str) -> str:
    many = "people" if what == "person" else f"{what}s"
    return f"{count:,} {what if count == 1 else many}"
