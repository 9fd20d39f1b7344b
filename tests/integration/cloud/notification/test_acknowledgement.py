"""The link in a message: looking changes nothing, the button acknowledges, once."""

import re
from typing import Any
from uuid import UUID

import httpx2

from farmiq.cloud.notification import acknowledgement
from farmiq.plumbing import ids, sealing
from tests.integration.cloud.notification.conftest import Running, Site
from tests.support.mail_server import MailServer
from tests.support.until import until

LINK = re.compile(r"http://cloud\.test(/alerts/ack/\S+)")


async def told(
    site: Site, running: Running, mailbox: MailServer, **changes: Any
) -> tuple[UUID, str]:
    """An episode, and the address in the message that Ann got of it."""
    await running.mail(mailbox)
    episode = site.open(**changes)
    await site.until_ended(1)
    found = LINK.search(mailbox.texts()[0])
    assert found is not None
    return episode, found[1]


def state(site: Site) -> tuple[Any, ...]:
    ((row),) = site.owner("select state, acknowledged_by, acknowledged_at from alert_episodes")
    return row


async def test_get_shows_one_button_and_changes_nothing(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    _, path = await told(site, running, mailbox, message='hot <script>alert("x")</script>')
    before = state(site)
    for method in ("GET", "GET"):
        page = await running.client.request(method, path)
        assert page.status_code == 200
    assert page.text.count("<button") == 1
    assert "Barn 1, North Farm" in page.text
    assert "<script>" not in page.text
    # On the whole page: at night it is opened in a dark room.
    assert ":root{color-scheme:light dark}" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"
    assert state(site) == before == ("active", None, None)
    assert site.owner("select action from alert_actions where action = 'acknowledge'") == []


async def test_mail_and_its_page_are_in_the_language_of_the_person(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    await running.mail(mailbox)
    bernd = {"name": "Bernd", "addresses": {"mail": "bernd@example.com"}, "language": "de"}
    await running.put("alert-contacts/bernd", bernd)
    site.open()
    await site.until_ended(2)
    by_person = dict(zip((m["To"] for m in mailbox.received), mailbox.texts(), strict=True))
    assert "What to do" in by_person["ann@example.com"]
    assert "Was zu tun ist" in by_person["bernd@example.com"]
    assert "Ich kümmere mich" in by_person["bernd@example.com"]
    found = LINK.search(by_person["bernd@example.com"])
    assert found is not None
    page = await running.client.get(found[1], headers={"Accept-Language": "de-CH, en;q=0.5"})
    for text in ('<html lang="de">', "Kritisch", "Ich kümmere mich", "Seit "):
        assert text in page.text, text
    assert "I look after it" in (await running.client.get(found[1])).text


async def test_post_acknowledges_once_and_others_are_told(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    bob = {"name": "Bob", "addresses": {"mail": "bob@example.com"}}
    await running.mail(mailbox)
    await running.put("alert-contacts/bob", bob)
    site.open()
    await site.until_ended(2)
    of_ann = [message for message in mailbox.received if message["To"] == "ann@example.com"]
    found = LINK.search(of_ann[0].get_content())
    assert found is not None
    page = await running.client.post(found[1])
    assert page.status_code == 200
    assert "Acknowledged by Ann (ann)" in page.text
    acknowledged = state(site)
    assert acknowledged[:2] == ("acknowledged", "Ann (ann)")
    again = await running.client.post(found[1])
    assert again.status_code == 200
    assert "<button" not in again.text
    assert state(site) == acknowledged
    assert site.owner("select actor, action from alert_actions where action = 'acknowledge'") == [
        ("Ann (ann)", "acknowledge")
    ]
    await site.until_ended(3)
    await until(lambda: len(mailbox.received) == 3)
    assert mailbox.envelopes[2][1] == ["bob@example.com"]
    assert mailbox.subjects()[2].startswith("Acknowledged by Ann (ann)")


async def test_page_of_an_episode_that_is_over_says_so(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    episode, path = await told(site, running, mailbox)
    site.resolve(episode)
    for page in (await running.client.get(path), await running.client.post(path)):
        assert "It is over already" in page.text
        assert "<button" not in page.text
    assert state(site)[0] == "resolved"


async def refused(running: Running, path: str) -> bool:
    pages: list[httpx2.Response] = [
        await running.client.get(path),
        await running.client.post(path),
    ]
    return all(page.status_code == 404 and "does not work" in page.text for page in pages)


async def test_expired_forged_and_foreign_links_are_refused(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    episode, path = await told(site, running, mailbox)
    key_file = site.settings.secrets_key_file
    assert key_file is not None

    def link(
        sealer: sealing.Sealer, tenant_id: str, contact_id: str = "ann", about: UUID = episode
    ) -> str:
        ((now,),) = site.owner("select fn_now()")
        return acknowledgement.link(
            sealer, "", tenant_id=tenant_id, episode_id=about, contact_id=contact_id,
            created_at=now,
        )  # fmt: skip

    own = sealing.read(key_file)
    assert await refused(running, f"{path[:-1]}{'A' if path[-1] != 'A' else 'B'}")
    assert await refused(running, f"{acknowledgement.PATH}/x")
    assert await refused(running, link(sealing.Sealer([bytes(32)]), "hill"))
    # Of another company, of a contact that there is not: signed by us, and still nobody's.
    assert await refused(running, link(own, "dale"))
    assert await refused(running, link(own, "hill", about=ids.new()))
    assert await refused(running, link(own, "hill", "eve"))
    assert state(site)[0] == "active"
    site.ahead("73 hours")
    assert await refused(running, path)
    assert state(site)[0] == "active"


async def test_link_of_a_contact_who_left_shows_nothing_and_does_not_acknowledge(
    site: Site, running: Running, mailbox: MailServer
) -> None:
    _, path = await told(site, running, mailbox)
    site.owner("update alert_contacts set is_enabled = false")
    assert await refused(running, path)
    assert (await running.send("DELETE", "alert-contacts/ann")).status_code == 204
    assert await refused(running, path)
    assert state(site)[0] == "active"
