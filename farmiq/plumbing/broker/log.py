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
    # The login that it used, if the log has it.
    login: str | None = None
    # Of a takeover: the place that was taken.
    client_id: str | None = None


def read(line: str) -> Refusal | None:
    """Return the rejection that a line of a NATS server's log reports, or None."""
    if match := _VIOLATION.search(line):
        did = "publish" if match["what"] == "Publish" else "subscribe"
        what = f"client {match['client']} tried to {did}: {match['rest']}"
        return Refusal(PERMISSION, match["host"], _printable(what))
    if match := _LOGIN.search(line):
        user = _USER.search(match["rest"])
        words = _printable(f"no such login{match['rest']}")
        return Refusal(LOGIN, match["host"], words, user and user["login"])
    if match := _FORM.search(line):
        return Refusal(
            FORM, match["host"], _printable(f"client {match['client']}: {match['rest']}")
        )
    if match := _RETAINED.search(line):
        words = _printable(f"client {match['client']}: {match['rest']}")
        return Refusal(RETAINED, match["host"], words)
    if match := _TAKEOVER.search(line):
        taken = _TAKEN.search(match["rest"])
        words = _printable(match["rest"])
        return Refusal(TAKEOVER, match["host"], words, client_id=taken and taken["client"])
    return None


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:MAX_WORDS]
