"""Many cameras registered at once, each with its login: all of them or none. SQL."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from farmiq.cloud.camera import secret
from farmiq.cloud.camera.roster import Camera
from farmiq.plumbing import db, ids
from farmiq.roster import Problem

Rows = Sequence[tuple[int, Camera]]


@dataclass(frozen=True, slots=True)
class Login:
    """What a camera is told once."""

    camera: Camera
    password: str


async def problems(tx: db.Connection, rows: Rows) -> list[Problem]:
    """What the database knows against these cameras, line by line."""
    return [
        *await _of_companies_and_sites(tx, rows),
        *await _of_schedules(tx, rows),
        *await _taken(tx, rows),
    ]


async def register(tx: db.Connection, rows: Rows, *, made_by: str) -> list[Login]:
    """Register the cameras, of which `problems` found none to refuse, and make their logins.

    Their first schedule counts from the next day that opens. An older login under an address, of
    another company, ends.
    """
    cameras = [camera for _, camera in rows]
    # bcrypt lets go of the interpreter's lock.
    with ThreadPoolExecutor() as threads:
        made = list(threads.map(lambda _: secret.make(), cameras))
    device_ids = [ids.new() for _ in cameras]
    await _insert(tx, device_ids, cameras)
    await tx.execute(
        """
        insert into camera_logins (device_id, company_id, secret_bcrypt, made_by, made_at)
        select d.device_id, d.company_id, n.secret_bcrypt, %s, fn_now()
        from unnest(%s::uuid[], %s::text[]) n(device_id, secret_bcrypt)
        join devices d on d.device_id = n.device_id
        """,
        (made_by, device_ids, [hashed for _, hashed in made]),
    )
    await tx.execute(
        """
        update camera_logins l set revoked_at = coalesce(l.revoked_at, fn_now())
        from devices d
        where d.device_id = l.device_id and d.mac = any(%s) and l.device_id <> all(%s)
        """,
        ([camera.mac for camera in cameras], device_ids),
    )
    return [Login(camera, plain) for camera, (plain, _) in zip(cameras, made, strict=True)]


async def _insert(tx: db.Connection, device_ids: list[UUID], cameras: list[Camera]) -> None:
    await tx.execute(
        """
        insert into devices (device_id, company_id, site_id, mac, device_name, dialect,
          wake_schedule_cron, slot_index, x_position, y_position, firmware)
        select n.device_id, c.company_id, s.site_id, n.mac, n.device_name, n.dialect,
          n.wake_schedule_cron, n.slot_index, n.x_position, n.y_position, n.firmware
        from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::integer[], %s::float8[], %s::float8[], %s::text[])
          n(device_id, tenant_id, mac, device_name, site_name, dialect, wake_schedule_cron,
            slot_index, x_position, y_position, firmware)
        join companies c on c.tenant_id = n.tenant_id
        left join sites s on s.company_id = c.company_id
          and lower(s.site_name) = lower(n.site_name)
        """,
        (
            device_ids,
            *(
                [getattr(camera, name) for camera in cameras]
                for name in (
                    "tenant_id", "mac", "device_name", "site_name", "dialect",
                    "wake_schedule_cron", "slot_index", "x_position", "y_position", "firmware",
                )
            ),
        ),
    )  # fmt: skip


async def _of_companies_and_sites(tx: db.Connection, rows: Rows) -> list[Problem]:
    known = await db.fetch_all(
        tx,
        """
        select c.tenant_id, lower(s.site_name) from companies c
        left join sites s on s.company_id = c.company_id where c.tenant_id = any(%s)
        """,
        list({camera.tenant_id for _, camera in rows}),
    )
    tenants, sites = {tenant for tenant, _ in known}, set(known)
    found = []
    for line, camera in rows:
        site = camera.site_name
        if camera.tenant_id not in tenants:
            found.append(Problem(line, "tenant_id", f"there is no company {camera.tenant_id!r}"))
        elif site is not None and (camera.tenant_id, site.lower()) not in sites:
            reason = f"{camera.tenant_id} has no site {site!r}"
            found.append(Problem(line, "site_name", reason))
    return found


async def _of_schedules(tx: db.Connection, rows: Rows) -> list[Problem]:
    asked = await db.fetch_all(
        tx,
        "select cron, fn_cron_problem(cron) from unnest(%s::text[]) cron",
        list({cron for _, camera in rows if (cron := camera.wake_schedule_cron)}),
    )
    wrong = {cron: problem for cron, problem in asked if problem is not None}
    return [
        Problem(line, "wake_schedule_cron", wrong[camera.wake_schedule_cron])
        for line, camera in rows
        if camera.wake_schedule_cron in wrong
    ]


async def _taken(tx: db.Connection, rows: Rows) -> list[Problem]:
    """Addresses and names of the company, and addresses under which another's camera is heard."""
    taken = await db.fetch_all(
        tx,
        """
        select n.line, case when d.company_id <> c.company_id then 'heard'
            when d.mac = n.mac and d.is_active then 'mac' else 'device_name' end,
          d.device_name, o.tenant_id
        from unnest(%s::integer[], %s::text[], %s::text[], %s::text[])
          n(line, tenant_id, mac, device_name)
        join companies c on c.tenant_id = n.tenant_id
        join devices d on (d.mac = n.mac and d.is_active
            and (d.company_id = c.company_id or d.proven_at is not null))
          or (d.company_id = c.company_id and lower(d.device_name) = lower(n.device_name))
        join companies o on o.company_id = d.company_id
        """,
        [line for line, _ in rows],
        *(
            [getattr(camera, name) for _, camera in rows]
            for name in ("tenant_id", "mac", "device_name")
        ),
    )
    reasons = {
        "heard": "is heard as a camera of {1}: retire it there first",
        "mac": "is registered already, as {0}",
        "device_name": "is the name of another camera already",
    }
    fields = {"heard": "mac", "mac": "mac", "device_name": "device_name"}
    return [
        Problem(line, fields[kind], reasons[kind].format(name, tenant))
        for line, kind, name, tenant in taken
    ]
