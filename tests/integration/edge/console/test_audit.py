"""Every route of the edge's console that changes something leaves a line in the audit log."""

import httpx2

from farmiq.plumbing import http, ids
from tests.conftest import Database
from tests.integration.edge.console.conftest import SignIn, csrf, sign_in
from tests.integration.edge.console.test_roles import TABLE
from tests.support import databases, edge_day
from tests.support.edge_day import Day

PLACE = f"{edge_day.FARM}/barn-1/"
OUTSIDE = {"POST /sign-in", "POST /sign-out"}
# Letters of the outbox as edge_day has them.
LETTERS = {"event_type": "telemetry.ingested", "reason": "the batch is not known"}


def entry(**fields: str) -> dict[str, str]:
    return {"idempotency_key": str(ids.new()), "place": PLACE, **fields}


def steps(day: Day) -> list[tuple[str, dict[str, str]]]:
    return [
        ("POST /records/new", entry(kind="mortality", value="2")),
        ("POST /feed/lots/new", entry(feed_lot_id="lot-9", quantity_kg="500")),
        ("POST /feed/intakes/new", entry(quantity_kg="50")),
        ("POST /alerts/close", {"kind": "rule.too-hot",
                                "subject": f"{edge_day.TENANT}/{edge_day.FARM}/barn-1"}),
        ("POST /delivery/quarantine/redrive", {"id": str(day.readable_id)}),
        ("POST /delivery/quarantine/discard", {"id": str(day.broken_id)}),
        ("POST /delivery/dead-letters/redrive", LETTERS),
        ("POST /delivery/dead-letters/discard", LETTERS),
        ("POST /devices/new", {"place": f"{edge_day.FARM}/barn-1", "device_id": "scale-9",
                               "kind": "sensor"}),
        ("POST /keys", {"name": "tablet", "role": "viewer"}),
        ("POST /keys/revoke", {"name": "tablet"}),
        ("POST /company", {"company_id": edge_day.OTHER}),
    ]  # fmt: skip


async def test_every_route_that_changes_something_leaves_a_line_in_the_audit_log(
    client: SignIn, server: http.HttpServer, edge_db: Database, day: Day
) -> None:
    del server

    def lines(actor: str) -> int:
        with databases.connected(edge_db.admin_url) as owner:
            query = b"select count(*) from audit_log where actor in (%s, 'key ' || %s)"
            ((count,),) = owner.execute(query, (actor, actor)).fetchall()
        return int(count)

    key = edge_day.add_key(edge_db.admin_url, "ada", role="admin")
    done, wrong = set(OUTSIDE), []
    async with client() as browser:

        async def look(route: str, before: int, answer: httpx2.Response) -> None:
            if answer.status_code not in (200, 303):
                wrong.append(f"{route} answers {answer.status_code}")
            elif lines("ada") == before:
                wrong.append(f"{route} leaves no line")

        await look("POST /sign-in", 0, await sign_in(browser, key=key))
        chosen = {"csrf": csrf(await browser.get("/")), "company_id": edge_day.TENANT}
        await browser.post("/company", data=chosen)
        for route, form in steps(day):
            if route == "POST /delivery/dead-letters/discard":
                with databases.connected(edge_db.admin_url) as owner:
                    owner.execute(
                        b"update sync_outbox set status = 'dlq', dlq_reason = %s "
                        b"where id = (select id from sync_outbox where status = 'pending' limit 1)",
                        (LETTERS["reason"],),
                    )
            given = {**form, "csrf": csrf(await browser.get("/"))}
            before = lines("ada")
            await look(route, before, await browser.post(route.removeprefix("POST "), data=given))
            done.add(route)
        given = {"csrf": csrf(await browser.get("/"))}
        await look("POST /sign-out", lines("ada"), await browser.post("/sign-out", data=given))
    assert done == {route for route in TABLE if route.startswith("POST ")} | OUTSIDE
    assert not wrong, "; ".join(wrong)
