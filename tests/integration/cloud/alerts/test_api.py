"""Alerts over HTTP and on the command line: bad input, roles, and one's own company only."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.cloud.alerts.api import Api
from farmiq.cloud.alerts.episodes import queries
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import http, ids
from tests.integration.cloud.alerts.conftest import HOUR, MINUTE, Alerts, now
from tests.support import typed

RULE = {"signal": "telemetry.heat", "condition": "above", "threshold": 30, "for_s": 600}


@dataclass
class Person:
    client: httpx2.AsyncClient
    tokens: dict[str, str]

    async def ask(
        self, method: str, path: str, who: str = "ann", *, body: Any = None, **query: Any
    ) -> httpx2.Response:
        headers = {
            "Authorization": f"Bearer {self.tokens[who]}",
            "Content-Type": "application/json",
        }
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        params = {name.rstrip("_"): str(value) for name, value in query.items()}
        return await self.client.request(
            method, f"/api/v1/{path}", params=params, headers=headers, content=content
        )


@pytest.fixture
async def person(alerts: Alerts) -> AsyncIterator[Person]:
    """Ann is an admin, olga an operator and vic a viewer of t-001; bea is an admin of t-002."""
    tokens = {}
    with psycopg.connect(alerts.site.database.admin_url) as owner:
        for name, tenant_id, role in (
            ("ann", "t-001", "admin"), ("olga", "t-001", "operator"), ("vic", "t-001", "viewer"),
            ("bea", "t-002", "admin"),
        ):  # fmt: skip
            company = owner.execute(
                "select company_id from companies where tenant_id = %s", (tenant_id,)
            ).fetchone()
            assert company is not None
            add_user(
                owner, f"{name}@x.farm", company_id=company[0], password="long enough 1", role=role
            )
            tokens[name] = open_sign_in(owner, f"{name}@x.farm", lasts=HOUR)
    server = http.HttpServer(title="cloud", version="0")
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client:
        Api(SignIns(alerts.pool, lasts=HOUR)).add_to(server.app)
        yield Person(client, tokens)


async def one_episode(alerts: Alerts) -> str:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - MINUTE, 40.0))
    await alerts.looks.page()
    return str(alerts.owner("select episode_id from alert_episodes")[0][0])


async def test_episodes_are_listed_shown_and_acknowledged(alerts: Alerts, person: Person) -> None:
    episode_id = await one_episode(alerts)
    await alerts.send(alerts.reading(now(), 40.0, device_id="e"))
    page: dict[str, Any] = {"next_cursor": ""}
    seen = []
    while page["next_cursor"] is not None:
        page = (await person.ask("GET", "alerts", limit=1, cursor=page["next_cursor"])).json()
        seen += [row["device_id"] for row in page["alerts"]]
    assert seen == ["e", "d"]
    found = (await person.ask("GET", "alerts", "vic", state="open", device="d")).json()["alerts"]
    assert [(row["episode_id"], row["message"]) for row in found] == [
        (episode_id, "heat of d in barn 1 above 30: 40")
    ]
    table = (await person.ask("GET", "alerts", format="csv")).text.splitlines()
    assert len(table) == 3
    path = f"alerts/{episode_id}/acknowledge"
    assert (await person.ask("POST", path, "vic", body={})).status_code == 403
    shown = (await person.ask("POST", path, "olga", body={"note": "fan 2"})).json()
    assert (shown["state"], shown["acknowledged_by"], shown["note"]) == (
        "acknowledged", "olga@x.farm", "fan 2",
    )  # fmt: skip
    assert [step["step"] for step in shown["steps"]] == ["opened", "acknowledged"]
    again = (await person.ask("POST", path, "ann", body={})).json()
    assert again["acknowledged_by"] == "olga@x.farm"
    ending = f"alerts/{episode_id}/end"
    assert (await person.ask("POST", ending, "vic", body={})).status_code == 403
    over = (await person.ask("POST", ending, "olga", body={"note": "fan 2 runs"})).json()
    assert (over["state"], over["ended_reason"], over["ended_by"], over["ended_note"]) == (
        "resolved", "person", "olga@x.farm", "fan 2 runs",
    )  # fmt: skip
    assert (await person.ask("POST", ending, "olga", body={})).status_code == 409
    assert (await person.ask("POST", path, body={})).status_code == 409


async def test_another_company_sees_and_changes_nothing(alerts: Alerts, person: Person) -> None:
    episode_id = await one_episode(alerts)
    window = {"begin_at": "2026-01-01T00:00:00Z", "end_at": "2026-01-02T00:00:00Z", "reason": "x"}
    made = await person.ask("POST", "alert-windows", body=window)
    assert made.status_code == 201, made.text
    assert (await person.ask("GET", "alerts", "bea")).json()["alerts"] == []
    assert (await person.ask("GET", "alert-windows", "bea")).json()["windows"] == []
    own = (await person.ask("GET", "alert-rules", "bea", limit=1000)).json()["rules"]
    assert all(rule["is_default"] for rule in own)
    for method, path, body in (
        ("GET", f"alerts/{episode_id}", None),
        ("POST", f"alerts/{episode_id}/acknowledge", {}),
        ("GET", "alert-rules/hot", None),
        ("DELETE", "alert-rules/hot", None),
        ("DELETE", f"alert-windows/{made.json()['window_id']}", None),
    ):
        assert (await person.ask(method, path, "bea", body=body)).status_code == 404, path
    tried = await person.ask("POST", "alert-rules/try", "bea", body={"rule": RULE})
    assert (tried.json()["series_count"], tried.json()["episodes"]) == (0, [])


async def test_rule_is_added_changed_switched_off_and_removed(
    alerts: Alerts, person: Person
) -> None:
    added = await person.ask("PUT", "alert-rules/hot", body=RULE)
    assert (added.status_code, added.json()["sentence"]) == (201, "heat above 30 for 10 minutes")
    changed = await person.ask("PUT", "alert-rules/hot", body={**RULE, "threshold": 31})
    assert (changed.status_code, changed.json()["threshold"]) == (200, 31)
    default = (await person.ask("GET", "alert-rules/default.heat.any")).json()
    assert (default["is_default"], default["enabled"]) == (True, True)
    assert (await person.ask("DELETE", "alert-rules/default.heat.any")).status_code == 409
    names = ("rule_id", "sentence", "is_default", "changed_at", "changed_by")
    off = {name: value for name, value in default.items() if name not in names}
    answer = await person.ask("PUT", "alert-rules/default.heat.any", body={**off, "enabled": False})
    assert (answer.status_code, answer.json()["is_default"]) == (200, False), answer.text
    assert (await person.ask("DELETE", "alert-rules/default.heat.any")).status_code == 204
    assert (await person.ask("GET", "alert-rules/default.heat.any")).json()["enabled"]
    assert (await person.ask("DELETE", "alert-rules/hot")).status_code == 204
    assert (await person.ask("DELETE", "alert-rules/hot")).status_code == 404
    assert (await person.ask("PUT", "alert-rules/hot", "olga", body=RULE)).status_code == 403
    actions = alerts.owner("select actor, action, key from alert_actions order by at")
    assert actions[0] == ("ann@x.farm", "rule.set", "hot")
    assert len(actions) == 5
    page = (await person.ask("GET", "alert-rules", limit=3)).json()
    following = (await person.ask("GET", "alert-rules", cursor=page["next_cursor"])).json()
    ids_seen = [rule["rule_id"] for rule in [*page["rules"], *following["rules"]]]
    assert ids_seen == sorted(ids_seen)
    assert len(set(ids_seen)) == len(ids_seen)


async def test_bad_rule_gets_a_reason_and_changes_nothing(alerts: Alerts, person: Person) -> None:
    start = b'{"signal": "telemetry.heat", "condition": "above", "threshold": '
    for body, field in (
        ({**RULE, "threshold": None}, "threshold"),
        ({**RULE, "signal": "weather.rain"}, "signal"),
        ({**RULE, "signal": "edge.nothing"}, "signal"),
        ({**RULE, "clear": 40}, "clear"),
        ({**RULE, "for_s": -1}, "for_s"),
        ({**RULE, "condition": "rises"}, "window_s"),
        ({**RULE, "conditon": "above"}, "conditon"),
        (start + b"NaN}", "body"),
        (start + b"1e999}", "threshold"),
    ):
        answer = await person.ask("PUT", "alert-rules/hot", body=body)
        assert answer.status_code == 400, answer.text
        assert field in {detail["field"] for detail in answer.json()["error"]["details"]}, body
    assert alerts.owner("select 1 from alert_rules") == []


async def test_rule_is_tried_over_the_last_days(alerts: Alerts, person: Person) -> None:
    begin = now() - 5 * HOUR
    numbers = [20.0, 40.0, 40.0, 40.0, 20.0, 20.0, 40.0, 40.0, 40.0]
    readings = [
        alerts.reading(begin + index * 10 * MINUTE, number) for index, number in enumerate(numbers)
    ]
    await alerts.store(*readings)
    tried = await person.ask(
        "POST", "alert-rules/try", "olga", body={"rule": {**RULE, "clear_for_s": 0}, "days": 1}
    )
    assert tried.status_code == 200, tried.text
    found = tried.json()
    assert (found["series_count"], found["value_count"], found["is_whole"]) == (1, 9, True)
    assert datetime.fromisoformat(found["values_from"]) == begin
    assert [row["resolved_at"] is None for row in found["episodes"]] == [False, True]
    assert found["episodes"][0]["message"] == "heat of d in barn 1 above 30 for 10 minutes: 40"
    assert alerts.episodes() == []
    too_long = {"rule": RULE, "days": 8}
    assert (await person.ask("POST", "alert-rules/try", body=too_long)).status_code == 400


async def test_window_is_checked_listed_and_ended(person: Person) -> None:
    begin = now()
    window = {
        "begin_at": begin.isoformat().replace("+00:00", "Z"),
        "end_at": (begin + HOUR).isoformat().replace("+00:00", "Z"),
        "reason": "washing", "barn_id": "1",
    }  # fmt: skip
    for bad in ({"end_at": window["begin_at"]}, {"end_at": "9000-01-01T00:00:00Z"}, {"reason": ""}):
        answer = await person.ask("POST", "alert-windows", body={**window, **bad})
        assert answer.status_code == 400, bad
    assert (await person.ask("POST", "alert-windows", "vic", body=window)).status_code == 403
    made = (await person.ask("POST", "alert-windows", "olga", body=window)).json()
    listed = (await person.ask("GET", "alert-windows", current="true")).json()["windows"]
    assert [row["window_id"] for row in listed] == [made["window_id"]]
    path = f"alert-windows/{made['window_id']}"
    assert (await person.ask("DELETE", path, "olga")).status_code == 204
    assert (await person.ask("DELETE", path, "olga")).status_code == 404


async def test_what_is_not_there_is_not_found(person: Person) -> None:
    for method, path, body in (
        ("GET", f"alerts/{ids.new()}", None),
        ("GET", "alerts/nonsense", None),
        ("POST", f"alerts/{ids.new()}/acknowledge", {}),
        ("GET", "alert-rules/none", None),
        ("DELETE", "alert-rules/no%00ne", None),
        ("DELETE", "alert-windows/nonsense", None),
    ):
        assert (await person.ask(method, path, body=body)).status_code == 404, path
    assert (await person.ask("GET", "alerts", state="burning")).status_code == 400
    assert (await person.ask("PUT", "alert-rules/no%20id", body=RULE)).status_code == 400


async def test_company_has_at_most_so_many_rules(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_RULES", 1)
    assert (await person.ask("PUT", "alert-rules/one", body=RULE)).status_code == 201
    assert (await person.ask("PUT", "alert-rules/two", body=RULE)).status_code == 409
    assert (await person.ask("PUT", "alert-rules/one", body=RULE)).status_code == 200


async def test_commands_set_try_list_and_acknowledge(alerts: Alerts) -> None:
    def run(*words: str, code: int = 0) -> str:
        environment = {"FARMIQ_CLOUD_DB_URL": alerts.site.database.url}
        done = typed.farmiq("alert", *words, "--tenant", "t-001", **environment)
        assert done.returncode == code, done.stderr
        return done.stdout

    options = ("--signal", "telemetry.heat", "--condition", "above", "--threshold", "30")
    assert "heat in barn 1 above 30 for 10 minutes" in run(
        "rule-set", "hot", *options, "--for", "10m", "--barn", "1"
    )
    run("rule-set", "hot", "--for", "soon", code=2)
    run("rule-set", "cold", "--signal", "telemetry.heat", code=2)
    run("rule-set", "hot", "--condition", "rises", code=2)
    assert "critical" in run("rule-set", "hot", "--for", "0", "--severity", "critical")
    assert "switched off" in run("rule-set", "default.heat.any", "--disable")
    assert len(run("rules", "--own").splitlines()) == 2
    await alerts.store(alerts.reading(now() - 2 * HOUR, 40.0))
    assert "1 in 7 days" in run("try", "hot")
    assert "0 in 7 days" in run("try", "hot", "--threshold", "50")
    alerts.book.drop()
    await alerts.send(alerts.reading(now(), 40.0))
    listed = json.loads(run("episodes", "--json", code=3))["alerts"]
    assert run("ack", listed[0]["episode_id"], "--note", "on my way") == "acknowledged\n"
    assert "f/1/d: heat of d in barn 1 above 30: 40" in run("episodes", code=3)
    run("ack", str(ids.new()), code=1)
    assert run("end", listed[0]["episode_id"], "--note", "fan 2 runs") == "ended\n"
    run("end", listed[0]["episode_id"], code=1)
    run("end", str(ids.new()), code=1)
    made = json.loads(run("window", "add", "--for", "2h", "--reason", "washing", "--json"))
    assert "washing" in run("window", "ls")
    run("window", "rm", made["window_id"])
    run("rule-rm", "hot")
    run("rule-rm", "hot", code=1)
    run("rule-rm", "default.heat.cattle", code=1)


async def test_commands_about_an_unknown_company_fail(alerts: Alerts) -> None:
    for command in ("episodes", "rules"):
        done = typed.farmiq(
            "alert", command, "--tenant", "typo", FARMIQ_CLOUD_DB_URL=alerts.site.database.url
        )
        assert done.returncode == 1
        assert "there is no company 'typo'" in done.stderr
