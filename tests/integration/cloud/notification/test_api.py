"""Channels, contacts, messages and settings over HTTP: who may what, and what is refused."""

from typing import Any

from tests.integration.cloud.notification.conftest import (
    ANN,
    SIGNING_KEY,
    Running,
    Site,
)
from tests.support.http_receiver import HttpReceiver
from tests.support.mail_server import MailServer
from tests.support.until import until

MAIL = {"kind": "email"}


async def test_channel_and_contact_are_added_changed_listed_and_removed(
    site: Site, running: Running
) -> None:
    channel = await running.put("alert-channels/mail", MAIL)
    assert (channel["kind"], channel["secrets"], channel["host"]) == ("email", [], None)
    quiet = {"from": "22:00", "until": "06:00", "timezone": "Asia/Bangkok"}
    contact = await running.put("alert-contacts/ann", {**ANN, "quiet_hours": quiet})
    assert contact["quiet_hours"] == {**quiet, "passed_by": ["critical", "security"]}
    assert contact["severities"] == ["critical", "security", "warning"]
    changed = await running.put(
        "alert-contacts/ann", {**ANN, "level": 2, "farms": ["north"]}, status=200
    )
    assert (changed["level"], changed["farms"], changed["quiet_hours"]) == (2, ["north"], None)
    assert [row["contact_id"] for row in (await running.got("alert-contacts"))["contacts"]] == [
        "ann"
    ]
    assert await running.got("alert-contacts/ann") == changed
    for path in ("alert-contacts/ann", "alert-channels/mail"):
        assert (await running.send("DELETE", path)).status_code == 204
        assert (await running.send("DELETE", path)).status_code == 404
    actions = site.owner("select action, key, actor from alert_actions order by at, action_id")
    assert actions == [
        (action, key, "admin@example.com")
        for action, key in (
            ("add_channel", "mail"), ("add_contact", "ann"), ("change_contact", "ann"),
            ("remove_contact", "ann"), ("remove_channel", "mail"),
        )
    ]  # fmt: skip


async def test_secrets_stay_when_a_channel_is_changed_without_them(
    running: Running, receiver: HttpReceiver, site: Site
) -> None:
    await running.hook(receiver)
    changed = await running.put(
        "alert-channels/hook", {"kind": "webhook", "name": "Office"}, status=200
    )
    assert (changed["secrets"], changed["host"]) == (["signing_key", "url"], "127.0.0.1")
    site.open()
    await site.until_ended(1)
    assert len(receiver.posted) == 1


async def test_escalation_is_set_for_a_company(running: Running) -> None:
    assert await running.got("alert-settings") == {"escalate_after_min": 15}
    await running.put("alert-settings", {"escalate_after_min": None}, status=200)
    assert await running.got("alert-settings") == {"escalate_after_min": None}
    assert await running.got("alert-settings", who="other") == {"escalate_after_min": 15}


async def test_only_admins_write(running: Running) -> None:
    for who in ("viewer", "operator"):
        for path, body in (
            ("alert-channels/mail", MAIL), ("alert-contacts/ann", ANN),
            ("alert-settings", {"escalate_after_min": 5}),
        ):  # fmt: skip
            assert (await running.send("PUT", path, body, who=who)).status_code == 403
        test = await running.send("POST", "alert-channels/mail/test", {}, who=who)
        assert test.status_code == 403


async def test_another_company_sees_and_touches_nothing(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    site.open()
    await site.until_ended(1)
    ((message_id,),) = site.messages("message_id")
    for path, key in (
        ("alert-channels", "channels"), ("alert-contacts", "contacts"),
        ("alert-messages", "messages"),
    ):  # fmt: skip
        assert (await running.got(path, who="other"))[key] == []
        assert len((await running.got(path))[key]) == 1
    for path in ("alert-channels/mail", "alert-contacts/ann", f"alert-messages/{message_id}"):
        assert (await running.send("GET", path, who="other")).status_code == 404
        assert (await running.send("GET", path, who="")).status_code == 401
    for path in ("alert-channels/mail", "alert-contacts/ann"):
        assert (await running.send("DELETE", path, who="other")).status_code == 404
    body = {"address": "eve@example.com"}
    test = await running.send("POST", "alert-channels/mail/test", body, who="other")
    assert test.status_code == 404
    assert len((await running.got("alert-channels"))["channels"]) == 1


def hook(**secrets: Any) -> dict[str, Any]:
    given = {"url": "https://example.com", "signing_key": SIGNING_KEY, **secrets}
    return {"kind": "webhook", "secrets": given}


WRONG: list[tuple[str, Any, str]] = [
    ("alert-channels/a", {"kind": "pigeon"}, "kind"),
    ("alert-channels/a", {"kind": "webhook"}, "secrets.url"),
    ("alert-channels/a", hook(signing_key="weak"), "secrets.signing_key"),
    ("alert-channels/a", hook(url="https://10.0.0.1/x"), "secrets.url"),
    ("alert-channels/a", hook(url="https://169.254.169.254/latest"), "secrets.url"),
    ("alert-channels/a", hook(url="https://[::ffff:10.0.0.1]/x"), "secrets.url"),
    ("alert-channels/a", hook(url="https://2130706434/x"), "secrets.url"),
    ("alert-channels/a", hook(url="http://1.1.1.1/x"), "secrets.url"),
    # A name that nobody knows may become a host of the internet.
    ("alert-channels/a", hook(url="http://nowhere.invalid/x"), "secrets.url"),
    (
        "alert-channels/a",
        {"kind": "email", "secrets": {"smtp_url": "smtp://10.0.0.1"}},
        "secrets.smtp_url",
    ),
    ("alert-channels/a", {"kind": "email", "secrets": {"vapid_key": "x"}}, "secrets"),
    ("alert-channels/a%20b", MAIL, "path"),
    ("alert-contacts/a", {"name": "A", "addresses": {"none": "x"}}, "addresses.none"),
    ("alert-contacts/a", {"name": "A", "addresses": {"mail": "x"}}, "addresses.mail"),
    ("alert-contacts/a", {**ANN, "level": 3}, "level"),
    ("alert-contacts/a", {**ANN, "severities": []}, "severities"),
    (
        "alert-contacts/a",
        {**ANN, "quiet_hours": {"from": "1:00", "until": "06:00", "timezone": "UTC"}},
        "quiet_hours",
    ),
    (
        "alert-contacts/a",
        {**ANN, "quiet_hours": {"from": "22:00", "until": "06:00", "timezone": "Mars"}},
        "quiet_hours.timezone",
    ),
    (
        "alert-contacts/a",
        {**ANN, "quiet_hours": {"from": "22:00", "until": "22:00", "timezone": "UTC"}},
        "quiet_hours",
    ),
    ("alert-settings", {"escalate_after_min": 0}, "escalate_after_min"),
]


async def test_wrong_body_is_refused_by_field(running: Running) -> None:
    await running.put("alert-channels/mail", MAIL)
    for path, body, field in WRONG:
        answer = await running.send("PUT", path, body)
        assert answer.status_code == 400, (body, answer.text)
        fields = [detail["field"] for detail in answer.json()["error"]["details"]]
        assert field in fields, body


async def test_test_message_is_sent_and_its_result_is_visible(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    sent = await running.send("POST", "alert-channels/mail/test", {"contact_id": "ann"})
    assert sent.status_code == 202
    await site.until_ended(1)
    result = await running.got(f"alert-messages/{sent.json()['message_id']}")
    assert (result["state"], result["step"], result["error"]) == ("sent", "test", None)
    assert mailbox.subjects() == ["Test message of FarmIQ alerts"]
    assert "admin@example.com sent this over the channel mail" in mailbox.texts()[0]
    mailbox.answers["RCPT"] = "450 try later"
    await running.send("POST", "alert-channels/mail/test", {"address": "bob@example.com"})
    await site.until_ended(2)
    failed = (await running.got("alert-messages", state="failed"))["messages"]
    assert [row["error"] for row in failed] == ["the mail server refused a receiver: 450 try later"]
    for body in ({"address": "x"}, {"contact_id": "eve"}, {}):
        answer = await running.send("POST", "alert-channels/mail/test", body)
        assert answer.status_code == 400


async def test_messages_are_listed_page_by_page(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    for _ in range(5):
        site.open()
    await site.until_ended(5)
    seen, cursor = [], None
    while True:
        query: dict[str, Any] = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = await running.got("alert-messages", **query)
        seen += [row["message_id"] for row in page["messages"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 5
    assert seen == [row["message_id"] for row in (await running.got("alert-messages"))["messages"]]
    await until(lambda: len(receiver.posted) == 5)
