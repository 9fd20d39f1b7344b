"""From a step of an episode to a real mail server and HTTP receiver, and what happens between."""

import base64
import hashlib
import hmac
import json
import re
from functools import partial
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import psycopg
import structlog
from pydantic import SecretStr

from farmiq.cloud.notification.sending import jobs
from tests.integration.cloud.notification.conftest import SIGNING_KEY, Running, Site, started
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.mail_server import MailServer, mail_server
from tests.support.ports import free_port
from tests.support.push_receiver import PushReceiver
from tests.support.until import until

LINK = re.compile(r"http://cloud\.test/alerts/ack/\S+")


async def test_opened_and_resolved_reach_a_mailbox_in_plain_words(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    episode = site.open()
    await until(lambda: len(mailbox.received) == 1)
    (opened,) = mailbox.texts()
    assert mailbox.subjects() == [
        "Critical: temperature above 30 °C for 10 minutes (Barn 1, North Farm, device d-010)"
    ]
    assert "Asia/Bangkok, UTC+07:00" in opened
    assert "What to do: Go to the barn at once" in opened
    assert LINK.search(opened)
    site.resolve(episode)
    await until(lambda: len(mailbox.received) == 2)
    assert mailbox.subjects()[1].startswith("Resolved: temperature above 30 °C")
    assert not LINK.search(mailbox.texts()[1])
    rows = await site.until_ended(2)
    assert rows == [("opened", "ann", "mail", "sent"), ("resolved", "ann", "mail", "sent")]


async def test_webhook_is_signed_and_has_the_facts(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    episode = site.open()
    await site.until_ended(1)
    (posted,) = receiver.posted
    signed = ".".join(
        (posted.headers["webhook-id"], posted.headers["webhook-timestamp"], posted.body.decode())
    )
    right = base64.b64encode(hmac.digest(bytes(range(32)), signed.encode(), hashlib.sha256))
    assert posted.headers["webhook-signature"] == f"v1,{right.decode()}"
    ((message_id,),) = site.messages("message_id")
    assert posted.headers["webhook-id"] == str(message_id) == posted.json()["message_id"]
    wanted = {
        "episode_id": str(episode), "step": "opened", "severity": "critical", "farm": "North Farm",
        "barn": "Barn 1", "worst_value": 31.4, "tenant_id": "hill",
    }  # fmt: skip
    assert wanted.items() <= posted.json().items()
    assert LINK.fullmatch(posted.json()["link"])


async def test_templates_of_ntfy_telegram_sms_and_others_are_filled(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    form = "application/x-www-form-urlencoded"
    for channel_id, body in {
        "ntfy": {"kind": "ntfy", "secrets": {"url": receiver.url, "token": "tk_1"}},
        "telegram": {"kind": "telegram", "secrets": {"url": receiver.url, "token": "1:a"}},
        "sms": {
            "kind": "sms",
            "settings": {"content_type": form, "template": {"To": "{address}", "Body": "{short}"}},
            "secrets": {"url": f"{receiver.url}/sms", "headers": {"X-Key": "k"}},
        },
    }.items():
        await running.put(f"alert-channels/{channel_id}", body)
    addresses = {"ntfy": "barn-1", "telegram": "-100", "sms": "+66812345678"}
    await running.put("alert-contacts/ann", {"name": "Ann", "addresses": addresses})
    site.open(message='hot"}, {"chat_id": "eve' + " and hotter" * 20)
    await site.until_ended(3)
    by_path = {posted.path: posted for posted in receiver.posted}
    ntfy = by_path["/"].json()
    assert (ntfy["topic"], ntfy["priority"]) == ("barn-1", 5)
    assert by_path["/"].headers["authorization"] == "Bearer tk_1"
    telegram = by_path["/bot1:a/sendMessage"].json()
    assert telegram["chat_id"] == "-100"
    assert 'hot"}, {"chat_id": "eve' in telegram["text"]
    sms = parse_qs(by_path["/sms"].body.decode())
    assert sms["To"] == ["+66812345678"]
    assert "Critical: hot" in sms["Body"][0]
    # Whatever is cut of a short message, the link is whole.
    (link,) = LINK.findall(telegram["text"])
    assert sms["Body"][0].endswith(f"… {link}")
    assert by_path["/sms"].headers["x-key"] == "k"


async def test_web_push_is_read_by_the_browser_that_subscribed(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    browser = PushReceiver.new(f"{receiver.url}/push/1")
    body = {"kind": "web_push", "settings": {"contact": "mailto:alerts@example.com"}}
    channel = await running.put("alert-channels/push", body)
    assert len(base64.urlsafe_b64decode(channel["public_key"] + "==")) == 65
    addresses = {"push": browser.subscription()}
    await running.put("alert-contacts/ann", {"name": "Ann", "addresses": addresses})
    site.open()
    await site.until_ended(1)
    (posted,) = receiver.posted
    assert (posted.path, posted.headers["urgency"]) == ("/push/1", "high")
    assert posted.headers["authorization"].endswith(f"k={channel['public_key']}")
    shown = json.loads(browser.decrypt(posted.body))
    assert shown["title"].startswith("Critical: temperature")
    assert LINK.fullmatch(shown["url"])
    again = await running.put("alert-channels/push", body, status=200)
    assert again["public_key"] == channel["public_key"], "browsers would have to subscribe again"
    receiver.status = 410
    site.open()
    await site.until_ended(2)
    assert site.messages("state", "error")[1] == (
        "failed", "the browser has ended its subscription",
    )  # fmt: skip


async def test_mail_server_that_was_away_gets_the_message_once(site: Site) -> None:
    port = free_port()
    async with started(site) as running:
        async with mail_server(port=port) as first:
            await running.mail(first)
        site.open()
        await until(lambda: site.messages("attempts > 0 and error is not null") == [(True,)])
        async with mail_server(port=port) as second:
            site.ahead("10 minutes")
            assert await site.until_ended(1) == [("opened", "ann", "mail", "sent")]
    assert len(second.received) == 1
    ((attempts,),) = site.messages("attempts")
    assert attempts >= 2


def became(site: Site, episode: UUID, row: tuple[Any, ...]) -> bool:
    query = "select state, error, attempts from alert_messages where episode_id = %s"
    return site.owner(query, episode) == [row]


async def test_refusal_for_good_fails_and_others_are_tried_again(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    expected = {400: "failed", 404: "failed", 429: "pending", 503: "pending"}
    for status, state in expected.items():
        receiver.status, receiver.body = status, b"no such thing"
        episode = site.open()
        row = (state, f"{status} no such thing", 1)
        await until(partial(became, site, episode, row))


async def test_message_is_given_up_after_a_day(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    receiver.status = 503
    episode = site.open()
    await until(lambda: site.messages("error is not null") == [(True,)])
    site.resolve(episode)
    await until(lambda: len(site.messages()) == 2)
    site.owner(
        "update alert_messages set next_attempt_at = fn_now(), "
        "send_after = send_after - interval '25 hours'"
    )
    rows = await site.until_ended(2)
    # Who never heard of it does not hear of its end.
    assert [row[3] for row in rows] == ["failed", "dropped"]


async def test_message_that_fails_while_the_clock_is_ahead_is_sent_when_it_is_back(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await until(lambda: site.owner("select believed_at from believed_clock"))
    await running.hook(receiver)
    receiver.status = 503
    site.open()
    await until(lambda: site.messages("attempts") == [(1,)])
    site.ahead("3 days")
    await until(lambda: site.messages("state", "attempts") == [("pending", 2)])
    receiver.status = 200
    site.ahead("0")
    assert await site.until_ended(1) == [("opened", "hook", "hook", "sent")]


async def test_what_was_claimed_or_put_off_by_a_clock_that_was_ahead_goes_on(
    site: Site, receiver: HttpReceiver
) -> None:
    async with started(site) as running:
        await running.hook(receiver)
        await running.hook(receiver, "other")
        receiver.status = 503
        first = site.open()
        await until(lambda: [*map(bool, site.messages("error"))] == [True, True])
    site.owner(
        "update alert_messages set claimed_until = fn_now() + interval '3 days' "
        "where channel_id = 'other'"
    )
    site.open()
    site.owner(
        "update alert_steps set route_after = fn_now() + interval '3 days' where routed_at is null"
    )
    site.owner("update alert_episodes set paged_at = fn_now() + interval '3 days'")
    site.owner("update alert_messages set send_after = fn_now() + interval '3 days'")
    receiver.status = 200
    async with started(site):
        await site.until_ended(4)
        escalated = "select episode_id from alert_steps where step = 'escalated'"
        await until(lambda: (first,) in site.owner(escalated))


async def test_receiver_that_hangs_does_not_hold_back_others(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    async with http_receiver() as slow:
        slow.answering.clear()
        await running.hook(slow, "slow")
        await running.hook(receiver, "good")
        for _ in range(12):
            site.open()
        await until(lambda: len(receiver.posted) == 12, within_s=15)
        assert slow.connections <= 4
        states = site.owner("select distinct state from alert_messages where channel_id = 'slow'")
        assert states == [("pending",)]


async def test_critical_message_is_sent_before_others_that_wait_for_its_channel(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    receiver.answering.clear()
    await running.hook(receiver)
    for _ in range(12):
        site.open(severity="warning")
    await until(lambda: len(receiver.posted) == jobs.PER_CHANNEL)
    critical = site.open()
    await until(lambda: len(site.messages()) == 13)
    receiver.answering.set()
    await site.until_ended(13)
    told = [posted.json()["episode_id"] for posted in receiver.posted]
    # As soon as one of those on their way is through, beside others at most.
    assert told.index(str(critical)) < 2 * jobs.PER_CHANNEL


async def test_company_whose_channels_all_hang_does_not_hold_back_another(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    async with http_receiver() as slow:
        slow.answering.clear()
        for number in range(50):
            await running.hook(slow, f"slow-{number}")
        for _ in range(5):
            site.open()
        await until(lambda: len(site.messages()) == 250)
        await until(lambda: slow.connections >= jobs.PER_TENANT)
        secrets = {"url": receiver.url, "signing_key": SIGNING_KEY}
        body = {"kind": "webhook", "secrets": secrets}
        await running.put("alert-channels/good", body, who="other")
        await running.put(
            "alert-contacts/ann", {"name": "Ann", "addresses": {"good": ""}}, who="other"
        )
        site.open("dale", farm_id=None, barn_id=None)
        await until(lambda: len(receiver.posted) == 1, within_s=15)
        claims = "select count(*) from alert_messages where claimed_until > fn_now()"
        assert site.owner(f"{claims} and tenant_id = 'hill'") == [(jobs.PER_TENANT,)]


async def test_mails_of_the_platform_over_the_limit_of_an_hour_wait_for_the_next(
    site: Site, mailbox: MailServer
) -> None:
    # In the middle of an hour, whenever the test runs.
    ((minute,),) = site.owner("select extract(minute from fn_now())::int")
    site.ahead(f"{90 - minute} minutes")
    platform = {
        "alert_smtp_url": SecretStr(mailbox.url), "alert_mail_from": "FarmIQ <a@example.com>",
        "alert_mails_per_hour": 2,
    }  # fmt: skip
    async with mail_server() as own, started(site, **platform) as running:
        await running.mail(own)
        await running.put("alert-channels/platform", {"kind": "email"})
        addresses = {"mail": "ann@example.com", "platform": "ann@example.com"}
        await running.put("alert-contacts/ann", {"name": "Ann", "addresses": addresses}, status=200)
        for _ in range(3):
            site.open(severity="warning")
        # A server of one's own is not counted.
        await until(lambda: len(own.received) == 3)
        waiting = "select attempts from alert_messages where error like 'it waits: % 2 mails%'"
        await until(lambda: site.owner(waiting) == [(0,)])
        assert len(mailbox.received) == 2
        # What is critical waits for nobody's warnings, but not without a limit either.
        for _ in range(3):
            site.open()
        urgent = waiting.replace(" 2 mails", " 4 mails")
        await until(lambda: site.owner(urgent) == [(0,)])
        await until(lambda: len(mailbox.received) == 4)
        site.ahead(f"{150 - minute} minutes")
        await site.until_ended(12)
        assert len(mailbox.received) == 6
    assert set(site.messages("state", "error")) == {("sent", None)}


async def test_step_that_the_database_refuses_is_put_off_and_others_go_on(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    # Not in the way of the service, which runs in this process: it may have the table in hand.
    async with await psycopg.AsyncConnection.connect(
        site.database.admin_url, autocommit=True
    ) as owner:
        await owner.execute(
            "alter table alert_messages add constraint refused check (subject !~ 'odd')"
        )
        try:
            with structlog.testing.capture_logs() as lines:
                odd, good = site.open(message="odd"), site.open()
                await until(lambda: len(receiver.posted) == 1)
                await until(lambda: any(x["event"] == "notification.not_routed" for x in lines))
            assert receiver.posted[0].json()["episode_id"] == str(good)
            put_off = "select episode_id from alert_steps where route_after > fn_now()"
            assert site.owner(put_off) == [(odd,)]
        finally:
            await owner.execute("alter table alert_messages drop constraint refused")
    site.ahead("2 minutes")
    await until(lambda: len(receiver.posted) == 2)
    assert receiver.posted[1].json()["episode_id"] == str(odd)


async def test_resolved_waits_for_the_opened_message_of_the_same_channel(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    await running.hook(receiver)
    receiver.status = 503
    episode = site.open()
    await until(lambda: site.messages("error is not null") == [(True,)])
    site.resolve(episode)
    await until(lambda: len(site.messages()) == 2)
    receiver.status = 200
    site.ahead("10 minutes")
    await site.until_ended(2)
    steps = [posted.json()["step"] for posted in receiver.posted]
    assert steps == sorted(steps)
    assert steps[-1] == "resolved"
    ids = [posted.json()["message_id"] for posted in receiver.posted]
    assert len(set(ids)) == 2, "an attempt that is repeated has the same id"


async def test_redirect_is_not_followed(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    async with http_receiver() as inside:
        await running.hook(receiver)
        receiver.status, receiver.headers = 302, {"Location": inside.url}
        site.open()
        await site.until_ended(1)
        assert inside.connections == 0
    assert site.messages("state", "error") == [("failed", "302: redirects are not followed")]


async def test_private_address_is_refused_when_it_is_used_too(
    site: Site, receiver: HttpReceiver, mailbox: MailServer
) -> None:
    async with started(site) as running:
        await running.hook(receiver)
        await running.mail(mailbox)
    async with started(site, alert_private_hosts=()):
        site.open()
        await site.until_ended(2)
    assert {row[0] for row in site.messages("state")} == {"failed"}
    assert all("private network" in row[0] for row in site.messages("error"))
    assert receiver.connections == mailbox.connections == 0


async def test_mail_server_of_the_platform_is_for_channels_without_their_own(
    site: Site, mailbox: MailServer
) -> None:
    own = {"alert_smtp_url": SecretStr(mailbox.url), "alert_mail_from": "FarmIQ <a@example.com>"}
    async with started(site, alert_private_hosts=(), secrets_key_file=None, **own) as running:
        await running.put("alert-channels/mail", {"kind": "email"})
        await running.put(
            "alert-contacts/ann", {"name": "Ann", "addresses": {"mail": "ann@example.com"}}
        )
        site.open()
        await until(lambda: len(mailbox.received) == 1)
        assert mailbox.received[0]["From"] == "FarmIQ <a@example.com>"
        # Without a key there are no links, and no channel may have secrets.
        assert not LINK.search(mailbox.texts()[0])
        secrets = {"url": "https://example.com", "signing_key": "whsec_" + "A" * 32}
        refused = await running.send(
            "PUT", "alert-channels/hook", {"kind": "webhook", "secrets": secrets}
        )
    assert refused.status_code == 409
    assert "FARMIQ_SECRETS_KEY_FILE" in refused.text


async def test_quiet_hours_delay_and_drop_what_is_over_by_then(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    hour = site.owner("select extract(hour from fn_now() at time zone 'UTC')::int")[0][0]
    quiet = {
        "from": f"{(hour - 1) % 24:02}:00", "until": f"{(hour + 2) % 24:02}:00", "timezone": "UTC",
    }  # fmt: skip
    await running.mail(mailbox, quiet_hours=quiet)
    over, stays = site.open(severity="warning"), site.open(severity="warning")
    site.open(severity="critical")
    await until(lambda: len(mailbox.received) == 1)
    await until(lambda: len(site.messages()) == 3)
    site.resolve(over)
    await until(lambda: ("dropped",) in site.messages("state"))
    site.ahead("3 hours")
    await site.until_ended(3)
    assert [subject.partition(":")[0] for subject in mailbox.subjects()] == ["Critical", "Warning"]
    told = site.owner(
        "select distinct episode_id from alert_messages where state = 'sent' and severity = "
        "'warning'"
    )
    assert told == [(stays,)]


def worsen(site: Site, episode: UUID, severity: str) -> None:
    """As cloud-alerts-service does with an alert that an edge sends again."""
    site.owner(
        """
        with worse as (update alert_episodes set severity = %s where episode_id = %s
          returning tenant_id, episode_id)
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'worsened', fn_now() from worse
        on conflict on constraint alert_steps_pkey do update set
          created_at = excluded.created_at, routed_at = null
        """,
        severity,
        episode,
    )


async def test_alert_that_becomes_worse_is_told_again_each_time(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    episode = site.open(severity="warning")
    await site.until_ended(1)
    worsen(site, episode, "critical")
    await until(lambda: len(mailbox.received) == 2)
    await site.until_ended(2)
    worsen(site, episode, "security")
    await until(lambda: len(mailbox.received) == 3)
    heads = [subject.partition(":")[0] for subject in mailbox.subjects()]
    assert heads == ["Warning", "Critical, it became worse", "Security, it became worse"]


async def test_second_person_is_told_if_nobody_acknowledges(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    bob = {"name": "Bob", "level": 2, "addresses": {"mail": "bob@example.com"}}
    await running.put("alert-contacts/bob", bob)
    await running.put("alert-settings", {"escalate_after_min": 30}, status=200)
    waits, looked_after = site.open(), site.open()
    await site.until_ended(2)
    site.owner(
        "update alert_episodes set state = 'acknowledged' where episode_id = %s", looked_after
    )
    site.ahead("29 minutes")
    site.owner("update alert_episodes set last_at = fn_now()")
    assert [row[1] for row in site.messages()] == ["ann", "ann"]
    site.ahead("31 minutes")
    await until(lambda: len(mailbox.received) == 3)
    assert mailbox.envelopes[2][1] == ["bob@example.com"]
    assert "nobody has acknowledged for 30 minutes" in mailbox.subjects()[2]
    assert site.owner("select episode_id from alert_messages where step = 'escalated'") == [
        (waits,)
    ]


BOB: dict[str, Any] = {"name": "Bob", "level": 2, "addresses": {"mail": "bob@example.com"}}


def escalated(site: Site) -> set[UUID]:
    rows = site.owner("select episode_id from alert_steps where step = 'escalated'")
    return {row[0] for row in rows}


async def test_second_person_is_not_woken_while_the_first_has_quiet_hours(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    ((hour,),) = site.owner("select extract(hour from fn_now() at time zone 'UTC')::int")
    begin, end = (f"{(hour + shift) % 24:02}:00" for shift in (-1, 2))
    quiet_hours = {"from": begin, "until": end, "timezone": "UTC"}
    await running.mail(mailbox, quiet_hours=quiet_hours)
    await running.put("alert-contacts/bob", BOB)
    warning, critical = site.open(severity="warning"), site.open(severity="critical")
    await until(lambda: len(site.messages()) == 2)
    site.ahead("16 minutes")
    await until(lambda: escalated(site) == {critical})
    site.ahead("4 hours")
    await until(lambda: escalated(site) == {warning, critical})
    await site.until_ended(4)


async def test_maintenance_holds_an_escalation_and_what_became_worse(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    await running.put("alert-contacts/bob", BOB)
    held, other = site.open(severity="warning"), site.open(severity="warning", barn_id="2")
    await site.until_ended(2)
    site.owner(
        "insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by, "
        "barn_id) values ('hill', gen_random_uuid(), fn_now(), fn_now() + interval '2 hours', "
        "'washing', 'x', '1')"
    )
    site.ahead("16 minutes")
    worsen(site, held, "critical")
    await until(lambda: escalated(site) == {other})
    query = "select state, send_after > fn_now() from alert_messages where step = 'worsened'"
    await until(lambda: site.owner(query) == [("pending", True)])
    site.ahead("3 hours")
    await until(lambda: escalated(site) == {held, other})
    await site.until_ended(5)


async def test_alert_that_nobody_is_told_of_is_logged_and_counted(
    site: Site, running: Running
) -> None:
    del running
    with structlog.testing.capture_logs() as lines:
        episode = site.open()
        await until(lambda: any(line["event"] == "notification.nobody" for line in lines))
    (line,) = [line for line in lines if line["event"] == "notification.nobody"]
    assert (line["tenant_id"], line["name"]) == ("hill", str(episode))


async def test_episode_of_one_company_is_told_to_its_own_contacts_only(
    site: Site, running: Running, mailbox: MailServer, receiver: HttpReceiver
) -> None:
    await running.mail(mailbox)
    secrets = {"url": receiver.url, "signing_key": "whsec_" + "A" * 32}
    await running.put("alert-channels/mail", {"kind": "webhook", "secrets": secrets}, who="other")
    await running.put(
        "alert-contacts/ann", {"name": "Other", "addresses": {"mail": ""}}, who="other"
    )
    site.open("dale", farm_id=None, barn_id=None)
    await site.until_ended(1)
    assert len(receiver.posted) == 1
    assert mailbox.received == []


async def test_secrets_are_in_no_answer_no_log_and_not_readable_at_rest(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    secret = "tk_v3ry_s3cret"
    receiver.status, receiver.body = 400, f"bad token {secret}".encode()
    said: list[Any] = []
    with structlog.testing.capture_logs() as lines:
        body = {"kind": "ntfy", "secrets": {"url": receiver.url, "token": secret}}
        said.append(await running.put("alert-channels/ntfy", body))
        said.append(await running.put(
            "alert-contacts/ann", {"name": "Ann", "addresses": {"ntfy": "barn"}}
        ))  # fmt: skip
        site.open()
        await site.until_ended(1)
        said += [
            await running.got(path)
            for path in ("alert-channels", "alert-channels/ntfy", "alert-messages")
        ]
    assert said[0]["secrets"] == ["token", "url"]
    assert site.messages("error") == [("400 bad token ***",)]
    everything = json.dumps([said, lines], default=str)
    assert secret not in everything
    ((sealed,),) = site.owner("select secrets from alert_channels")
    assert secret.encode() not in sealed
    assert secret not in str(site.owner("select a::text from alert_actions a"))


async def test_secret_field_of_a_template_is_sent_and_nowhere_else_readable(
    site: Site, running: Running, receiver: HttpReceiver
) -> None:
    secret = "s3cret_of_the_provider"
    receiver.status, receiver.body = 400, f"wrong key {secret}".encode()
    template = {"to": "{address}", "text": "{short}", "api_secret": "{api_secret}"}
    body = {
        "kind": "sms",
        "settings": {"template": template},
        "secrets": {"url": f"{receiver.url}/sms", "fields": {"api_secret": secret}},
    }
    shown = await running.put("alert-channels/sms", body)
    assert shown["secrets"] == ["fields", "url"]
    ann = {"name": "Ann", "addresses": {"sms": "+66812345678"}}
    await running.put("alert-contacts/ann", ann)
    site.open()
    await site.until_ended(1)
    assert receiver.posted[0].json()["api_secret"] == secret
    assert site.messages("error") == [("400 wrong key ***",)]
    stored = "select c::text from alert_channels c union all select m::text from alert_messages m"
    assert secret not in str([shown, site.owner(stored)])
