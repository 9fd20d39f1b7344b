"""Which addresses may be reached because somebody else says so."""

from ipaddress import ip_address

import pytest

from farmiq.plumbing import addresses
from farmiq.plumbing.addresses import Allowed


@pytest.mark.parametrize(
    "inside",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255",
        "192.0.2.1", "198.18.0.1", "240.0.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fc00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001::7f00:1", "2001:db8::1",
    ],
)  # fmt: skip
def test_address_inside_a_network_is_not_public(inside: str) -> None:
    assert not addresses.is_public(ip_address(inside))


@pytest.mark.parametrize("outside", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_address_of_the_internet_is_public(outside: str) -> None:
    assert addresses.is_public(ip_address(outside))


def test_allowed_networks_and_names_reach_their_own_only() -> None:
    allowed = Allowed.read(["10.0.0.0/8", "Mail.farm.local", "::1"])
    assert allowed.allows("x", ip_address("10.9.9.9"))
    assert allowed.allows("x", ip_address("::ffff:10.9.9.9"))
    assert allowed.allows("mail.FARM.local", ip_address("192.168.1.1"))
    assert allowed.allows("x", ip_address("::1"))
    assert not allowed.allows("x", ip_address("192.168.1.1"))
    assert not allowed.allows("evil.mail.farm.local", ip_address("192.168.1.1"))


@pytest.mark.parametrize("odd", ["", "10.0.0.1/8", "a/b", " host"])
def test_odd_entry_is_refused(odd: str) -> None:
    with pytest.raises(ValueError, match="neither a host nor a network"):
        Allowed.read([odd])


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "gopher://h", "https:///x", "https://user:pw@h/x", "https://h:0/",
        "https://h:99999/", "https://h/ä", "https://h/a b", "https://h/\r\nX: y", "h/x",
    ],
)  # fmt: skip
def test_address_that_is_no_web_address_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"has|is|must") as refused:
        addresses.check(url)
    assert url not in str(refused.value)
