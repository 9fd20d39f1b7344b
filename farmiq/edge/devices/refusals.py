"""Pure: what a broker's log says it refused, by whom and how often."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from farmiq.edge.alerts import Alert

# Whoever is refused chooses its words: at most this many senders are told apart in one look.
MOST_SENDERS = 50
MOST_WORDS = 200
OTHERS = "others"

PERMISSION = "broker.permission"
LOGIN = "broker.login"
FORM = "broker.form"

# [pid] date time [ERR] address:port - mid:40 - "client id" - Publish Violation - Subject "a.b"
_VIOLATION = re.compile(
    r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+ - "
    r"(?P<client>.*) - (?P<what>Publish|Subscription) Violation - (?P<rest>.*)"
)
_LOGIN = re.compile(r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+.* - authentication error(?P<rest>.*)")
# Too large, or no topic: the broker drops the connection, and most clients try the same again.
_FORM = re.compile(
    r"\[ERR\] (?P<host>\S+):\d+ - mid:\d+ - (?P<client>.*) - "
    r"(?P<rest>maximum payload exceeded.*|character not supported.*|invalid character in .*)"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """`sender` is the address it came from: the one thing that the sender does not choose."""

    kind: str
    sender: str
    words: str


def read(line: str) -> Refusal | None:
    """What this line of a NATS server's log tells of, or None."""
    if found := _VIOLATION.search(line):
        did = "publish" if found["what"] == "Publish" else "subscribe"
        what = f"client {found['client']} tried to {did}: {found['rest']}"
        return Refusal(PERMISSION, found["host"], _printable(what))
    if found := _LOGIN.search(line):
        return Refusal(LOGIN, found["host"], _printable(f"no such login{found['rest']}"))
    if found := _FORM.search(line):
        return Refusal(
            FORM, found["host"], _printable(f"client {found['client']}: {found['rest']}")
        )
    return None


def alerts(refusals: Iterable[Refusal]) -> dict[Alert, int]:
    """One alert per kind and sender, with the last words and a count."""
    counts: Counter[tuple[str, str]] = Counter()
    words: dict[tuple[str, str], str] = {}
    for one in refusals:
        full = len(counts) >= MOST_SENDERS
        known = (one.kind, one.sender) in counts
        matter = (one.kind, one.sender if known or not full else OTHERS)
        counts[matter] += 1
        words[matter] = one.words
    return {_alert(*matter, words[matter]): count for matter, count in counts.items()}


_TO_DO = {
    PERMISSION: "find out which device it is; `farmiq device revoke` cuts one off",
    LOGIN: "a device has an old secret (`farmiq device rotate` makes a new one), or somebody "
    "guesses",
    FORM: "mend the device: what it sends is never taken, and it may try that one message for ever",
}


def _alert(kind: str, sender: str, words: str) -> Alert:
    told = f"the broker refused {sender}: {words}. To do: {_TO_DO[kind]}"
    return Alert(kind, sender, "warning" if kind == FORM else "security", told)


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:MOST_WORDS]
