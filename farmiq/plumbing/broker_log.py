"""Pure: what the log of a NATS server says it refused, and whom."""

import re
from dataclasses import dataclass

MAX_WORDS = 200

PERMISSION = "broker.permission"
LOGIN = "broker.login"
FORM = "broker.form"
RETAINED = "broker.retained"
TAKEOVER = "broker.takeover"

# [pid] date time [ERR] address:port - mid:40 - "client id" - Publish Violation - Subject "a.b"
_VIOLATION = re.compile(
    r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+ - "
    r"(?P<client>.*) - (?P<what>Publish|Subscription) Violation - (?P<rest>.*)"
)
_USER = re.compile(r' - User "(?P<login>.*)"$')
_LOGIN = re.compile(r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+.* - authentication error(?P<rest>.*)")
# Too large, or no topic: the broker drops the connection, and most clients try the same again.
_FORM = re.compile(
    r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+ - (?P<client>.*) - "
    r"(?P<rest>maximum payload exceeded.*|character not supported.*|invalid character in .*)"
)
_RETAINED = re.compile(
    r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+ - (?P<client>.*) - "
    r"(?P<rest>unable to store retained message .*)"
)
# [WRN] address:port - mid:9 - "new client" - Replacing old client "…" since both have the same …
_TAKEOVER = re.compile(r"\[WRN\] (?P<host>\S+):\d+ - mid:\d+ - .*(?P<rest>Replacing old client .*)")
_TAKEN = re.compile(r'same client ID "(?P<client>.*)"')


@dataclass(frozen=True, slots=True)
class Refusal:
    """`sender` is the address it came from: the one thing that the sender does not choose."""

    kind: str
    sender: str
    words: str
    # Whom it said it is, where the log tells.
    login: str | None = None
    # Of a takeover: the place that was taken.
    client_id: str | None = None


def read(line: str) -> Refusal | None:
    """What this line of a NATS server's log tells of, or None."""
    if found := _VIOLATION.search(line):
        did = "publish" if found["what"] == "Publish" else "subscribe"
        what = f"client {found['client']} tried to {did}: {found['rest']}"
        return Refusal(PERMISSION, found["host"], _printable(what))
    if found := _LOGIN.search(line):
        user = _USER.search(found["rest"])
        words = _printable(f"no such login{found['rest']}")
        return Refusal(LOGIN, found["host"], words, user and user["login"])
    if found := _FORM.search(line):
        return Refusal(
            FORM, found["host"], _printable(f"client {found['client']}: {found['rest']}")
        )
    if found := _RETAINED.search(line):
        words = _printable(f"client {found['client']}: {found['rest']}")
        return Refusal(RETAINED, found["host"], words)
    if found := _TAKEOVER.search(line):
        taken = _TAKEN.search(found["rest"])
        words = _printable(found["rest"])
        return Refusal(TAKEOVER, found["host"], words, client_id=taken and taken["client"])
    return None


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:MAX_WORDS]
