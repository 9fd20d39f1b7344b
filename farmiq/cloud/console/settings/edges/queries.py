"""SQL of edges, with the person's rights; invitations and revocations are the registry's."""

from datetime import timedelta

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.settings.edges.view import Edge, Invitation, Invited, Key
from farmiq.cloud.edges import registry
from farmiq.plumbing import db

MAX_INVITED = 50


async def edges(connection: db.Connection) -> list[Edge]:
    return [
        Edge(
            edge_id=row["edge_cluster_id"],
            state=row["state"],
            heard_at=row["heartbeat"] and row["heartbeat"]["received_at"],
            keys=[Key(**key) for key in row["keys"]],
        )
        for row in await registry.list_edges(connection)
    ]


async def invited(connection: db.Connection) -> list[Invited]:
    """Edges whose last invitation nobody has used, by the audit log."""
    return await db.fetch_as(
        connection,
        Invited,
        """
        select edge_cluster_id as edge_id, at, actor from (
          select distinct on (edge_cluster_id) edge_cluster_id, at, actor, action
          from edge_actions order by edge_cluster_id, at desc, action_id desc
        ) last
        where action = 'invite' and at > fn_now() - interval '30 days'
        order by at desc limit %s
        """,
        (MAX_INVITED,),
    )


async def invite(
    connection: db.Connection, company: Company, edge_id: str, *, lasts: timedelta, cloud_url: str
) -> Invitation:
    """As the service, for the active company alone."""
    await connection.execute("reset role")
    code, expires_at = await registry.invite(
        connection, edge_id, [company.tenant_id], lasts=lasts, actor=company.email
    )
    return Invitation(edge_id, code, expires_at, cloud_url)


async def revoke(
    connection: db.Connection, company: Company, edge_id: str, key_id: str | None
) -> bool:
    """End the keys of an edge for this company, or one; whether there was one to end."""
    await connection.execute("reset role")
    ended = await registry.revoke(
        connection, edge_id, tenant_id=company.tenant_id, key_id=key_id, actor=company.email
    )
    return bool(ended)
