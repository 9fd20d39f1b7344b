"""SQL of delivery, with the person's rights (row level security)."""

from datetime import UTC, datetime, timedelta
from typing import Any

from farmiq.cloud.console.delivery.view import (
    HISTORY_HOURS,
    LATE_S,
    Action,
    Edge,
    EdgeFacts,
    Episode,
    Facts,
    Heartbeat,
    Hour,
    Queue,
    Rejected,
    Waiting,
)
from farmiq.cloud.edges import registry
from farmiq.plumbing import db

DAY = timedelta(hours=24)
MAX_REJECTED = 20
MAX_EPISODES = 20


async def facts(connection: db.Connection, *, now: datetime) -> Facts:
    return Facts(
        waiting=await _waiting(connection),
        edges=await edges(connection, now=now),
        dead_letters=await db.fetch_value(
            connection, "select coalesce(sum(count), 0)::bigint from dead_letter_groups"
        ),
        conflicts=await db.fetch_value(
            connection, "select count(*) from event_conflicts where seen_at > %s", now - DAY
        ),
        rejected=await _rejected(connection),
        rejected_total=await db.fetch_value(connection, "select count(*) from camera_quarantine"),
        queues=await db.fetch_as(connection, Queue, "select * from fn_bus_queues()"),
    )


async def _waiting(connection: db.Connection) -> list[Waiting]:
    """By station of the way; the queues of the bus are not counted by company.

    Messages that wait for the end of a quiet time are not late; edges say themselves what is.
    """
    return await db.fetch_as(
        connection,
        Waiting,
        """
        select 'edges' as station, coalesce(sum(waiting), 0)::bigint as count,
          min(received_at - make_interval(secs => least(oldest_s, 1e9)))
            filter (where waiting > 0) as oldest_at,
          0::bigint as late
        from edge_heartbeats
        union all
        select 'entries', count(*), min(posted_at),
          count(*) filter (where posted_at < fn_now() - make_interval(secs => %(late_s)s))
        from posted_events where published_at is null
        union all
        select 'messages', count(*), min(created_at),
          count(*) filter (where send_after < fn_now() - make_interval(secs => %(late_s)s))
        from alert_messages where state = 'pending'
        """,
        {"late_s": LATE_S},
    )


async def edges(
    connection: db.Connection, *, now: datetime, edge_id: str | None = None
) -> list[Edge]:
    """The edges of the company, with what came from them in the last 24 hours."""
    rows = await db.fetch_all(
        connection,
        """
        select edge_cluster_id, sum(events)::bigint, sum(duplicates)::bigint from edge_hours
        where hour > %s group by 1
        """,
        now - DAY,
    )
    came = {name: (events, duplicates) for name, events, duplicates in rows}
    losing = await db.fetch_all(
        connection,
        """
        select edge_cluster_id from alert_episodes
        where signal = 'edge.losses' and state in ('active', 'acknowledged')
        """,
    )
    listed = await registry.list_edges(connection, edge_cluster_id=edge_id)
    return [
        _edge(
            row,
            *came.get(row["edge_cluster_id"], (0, 0)),
            has_new_losses=(row["edge_cluster_id"],) in losing,
        )
        for row in listed
    ]


def _edge(row: dict[str, Any], events: int, duplicates: int, *, has_new_losses: bool) -> Edge:
    heartbeat = row["heartbeat"]
    return Edge(
        edge_id=row["edge_cluster_id"],
        state=row["state"],
        # An edge that is known from a file (FARMIQ_EDGE_KEYS_FILE) has no key here.
        good_keys=sum(key["good"] for key in row["keys"]) if row["keys"] else 1,
        heartbeat=heartbeat and _heartbeat(heartbeat),
        has_new_losses=has_new_losses,
        events=events,
        duplicates=duplicates,
    )


def _heartbeat(heartbeat: dict[str, Any]) -> Heartbeat:
    names = ("clock_offset_s", "versions", "waiting", "oldest_s", "disk_percent", "open_alerts",
             "quarantine", "losses", "farms", "alerts_missing")  # fmt: skip
    return Heartbeat(
        received_at=heartbeat["received_at"].astimezone(UTC),
        dead_letters=heartbeat["dlq"],
        **{name: heartbeat[name] for name in names},
    )


async def _rejected(connection: db.Connection) -> list[Rejected]:
    return await db.fetch_as(
        connection,
        Rejected,
        """
        select q.quarantine_id, coalesce(d.device_name, q.mac, '') as camera, q.kind, q.reasons,
          q.received_count, q.last_received_at
        from camera_quarantine q left join devices d using (device_id)
        order by q.last_received_at desc, q.quarantine_id limit %s
        """,
        (MAX_REJECTED,),
    )


async def edge(connection: db.Connection, edge_id: str, *, now: datetime) -> EdgeFacts | None:
    """One edge with its last week; None if the company has no such edge."""
    listed_edges = await edges(connection, now=now, edge_id=edge_id)
    if not listed_edges:
        return None
    return EdgeFacts(
        edge=listed_edges[0],
        hours=await db.fetch_as(
            connection,
            Hour,
            """
            select hour, events, duplicates, heartbeats, max_waiting, max_oldest_s
            from edge_hours where edge_cluster_id = %s and hour > %s order by hour
            """,
            (edge_id, now - timedelta(hours=HISTORY_HOURS)),
        ),
        actions=[
            Action(row["at"], row["actor"], row["action"], row["key_id"])
            for row in await registry.actions(connection, edge_id)
        ],
        episodes=await db.fetch_as(
            connection,
            Episode,
            """
            select episode_id, severity, message, opened_at from alert_episodes
            where edge_cluster_id = %s and state in ('active', 'acknowledged')
            order by opened_at desc limit %s
            """,
            (edge_id, MAX_EPISODES),
        ),
    )
