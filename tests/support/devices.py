"""Devices of the tests: the door takes messages of registered ones only."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import psycopg

from farmiq.edge.devices import registration
from farmiq.edge.devices.device import Device
from farmiq.edge.devices.registration import Credentials
from farmiq.lab.simulate import farm
from farmiq.messages.topics import Place

# Places that tests speak from without saying more; every copy of the edge's database knows them.
KNOWN = (
    *(Place(tenant, "f-1", "b-1", f"d-{n}") for tenant in ("t-1", "t-2") for n in range(10)),
    Place("t-001", "f-001", "b-001", "d-010"),
    Place("t-001", "f-001", "b-001", "d-020"),
)
# The farm that `farmiq simulate` plays in the tests, however many of its barns it uses.
HILLSIDE = tuple(each.place for each in farm.farm("hillside", barns=12))


def at(place: Place, **options: object) -> Device:
    return Device(
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        **options,  # type: ignore[arg-type]
    )


def register(url: str, devices: Iterable[Device]) -> list[Credentials]:
    """Register what is not registered yet."""

    async def work() -> list[Credentials]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await registration.add_all(connection, list(devices), actor="tests")

    # A thread has no loop of its own yet; the caller may be inside of one (a browser's).
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(work())).result()


def register_known(url: str) -> None:
    """For the template of test databases; nobody did this by hand, so the audit log stays empty."""
    register(url, [at(place, wants_receipts=True) for place in (*KNOWN, *HILLSIDE)])
    with psycopg.connect(url) as connection:
        connection.execute("truncate audit_log")
