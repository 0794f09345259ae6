"""Hostile URLs in groups, with `{port}` for the port of the canary. Each leads, or tries to lead, to this machine."""

from __future__ import annotations

IPV4 = (
    "127.0.0.1", "127.0.0.2", "127.1", "127.0.1", "127.255.255.254", "127.000.000.001", "127.0.0.01", "127.0.0.1.",
    "127.0.0.1..", "2130706433", "2130706433.", "0x7f000001", "0X7F000001", "0x7f.1", "0x7f.0.1", "0x7f.0.0.1",
    "0x7F.0x0.0x0.0x1", "0x7f.0x1", "0x0000007f.1", "0177.1", "0177.0.0.1", "0177.0.0.01", "00000177.0.0.1",
    "017700000001", "0017700000001", "0177.0x0.0.1", "127.0x1", "127.0.0x1", "127.01", "0", "0.0", "0.0.0.0",
    "0.0.0.0.", "0x0", "00", "0x0.0x0", "000.000.000.000", "0.1", "0.1.2.3", "4294967296", "4294967297", "6425673729",
    "127.0.0.257",
    "256.256.256.256", "127.0.0.1.1", "1.2.3", "127.0.0", "127", "0x", "0x.1", "127..1", ".127.0.0.1", "127.0.0.1x",
    "-1", "1e3",
)  # fmt: skip

INTERNAL = (
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.254", "192.168.0.1", "192.168.255.254", "100.64.0.1",
    "100.127.255.254", "100.100.100.200", "169.254.0.1", "169.254.169.254", "169.254.170.2", "169.254.169.123",
    "192.0.0.192", "168.63.129.16", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376",
    "169.16689662", "0xa9.0xfe.0xa9.0xfe",
)  # fmt: skip

IPV6 = (
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::0001]", "[0::1]",
    "[::0.0.0.1]",
    "[::ffff:127.0.0.1]", "[::FFFF:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:0.0.0.0]",
    "[::ffff:0:0]", "[::ffff:0:127.0.0.1]", "[::127.0.0.1]", "[::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[2002:7f00:0001::1]", "[2002:a9fe:a9fe::1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[2001::1]", "[2001:db8::1]", "[3fff::1]", "[fe80::1]", "[fe80::1%25lo]",
    "[::1%25lo]", "[::1%lo]", "[fe80::1%251]", "[fec0::1]", "[fc00::1]", "[fd00::1]", "[fd00:ec2::254]", "[ff02::1]",
    "[ff01::1]", "[ff0e::1]", "[100::1]", "[5f00::1]", "[::ffff:a9fe:a9fe]", "[::ffff:10.0.0.1]", "[::a9fe:a9fe]",
    "[::ffff:0x7f.1]", "[::ffff:127.1]", "[::1", "::1", "[]", "[::1]]", "[[::1]]", "[::1].", "[v1.::1]", "[127.0.0.1]",
)  # fmt: skip

NAMES = (
    "localhost", "LOCALHOST", "LocalHost", "localhost.", "localhost..", "localhost.localdomain", "ip6-localhost",
    "ip6-loopback", "loc%61lhost", "%6cocalhost", "localhost%00", "localhost%00.example.com", "localhost%2eexample",
)  # fmt: skip

TYPOGRAPHY = (
    "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "①②⑦.⓪.⓪.①", "１２７.0.0.1", "127.0.0.１", "𝟏𝟐𝟕.0.0.1", "ⓛocalhost",
    "ｌｏｃａｌｈｏｓｔ", "localhoſt", "loca\u200blhost", "127.0.0.1\u200b", "127.0.0.1\u2028", "\u202e1.0.0.721",
    "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "%E2%91%A0%E2%91%A1%E2%91%A6.0.0.1", "١٢٧.٠.٠.١", "127.0.0.1\u00ad",
    "xn--127-.0.0.1",
)  # fmt: skip

# Whole URLs.
PARSERS = (
    "http://user@127.0.0.1:{port}/", "http://user:pass@127.0.0.1:{port}/", "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/", "http://127.0.0.1:{port}@example.invalid/",
    "http://example.com%40127.0.0.1:{port}/", "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.invalid/", "http://example.invalid#@127.0.0.1:{port}/",
    "http://example.invalid?@127.0.0.1:{port}/", "http://example.invalid/@127.0.0.1:{port}/",
    "http://foo@127.0.0.1:{port}@example.invalid/", "http://foo@example.invalid@127.0.0.1:{port}/",
    "http://@127.0.0.1:{port}/",
    "http://:@127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "http:/127.0.0.1:{port}/", "http:///127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/", "//127.0.0.1:{port}/", "127.0.0.1:{port}",
    "http://127.0.0.1:{port} @example.invalid/",
    "http://127.0.0.1:{port}\t/", " http://127.0.0.1:{port}/", "http://127.0.0.1\t:{port}/", "ht\ttp://127.0.0.1:{port}/",
    "http://127.0.0.1:0{port}/", "http://127.0.0.1:+{port}/", "http://127.0.0.1:{port}:80/", "http://127.0.0.1:80:{port}/",
    "http://127.0.0.1:６５５３５/", "http://127.0.0.1:-1/", "http://127.0.0.1:99999/", "http://[::1]:{port}@example.invalid/",
    "http://example.invalid:{port}\r\nHost: 127.0.0.1/", "http://127.0.0.1:{port}/ HTTP/1.1\r\nX: y\r\n\r\n",
    "http://127.0.0.1:{port}/%0d%0aX:%20y", "http://127.0.0.1\r\n:{port}/", "http://127.0.0.1:{port}/\r\nSET x 1\r\n",
    "http://127.0.0.1%0d%0a:{port}/", "http://127.0.0.1:{port}/\x00", "http://127.0.0.1\x00:{port}/",
    "https://127.0.0.1:{port}/", "https://localhost:{port}/", "https://[::1]:{port}/", "HTTP://127.0.0.1:{port}/",
    "hTTps://0x7f.1:{port}/",
)  # fmt: skip

SCHEMES = (
    "file:///etc/passwd", "file://127.0.0.1/etc/passwd", "ftp://127.0.0.1:{port}/", "gopher://127.0.0.1:{port}/_GET",
    "dict://127.0.0.1:{port}/d", "ldap://127.0.0.1:{port}/", "tftp://127.0.0.1:{port}/", "telnet://127.0.0.1:{port}/",
    "ws://127.0.0.1:{port}/", "wss://127.0.0.1:{port}/", "unix:///run/x.sock", "http+unix://%2Frun%2Fx.sock/",
    "data:text/plain,x", "javascript:alert(1)", "jar:http://127.0.0.1:{port}/!/", "view-source:http://127.0.0.1:{port}/",
    "blob:http://127.0.0.1:{port}/", "url:http://127.0.0.1:{port}/", "httpx://127.0.0.1:{port}/", "socks5://127.0.0.1:{port}/",
    "", "http", "http:", "http://", "http://:{port}/", "://127.0.0.1:{port}/", "?", "#", "//",
)  # fmt: skip

URLS = (
    *(f"http://{host}:{{port}}/canary" for host in (*IPV4, *INTERNAL, *IPV6, *NAMES, *TYPOGRAPHY)),
    *PARSERS,
    *SCHEMES,
)

# What name servers may answer for a public name, one list of addresses per question. The guard asks once.
ANSWERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "inside.example": (("127.0.0.1",),),
    "inside-v6.example": (("::1",),),
    "127.0.0.1.nip.io": (("127.0.0.1",),),
    "7f000001.nip.io": (("127.0.0.1",),),
    "localtest.me": (("127.0.0.1", "::1"),),
    "metadata.google.internal": (("169.254.169.254",),),
    "mixed.example": (("93.184.216.34", "127.0.0.1"),),
    "mixed-first.example": (("127.0.0.1", "93.184.216.34"),),
    "mapped.example": (("::ffff:127.0.0.1",),),
    "mapped-hex.example": (("::ffff:7f00:1",),),
    "nat64.example": (("64:ff9b::7f00:1",),),
    "sixtofour.example": (("2002:7f00:1::",),),
    "compatible.example": (("::127.0.0.1",),),
    "zero.example": (("0.0.0.0",),),
    "zero-v6.example": (("::",),),
    "scoped.example": (("::1%lo",),),
    "scoped-link.example": (("fe80::1%1",),),
    "rebinding.example": (("10.0.0.1",), ("127.0.0.1",)),
    "many.example": (tuple(f"93.184.216.{n}" for n in range(30)),),
    "words.example": (("localhost",),),
    "number.example": (("2130706433",),),
    "nothing.example": ((),),
    "blank.example": (("",),),
    "private.example": (("192.168.1.1",),),
    "carrier.example": (("100.64.0.1",),),
}
