"""Sends one message over one channel, with a deadline; says whether to try again."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from farmiq.cloud.notification import words
from farmiq.cloud.notification.sending import channels
from farmiq.cloud.notification.sending.channels import Channel, Request
from farmiq.cloud.notification.sending.store import Claimed
from farmiq.plumbing import mail, outgoing, retry, web_push
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.outgoing import Answer

# Less than a claim lasts (jobs.CLAIM_S): who still sends has not lost it.
DEADLINE_S = 20.0
MAX_TEXT = 3_500
# Of a short message; its link is whole whatever that costs, and so much of the subject.
MAX_SHORT = 300
MIN_SHORT_SUBJECT = 40
MAX_ERROR = 300
PUSH_TTL_S = 86_400
# What a test message opens in the console.
PUSH_TEST_PAGE = "/settings/notifications"
# Not the receiver's last word, though it is a refusal.
_PASSING = frozenset({408, 409, 425, 429})
_URGENT = frozenset({"critical", "security"})


class DeliveryError(Exception):
    """The message was not sent; the text is for the company and has no secret of it."""

    def __init__(
        self, text: str, *, permanent: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(text)
        self.permanent, self.retry_after_s = permanent, retry_after_s


@dataclass(frozen=True)
class Senders:
    """`smtp_url` and `sender` are of the mail server that is used by channels without their own."""

    smtp_url: str | None
    sender: str | None
    allowed: Allowed
    context: ssl.SSLContext

    async def send(
        self, channel: Channel, message: Claimed, *, link: str | None, now: datetime
    ) -> None:
        """Returns when the receiver has accepted it. Raises DeliveryError."""
        try:
            if channel.kind == "email":
                await self._mail(channel, message, link)
            else:
                await self._post(channel, message, _request(channel, message, link, now), now)
        except DeliveryError as error:
            raise DeliveryError(
                channels.redacted(str(error), channel.secrets)[:MAX_ERROR],
                permanent=error.permanent,
                retry_after_s=error.retry_after_s,
            ) from None

    async def _mail(self, channel: Channel, message: Claimed, link: str | None) -> None:
        own = channel.secrets.smtp_url
        # Nobody speaks for the platform but itself.
        url, sender = (own, channel.settings.sender) if own else (self.smtp_url, self.sender)
        if url is None or sender is None:
            raise DeliveryError(
                "there is no mail server: set smtp_url and sender of the channel, or "
                "FARMIQ_ALERT_SMTP_URL and FARMIQ_ALERT_MAIL_FROM"
            )
        try:
            # An address that a company gave must not lead into our own network.
            where = mail.server(url)
            target = await self._resolve(where, message.tenant_id) if own else None
            await mail.send(
                url,
                sender=sender,
                to=[message.address],
                subject=message.subject,
                text=_text(message, link),
                message_id=str(message.message_id),
                attachment=_attachment(message),
                connect_to=None if target is None else str(target.address),
                context=self.context,
                deadline_s=DEADLINE_S,
            )
        except mail.MailError as error:
            raise DeliveryError(str(error), permanent=error.permanent) from None
        except ValueError as error:
            raise DeliveryError(str(error), permanent=True) from None

    async def _resolve(self, where: mail.Server, owner: str) -> outgoing.Target:
        try:
            return await outgoing.resolve(where.host, where.port, allowed=self.allowed, owner=owner)
        except outgoing.ForbiddenHostError as error:
            raise DeliveryError(str(error), permanent=True) from None
        except outgoing.NoAnswerError as error:
            raise DeliveryError(str(error)) from None

    async def _post(
        self, channel: Channel, message: Claimed, request: Request, now: datetime
    ) -> None:
        try:
            answer = await outgoing.post(
                request.url,
                content=request.content,
                headers=request.headers,
                allowed=self.allowed,
                context=self.context,
                deadline_s=DEADLINE_S,
                owner=message.tenant_id,
            )
        except (outgoing.ForbiddenHostError, ValueError) as error:
            raise DeliveryError(str(error), permanent=True) from None
        except outgoing.NoAnswerError as error:
            raise DeliveryError(str(error)) from None
        if (problem := classify_response(answer, kind=channel.kind, now=now)) is not None:
            raise problem


def classify_response(answer: Answer, *, kind: str, now: datetime) -> DeliveryError | None:
    """Pure: what an answer means; None is success."""
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004
        return None
    if kind == "web_push" and status in {404, 410}:
        return DeliveryError("the browser has ended its subscription", permanent=True)
    if 300 <= status < 400:  # noqa: PLR2004
        return DeliveryError(f"{status}: redirects are not followed", permanent=True)
    answered = " ".join(answer.body.decode("utf-8", "replace").split())[:200]
    shown = "".join(letter for letter in answered if letter.isprintable())
    permanent = 400 <= status < 500 and status not in _PASSING  # noqa: PLR2004
    wait_s = retry.retry_after_s(answer.headers.get("Retry-After"), now=now)
    return DeliveryError(f"{status} {shown}".rstrip(), permanent=permanent, retry_after_s=wait_s)


def _request(channel: Channel, message: Claimed, link: str | None, now: datetime) -> Request:
    if channel.kind == "webhook":
        content = json.dumps(_content(message, link)).encode()
        timestamp = int(now.timestamp())
        return channels.webhook(channel, str(message.message_id), content, timestamp=timestamp)
    if channel.kind == "web_push":
        return _push(channel, message, link, now)
    return channels.request(channel, _values(message, link))


def _push(channel: Channel, message: Claimed, link: str | None, now: datetime) -> Request:
    key = channel.secrets.vapid_key
    if key is None:
        raise DeliveryError("the channel has no key: save it again", permanent=True)
    try:
        subscription = web_push.read(message.address)
    except ValueError as error:
        raise DeliveryError(f"the address {error}", permanent=True) from None
    shown = {
        "message_id": str(message.message_id),
        "title": message.subject,
        "body": message.body[:600],
        "severity": message.severity,
        "step": message.step,
        "url": link,
        "episode_id": str(message.episode_id) if message.episode_id else None,
        "page": f"/alerts/{message.episode_id}" if message.episode_id else PUSH_TEST_PAGE,
    }
    headers = {
        "Authorization": web_push.authorization(
            key, subscription.endpoint, contact=channel.settings.contact or "", now=now
        ),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(PUSH_TTL_S),
        "Urgency": "high" if message.severity in _URGENT else "normal",
    }
    content = json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")
    return Request(subscription.endpoint, headers, web_push.encrypt(content, subscription))


def _attachment(message: Claimed) -> mail.Attachment | None:
    if message.file_name is None or message.file is None:
        return None
    return mail.Attachment(message.file_name, message.file)


def _text(message: Claimed, link: str | None) -> str:
    if link is None:
        return message.body
    return words.with_link(message.body, link, str(message.content.get("language", "en")))


def _content(message: Claimed, link: str | None) -> dict[str, Any]:
    """The body of a webhook."""
    return {
        "message_id": str(message.message_id),
        **message.content,
        "subject": message.subject,
        "text": message.body,
        "link": link,
    }


def _short(subject: str, link: str | None) -> str:
    """Subject and link. A link that is cut acknowledges nothing, so the subject is."""
    if link is None:
        return words.cut(subject, MAX_SHORT)
    room = MAX_SHORT - len(link) - 1
    return f"{words.cut(subject, max(room, MIN_SHORT_SUBJECT))} {link}"


def _values(message: Claimed, link: str | None) -> Mapping[str, Any]:
    """What the names of a template stand for."""
    text = _text(message, link)
    return {
        **_content(message, link),
        "text": text if len(text) <= MAX_TEXT else message.body[:MAX_TEXT],
        "short": _short(message.subject, link),
        "priority": words.PRIORITIES.get(message.severity, 3),
        "address": message.address,
        "farm": message.content.get("farm") or message.content.get("farm_id"),
        "barn": message.content.get("barn") or message.content.get("barn_id"),
    }
