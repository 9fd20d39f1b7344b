"""Pure: the address of an MQTT broker, read and written."""

from urllib.parse import quote, urlsplit

from farmiq.plumbing import hosts

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


def addresses(url: str) -> list[tuple[str, int]]:
    """(host, port) of each node of a broker. Raises ValueError if the address cannot be one.

    What is wrong is said without a word of the address: it may hold a password.
    """
    try:
        nodes = hosts.split(url)
    except ValueError:
        nodes = [url]
    return [_address(node) for node in nodes]


def address(url: str) -> tuple[str, int]:
    """(host, port) of a broker, or of the first node of one. Raises as `addresses`."""
    return addresses(url)[0]


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(url.partition("://")[0] + "://"), None
        malformed = True
    else:
        malformed = False
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("the address of an MQTT broker begins with mqtt:// or mqtts://")
    if malformed or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(
            "the address of an MQTT broker is mqtt://user:password@host:port, the port a number "
            "and nothing behind it. In user and password a / is written %2F, a : %3A, an @ %40, "
            "a # %23, a ? %3F and a % %25; `farmiq device add` prints the whole address"
        )
    return parts.hostname or "127.0.0.1", port or DEFAULT_PORTS[parts.scheme]


def login_url(user: str, password: str, *, url: str) -> str:
    """The address for one login of the broker that `url` names, ready to be pasted."""
    nodes = ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses(url)
    )
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"{urlsplit(url).scheme}://{login}@{nodes}"
