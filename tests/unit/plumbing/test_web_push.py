"""Web push: only the receiver's key reads a message, and the sender's is shown."""

import base64
import json
from datetime import UTC, datetime

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from farmiq.plumbing import web_push
from tests.support.push_receiver import PushReceiver

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def test_message_is_read_with_the_receivers_key_only() -> None:
    ann, eve = PushReceiver.new("https://push.test/ann"), PushReceiver.new("https://push.test/eve")
    body = web_push.encrypt("31 °C".encode(), web_push.read(ann.subscription()))
    assert b"31" not in body
    assert ann.decrypt(body).decode() == "31 °C"
    with pytest.raises(Exception, match=r"^$"):
        eve.decrypt(body)


def test_sender_is_known_by_a_signed_token_for_the_push_service() -> None:
    private = web_push.new_private_key()
    header = web_push.authorization(
        private, "https://push.test:8443/ann", contact="mailto:a@example.com", now=NOW
    )
    token, _, shown = header.removeprefix("vapid t=").partition(", k=")
    assert shown == web_push.public_key(private)
    point = base64.urlsafe_b64decode(shown + "==")
    key = ECKey.import_key(
        {
            "kty": "EC",
            "crv": "P-256",
            "x": base64.urlsafe_b64encode(point[1:33]).rstrip(b"=").decode(),
            "y": base64.urlsafe_b64encode(point[33:]).rstrip(b"=").decode(),
        }
    )
    claims = jwt.decode(token, key, algorithms=["ES256"]).claims
    assert claims["aud"] == "https://push.test:8443"
    assert claims["sub"] == "mailto:a@example.com"
    assert 0 < claims["exp"] - NOW.timestamp() <= 24 * 3600


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "x",
        json.dumps({"endpoint": "https://p.test", "keys": {"p256dh": "AAAA", "auth": "AAAA"}}),
        json.dumps({"endpoint": "https://p.test", "keys": {"p256dh": "!", "auth": "!"}}),
    ],
)  # fmt: skip
def test_what_is_no_subscription_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="push subscription"):
        web_push.read(text)


def test_content_that_does_not_fit_a_record_is_refused() -> None:
    ann = web_push.read(PushReceiver.new("https://push.test/ann").subscription())
    with pytest.raises(ValueError, match="at most"):
        web_push.encrypt(b"x" * 5000, ann)
