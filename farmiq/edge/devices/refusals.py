"""Pure: what a broker's log says it refused, or we refused for it, becomes alerts, few of them."""

from collections import Counter
from collections.abc import Iterable

from farmiq.edge.alerts import Alert
from farmiq.plumbing.broker_callout import CLIENT_ID, SESSIONS
from farmiq.plumbing.broker_log import FORM, LOGIN, PERMISSION, RETAINED, TAKEOVER, Refusal

# Whoever is refused chooses its words: at most this many senders are told apart in one look.
MAX_SENDERS = 50
OTHERS = "others"
# Somebody took its own place.
BACK = "broker.back"


def alerts(refusals: Iterable[Refusal], *, own_ids: bool = False) -> dict[Alert, int]:
    """One alert per kind and sender, with the last words and a count.

    `own_ids`: the broker let nobody in under a client id with a `/` but the login it begins with.
    """
    counts: Counter[tuple[str, str]] = Counter()
    words: dict[tuple[str, str], str] = {}
    for one in refusals:
        kind = BACK if own_ids and "/" in (one.client_id or "") else one.kind
        full = len(counts) >= MAX_SENDERS
        known = (kind, one.sender) in counts
        matter = (kind, one.sender if known or not full else OTHERS)
        counts[matter] += 1
        words[matter] = one.words
    return {_alert(*matter, words[matter]): count for matter, count in counts.items()}


_TO_DO = {
    PERMISSION: "find out which device it is; `farmiq device revoke` cuts one off",
    LOGIN: "a device has an old secret (`farmiq device rotate` makes a new one), or somebody "
    "guesses",
    CLIENT_ID: "give the device such a client id; if it has one, somebody has its password: "
    "`farmiq device rotate`",
    SESSIONS: "let the device keep one client id; if it has one, somebody has its password: "
    "`farmiq device rotate`",
    FORM: "mend the device: what it sends is never taken, and it may try that one message for ever",
    RETAINED: "mend the device: only its status is retained, and only if it is short; the message "
    "itself was delivered",
    BACK: "nothing after a cut of the network; if none was cut, two devices have one login and one "
    "client id",
    TAKEOVER: "after a cut of the network a client takes its own place; if none was cut, two "
    "devices have one client id, or somebody uses one that is not theirs",
}


def _alert(kind: str, sender: str, words: str) -> Alert:
    did = "let in" if kind in (TAKEOVER, BACK) else "refused"
    told = f"the broker {did} {sender}: {words}. To do: {_TO_DO[kind]}"
    return Alert(kind, sender, "warning" if kind in (FORM, RETAINED, BACK) else "security", told)
