"""Which addresses are internal, and what an allow list opens (faults 4.2, SSRF)."""

from __future__ import annotations

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.allowing import AllowList, is_public, parse_entry
from stepkeep.network.guard import Reach


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255",
        "224.0.0.1", "198.18.0.1", "192.0.2.1", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0",
        "fc00::1", "ff02::1",
        "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:db8::1", "2001:0:7f00:1::", "nonsense", "", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "::127.0.0.1", "::a9fe:a9fe", "::8.8.8.8", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1::808:808", "::ffff:0:127.0.0.1",
        "192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.192", "192.88.99.1",
        "168.63.129.16", "100.100.100.200", "198.51.100.7", "203.0.113.9", "127.255.255.254", "0.1.2.3",
        "2002:808:808::1", "2001:2::1", "2001:10::1", "2001:20::1", "100::1", "fd00:ec2::254", "fec0::1", "5f00::1",
        "3fff::1", "ff0e::1", "::ffff:0.0.0.0", "64:ff9b::a00:1", "64:ff9b::", "2130706433", "0x7f.1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_known_as_such(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808",
        "::ffff:8.8.8.8", "192.0.1.1", "172.32.0.1", "100.128.0.1", "2a00:1450:4001::1", "2001:4860:4860::8888",
    ],
)  # fmt: skip
def test_a_public_address_is_known_as_such(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("allow", "host", "address", "expected"),
    [
        ((), "shop.example", "93.184.216.34", True),
        ((), "shop.example", "10.1.2.3", False),
        (("10.0.0.0/8",), "shop.example", "10.1.2.3", True),
        (("10.0.0.0/8",), "shop.example", "::ffff:10.1.2.3", True),
        (("10.0.0.0/8",), "shop.example", "169.254.169.254", False),
        (("10.0.0.0/8",), "shop.example", "::ffff:169.254.169.254", False),
        (("10.1.2.3",), "shop.example", "10.1.2.4", False),
        (("Shop.Internal.",), "shop.internal", "10.1.2.3", True),
        (("shop.internal",), "SHOP.internal.", "10.1.2.3", True),
        (("shop.internal",), "evil.shop.internal", "10.1.2.3", False),
        (("localhost",), "127.0.0.1", "127.0.0.1", False),
        (("::1",), "localhost", "::1", True),
        (("fd00::/8",), "shop.example", "fe80::1", False),
        (("2002::/16",), "shop.example", "2002:7f00:1::", True),
    ],
)
def test_what_the_operator_allows_is_reached_and_nothing_beside_it(
    allow: tuple[str, ...], host: str, address: str, expected: bool
) -> None:
    assert (Reach(allow=AllowList.of(allow)).refusal(host, address, 80) is None) is expected


@pytest.mark.parametrize(
    ("reach", "address", "port", "expected"),
    [
        ({}, "93.184.216.34", 80, True),
        ({}, "93.184.216.34", 443, True),
        ({}, "93.184.216.34", 8080, False),
        ({}, "93.184.216.34", 22, False),
        ({"ports": (8080,)}, "93.184.216.34", 8080, True),
        ({"ports": (8080,)}, "93.184.216.34", 80, False),
        ({"allow": ("10.0.0.0/8",)}, "10.1.2.3", 5432, True),
        ({"allow": ("10.0.0.0/8:80",)}, "10.1.2.3", 5432, False),
        ({"allow": ("10.0.0.0/8:80",)}, "10.1.2.3", 80, True),
        ({"allow": ("10.0.0.0/8",), "ports": (80,)}, "10.1.2.3", 5432, False),
        ({"allow": ("10.0.0.0/8:5432",), "ports": (80,)}, "10.1.2.3", 5432, True),
        ({"allow": ("shop.example:8443",)}, "93.184.216.34", 8443, True),
        ({"allow": ("shop.example:8443",)}, "93.184.216.34", 8444, False),
        ({"allow": ("[fd00::/8]:80",)}, "fd00::1", 80, True),
        ({"allow": ("[fd00::/8]:80",)}, "fd00::1", 81, False),
        ({"allow_internal": True}, "127.0.0.1", 5432, True),
        ({"allow_internal": True, "ports": (80,)}, "127.0.0.1", 5432, False),
    ],
)
def test_a_port_is_reached_only_where_it_is_usual_or_listed(
    reach: dict[str, object], address: str, port: int, expected: bool
) -> None:
    given = {**reach, "allow": AllowList.of(reach.get("allow", ()))}  # type: ignore[arg-type]
    assert (Reach(**given).refusal("shop.example", address, port) is None) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("LocalHost", "localhost"), ("localhost:8080", "localhost:8080"), ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3"), ("::1", "::1"), ("[::1]", "::1"), ("[::1]:80", "[::1]:80"), ("fd00::/8", "fd00::/8"),
        ("[fd00::/8]:9", "[fd00::/8]:9"), ("10.0.0.0/8:443", "10.0.0.0/8:443"), (" a.b. ", "a.b"),
    ],
)  # fmt: skip
def test_an_entry_has_one_spelling_that_reads_back_as_itself(entry: str, shown: str) -> None:
    assert str(parse_entry(entry)) == shown
    assert parse_entry(shown) == parse_entry(entry)


@pytest.mark.parametrize(
    "entry",
    [
        "", ":", ":80", "a:", "a:x", "a:0", "a:65536", "a:80:80", "[::1", "[::1]x", "[::1]:", "[a]:80", "a b", "*.a",
        "a..b",
        "127.1", "0x7f.1", "256.1.1.1", "2130706433", "10.0.0.0/33", "::1/129", "http://a", "a/8", "é.example",
        "a" * 301,
        "user@host", "a\nb", "-a", "١٢٧.0.0.1",
    ],
)  # fmt: skip
def test_an_entry_that_is_unclear_is_refused(entry: str) -> None:
    with pytest.raises(InvalidInput, match="no host that HTTP steps can be allowed"):
        parse_entry(entry)


def test_a_single_text_is_no_list_of_entries() -> None:
    with pytest.raises(InvalidInput, match="several hosts"):
        AllowList.of("localhost")
