"""Channels: what each kind needs, and the requests that they make."""

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud.notification.sending import channels
from farmiq.cloud.notification.sending.channels import Channel, ChannelSettings, Secrets

SIGNING_KEY = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def channel(kind: Any, *, settings: Any = None, **secrets: Any) -> Channel:
    return Channel("c", kind, ChannelSettings(**(settings or {})), Secrets(**secrets))


GOOD = [
    channel("email"),
    channel("email", settings={"sender": "FarmIQ <a@example.com>"}, smtp_url="smtps://u:p@h"),
    channel("webhook", url="https://example.com/hook", signing_key=SIGNING_KEY),
    channel("ntfy"),
    channel("telegram", token="123:abc"),
    channel(
        "sms",
        settings={"template": {"to": "{address}", "text": "{short}"}},
        url="https://sms.example.com",
        headers={"X-Key": "k"},
    ),
    channel(
        "post",
        settings={"template": {"key": "{api_secret}"}},
        url="https://post.example.com",
        fields={"api_secret": "k"},
    ),
    channel("web_push", settings={"contact": "mailto:a@example.com"}, vapid_key="x"),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda item: item.kind)
def test_channel_with_all_that_its_kind_needs_is_good(good: Channel) -> None:
    assert channels.problems(good) == []


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (channel("webhook", signing_key=SIGNING_KEY), "secrets.url"),
        (channel("webhook", url="https://h", signing_key="short"), "secrets.signing_key"),
        (channel("webhook", url="ftp://h", signing_key=SIGNING_KEY), "secrets.url"),
        (channel("webhook", url="https://u:p@h", signing_key=SIGNING_KEY), "secrets.url"),
        (channel("email", url="https://h"), "secrets.url"),
        (channel("email", smtp_url="http://h"), "secrets.smtp_url"),
        (channel("email", settings={"sender": "a\nb"}), "settings.sender"),
        (channel("email", settings={"sender": "a@example.com"}), "settings.sender"),
        (channel("telegram", token="a/../b"), "secrets.token"),
        (channel("sms", url="https://h"), "settings.template"),
        (channel("sms", settings={"template": {"a": "{secret}"}}, url="https://h"),
         "settings.template"),
        (channel("sms", settings={"template": {}}, url="https://h", headers={"A b": "x"}),
         "secrets.headers"),
        (channel("sms", settings={"template": {}}, url="https://h", headers={"Host": "x"}),
         "secrets.headers"),
        (channel("sms", settings={"template": {}}, url="https://h", headers={"A": "x\r\nB: y"}),
         "secrets.headers"),
        (channel("sms", settings={"template": {}}, url="https://h", fields={"text": "x"}),
         "secrets.fields"),
        (channel("sms", settings={"template": {}}, url="https://h", fields={"A b": "x"}),
         "secrets.fields"),
        (channel("ntfy", fields={"a": "x"}), "secrets.fields"),
        (channel("web_push", settings={"contact": "a@example.com"}), "settings.contact"),
    ],
)  # fmt: skip
def test_wrong_channel_is_refused_by_field_and_quotes_no_secret(bad: Channel, field: str) -> None:
    problems = dict(channels.problems(bad))
    assert field in problems
    for secret in (bad.secrets.token, bad.secrets.smtp_url, bad.secrets.signing_key):
        assert secret is None or not any(secret in reason for reason in problems.values())


TEMPLATE = {
    "to": "{address}",
    "n": "{priority}",
    "text": "now: {message}!",
    "deep": [{"a": "{unit}"}],
}


@given(st.text(), st.text())
def test_no_value_becomes_a_part_of_the_structure_of_json(address: str, message: str) -> None:
    made = channels.request(
        channel("post", settings={"template": TEMPLATE}, url="https://h"),
        {"address": address, "message": message, "priority": 5, "unit": None},
    )
    assert json.loads(made.content) == {
        "to": address, "n": 5, "text": f"now: {message}!", "deep": [{}],
    }  # fmt: skip


def test_value_with_braces_is_not_a_template_itself() -> None:
    values = {"address": "{message}", "message": '"}, {"x": "{address}'}
    template = {"to": "{address}", "text": "{message} {address}"}
    made = channels.request(
        channel("post", settings={"template": template}, url="https://h"), values
    )
    text = '"}, {"x": "{address} {message}'
    assert json.loads(made.content) == {"to": "{message}", "text": text}


def test_form_is_encoded_by_fields() -> None:
    settings = {
        "template": {"To": "{address}", "Body": "{short}"},
        "content_type": "application/x-www-form-urlencoded",
    }
    made = channels.request(
        channel("sms", settings=settings, url="https://h"),
        {"address": "+66 1&Body=x", "short": "hot & dry = 31 °C"},
    )
    assert parse_qs(made.content.decode()) == {
        "To": ["+66 1&Body=x"], "Body": ["hot & dry = 31 °C"],
    }  # fmt: skip
    assert made.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_presets_of_ntfy_and_telegram_post_what_those_expect() -> None:
    values = {
        "address": "barn", "subject": "Hot", "text": "31 °C", "priority": 5, "severity": "critical",
        "link": None,
    }  # fmt: skip
    ntfy = channels.request(channel("ntfy", token="tk_1"), values)
    assert (ntfy.url, ntfy.headers["Authorization"]) == ("https://ntfy.sh", "Bearer tk_1")
    assert json.loads(ntfy.content) == {
        "topic": "barn", "title": "Hot", "message": "31 °C", "priority": 5, "tags": ["critical"],
    }  # fmt: skip
    telegram = channels.request(channel("telegram", token="1:a"), values)
    assert telegram.url == "https://api.telegram.org/bot1:a/sendMessage"
    assert json.loads(telegram.content)["text"] == "Hot\n\n31 °C"


def test_webhook_is_signed_as_standard_webhooks_has_it() -> None:
    hook = channel("webhook", url="https://h", signing_key=SIGNING_KEY)
    made = channels.webhook(hook, "m-1", b'{"a":1}', timestamp=1700000000)
    signed = hmac.digest(bytes(range(32)), b'm-1.1700000000.{"a":1}', hashlib.sha256)
    assert made.headers["webhook-signature"] == f"v1,{base64.b64encode(signed).decode()}"
    assert made.headers["webhook-id"] == "m-1"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("email", "ann@example.com", "ann@example.com,eve@example.com"),
        ("webhook", "", "x"),
        ("ntfy", "barn-3", "a/b"),
        ("telegram", "-100123", "../x"),
        ("sms", "+66812345678", "+66 81"),
        ("post", "anything", "two\nlines"),
        ("web_push", None, "{}"),
    ],
)
def test_address_has_to_fit_its_channel(kind: str, good: str | None, bad: str) -> None:
    assert good is None or channels.address_problem(kind, good) is None
    assert channels.address_problem(kind, bad)


def test_secrets_that_a_receiver_quotes_are_redacted() -> None:
    secrets = Secrets(token="tk_1", headers={"X-Key": "k3y"}, fields={"api_secret": "f13ld"})
    assert channels.redacted("bad tk_1, k3y and f13ld", secrets) == "bad ***, *** and ***"
