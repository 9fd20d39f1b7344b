"""`farmiq alert channel|contact|messages|escalation|key`: as people type it."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.integration.cloud.notification.conftest import ANN, Running, Site, started
from tests.support.mail_server import MailServer
from tests.support.typed import Done, farmiq

SECRET = "v3ry-s3cret"


async def typed(site: Site, *words: str, code: int = 0) -> Done:
    environment = {
        "FARMIQ_CLOUD_DB_URL": site.database.url,
        "FARMIQ_SECRETS_KEY_FILE": str(site.settings.secrets_key_file),
        "FARMIQ_ALERT_PRIVATE_HOSTS": "127.0.0.1",
    }
    done = await asyncio.to_thread(farmiq, "alert", *words, **environment)
    assert done.returncode == code, done
    assert SECRET not in done.stdout + done.stderr
    return done


def written(folder: Path, name: str, body: Any) -> str:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    return str(file)


async def test_channel_and_contact_are_set_tested_listed_and_removed(
    site: Site, running: Running, mailbox: MailServer, tmp_path: Path
) -> None:
    del running
    mailbox.user, mailbox.password = "farm", SECRET
    tenant = ("--tenant", "hill")
    channel = {
        "kind": "email",
        "settings": {"sender": "FarmIQ <alerts@example.com>"},
        "secrets": {"smtp_url": mailbox.url},
    }
    file = written(tmp_path, "mail", channel)
    done = await typed(site, "channel", "set", "mail", file, *tenant, "--json")
    assert json.loads(done.stdout)["secrets"] == ["smtp_url"]
    await typed(site, "contact", "set", "ann", written(tmp_path, "ann", ANN), *tenant)
    assert "127.0.0.1" in (await typed(site, "channel", "ls", *tenant)).stdout
    assert "Ann" in (await typed(site, "contact", "ls", *tenant)).stdout
    assert (await typed(site, "channel", "test", "mail", "--contact", "ann", *tenant)).stdout == (
        "sent\n"
    )
    assert len(mailbox.received) == 1
    mailbox.answers["RCPT"] = "550 unknown"
    failed = await typed(site, "channel", "test", "mail", "--to", "x@example.com", *tenant, code=1)
    assert "failed  the mail server refused a receiver: 550 unknown" in failed.stdout
    listed = await typed(site, "messages", *tenant, "--json", code=3)
    assert [row["state"] for row in json.loads(listed.stdout)] == ["failed", "sent"]
    await typed(site, "contact", "rm", "ann", *tenant)
    await typed(site, "channel", "rm", "mail", *tenant)
    assert "nothing" in (await typed(site, "channel", "ls", *tenant)).stdout
    actors = site.owner("select distinct split_part(actor, ' ', 1) from alert_actions")
    assert actors == [("cli",)]


async def test_wrong_files_are_refused_with_the_reason(site: Site, tmp_path: Path) -> None:
    tenant = ("--tenant", "hill")
    odd = written(tmp_path, "odd", {"kind": "webhook", "secrets": {"url": f"https://{SECRET} x"}})
    done = await typed(site, "channel", "set", "hook", odd, *tenant, code=2)
    assert "secrets.signing_key a channel of kind webhook needs it" in done.stderr
    inside = {"url": "https://10.0.0.1/", "signing_key": "whsec_" + "A" * 32}
    file = written(tmp_path, "inside", {"kind": "webhook", "secrets": inside})
    done = await typed(site, "channel", "set", "hook", file, *tenant, code=2)
    assert "private network" in done.stderr
    await typed(site, "channel", "set", "hook", str(tmp_path / "none.json"), *tenant, code=2)
    await typed(site, "channel", "rm", "hook", *tenant, code=1)
    await typed(site, "contact", "set", "ann", written(tmp_path, "ann", ANN), *tenant, code=2)


async def test_escalation_and_key_are_set(site: Site, tmp_path: Path) -> None:
    tenant = ("--tenant", "hill")
    assert "after 15 minutes" in (await typed(site, "escalation", *tenant)).stdout
    assert "after 5 minutes" in (await typed(site, "escalation", "5", *tenant)).stdout
    assert "never" in (await typed(site, "escalation", "never", *tenant)).stdout
    await typed(site, "escalation", "soon", *tenant, code=2)
    file = tmp_path / "new.key"
    assert str(file) in (await typed(site, "key", str(file))).stdout
    await typed(site, "key", str(file), code=2)
    async with started(site, secrets_key_file=file) as running:
        await running.put("alert-channels/push", {
            "kind": "web_push", "settings": {"contact": "mailto:a@example.com"},
        })  # fmt: skip
