"""Pure: which addresses on the internet somebody else may make us send to.

Addresses of our own network, of this machine, of a link and of the host that a virtual machine runs
on are not among them, however they are written, unless the operator of the site allows them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
# Public by the registries, and yet something inside: the host of a virtual machine, and addresses
# that carry an IPv4 address of anybody.
_INSIDE: tuple[Network, ...] = (
    IPv4Network("168.63.129.16/32"),
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("2002::/16"),
    IPv6Network("2001::/32"),
    IPv6Network("::/96"),
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Hosts inside our own network that may be reached all the same: names and networks."""

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, given: Sequence[str]) -> "Allowed":
        """Raises ValueError for what is neither a name nor a network."""
        names, networks = set[str](), list[Network]()
        for text in given:
            try:
                networks.append(ip_network(text))
            except ValueError:
                if not text or "/" in text or text != text.strip():
                    raise ValueError(f"{text!r} is neither a host nor a network") from None
                names.add(text.lower())
        return cls(frozenset(names), tuple(networks))

    def allows(self, host: str, address: Address) -> bool:
        inside = _plain(address)
        return host.lower() in self.names or any(
            inside in network for network in self.networks if network.version == inside.version
        )


def is_public(address: Address) -> bool:
    """Whether this is an address of the internet, and not one of ours, of a link or of a cloud."""
    plain = _plain(address)
    return (
        plain.is_global
        and not plain.is_multicast
        and not plain.is_reserved
        and not (isinstance(plain, IPv6Address) and plain.is_site_local)
        and not any(plain in network for network in _INSIDE if network.version == plain.version)
    )


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def check(url: str) -> str:
    """The host of an address that may be posted to. Raises ValueError, which does not quote it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("is not a web address") from None
    if parts.scheme not in {"https", "http"} or not parts.hostname or port == 0:
        raise ValueError("has to begin with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password: use a header")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("has characters that an address cannot have")
    return parts.hostname
