"""Texts that want more than to be read, and what would show that one of them got it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

SCRIPTS = [
    "<script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<img src='x' onerror=\"alert(1)\"/>",
    "<img/src=x/onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x></svg>",
    "<svg><foreignObject><body onload=alert(1)></foreignObject></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style>",
    "<math href=javascript:alert(1)>x</math>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "<template><img src=x onerror=alert(1)></template>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=data:text/html,<script>alert(1)</script>></object>",
    "<embed src=//evil.example/x.swf>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css'; body{display:none}</style>",
    "<p style='position:fixed;inset:0;background:url(//evil.example)'>x</p>",
    "<div id=app class=toasts>x</div>",
    "<form action=//evil.example><input name=token><button>go</button></form>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<select onfocus=alert(1) autofocus>",
    "<marquee onstart=alert(1)>",
    "<body onload=alert(1)>",
    "<a href=javascript:alert(1)>x</a>",
    "<a name=app id=main>x</a>",
    "<isindex type=image src=1 onerror=alert(1)>",
    "<xmp><script>alert(1)</script></xmp>",
    "<plaintext><script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><script>alert(1)</script>",
    "</p></div></article><script>alert(1)</script>",
    "</pre></code><img src=x onerror=alert(1)>",
    "<custom-element onclick=alert(1)>x</custom-element>",
    "<view-login></view-login><page-frame></page-frame>",
    "<img src=x onerror=alert(1)//",
    "<a\x00href=javascript:alert(1)>x",
    "<\x00script>alert(1)</script>",
    "\u003cscript\u003ealert(1)\u003c/script\u003e",
    "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
]
ADDRESSES = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\tscript:alert(1)",
    "java&Tab;script:alert(1)",
    "java&#10;script:alert(1)",
    "&#106;avascript:alert(1)",
    "&#x6A&#x61&#x76&#x61script:alert(1)",
    "javascript&colon;alert(1)",
    "\x01javascript:alert(1)",
    "%6Aavascript:alert(1)",
    "vbscript:msgbox(1)",
    "data:text/html,<script>alert(1)</script>",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "data:image/svg+xml,<svg onload=alert(1)>",
    "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+",
    'data:image/png;base64,AAAA" onerror="alert(1)',
    "data:image/png,AAAA",
    "DATA:IMAGE/PNG;base64,AAAA#<svg>",
    "blob:http://127.0.0.1/x",
    "file:///etc/passwd",
    "filesystem:http://127.0.0.1/x",
    "view-source:http://127.0.0.1/",
    "chrome://settings",
    "about:blank",
    "ftp://evil.example/x",
    "ws://evil.example/x",
    "//evil.example/x",
    "\\\\evil.example\\x",
    "/auth/logout",
    "/api/v1/sessions",
    "?logout",
    "#app",
    "feed:javascript:alert(1)",
    "jar:javascript:alert(1)!",
    "http:javascript:alert(1)",
    "https:/\\evil.example",
    "http://",
    "mailto:",
    "x:y",
]
LINKS = [
    template.format(address)
    for address in ADDRESSES
    for template in ("[x]({})", "![x]({})", "<{}>", "[x]: {}\n\n[x]", "[![y]({0})]({0})", '[x]({} "t")', "[x](<{}>)")
]
BROKEN = [
    '[x](http://a.example" onclick="alert(1))',
    "[x](http://a.example 'onclick=alert(1)')",
    '[x](http://a.example "\\" onclick=alert(1) x=\\"")',
    '![x" onerror="alert(1)](http://a.example)',
    "![`<img src=x onerror=alert(1)>`](data:image/png;base64,AAAA)",
    "```<script>alert(1)</script>\ncode\n```",
    '```python" onclick="alert(1)\ncode\n```',
    "```html\n<script>alert(1)</script>\n```",
    "~~~ x' y=\"z\n</code></pre><script>alert(1)</script>\n~~~",
    "    </code></pre><script>alert(1)</script>",
    "`</code><script>alert(1)</script>`",
    "| <script>alert(1)</script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | <td onclick=alert(1)> |",
    "- [x] <img src=x onerror=alert(1)>",
    "# <a id=app>x</a>\n\nx {#app .toasts onclick=alert(1)}",
    "http://a.example/<script>alert(1)</script>",
    'http://a.example/"onmouseover="alert(1)',
    "https://a.example/'onmouseover='alert(1)",
    "http://a.example/`x` http://<img> http://[::1]/ http://a@b@c http://:@/",
    '<http://a.example/"onclick=alert(1)>',
    "*[<script>]: x\n[^1]: <script>\n[^1]",
    "$$<script>alert(1)</script>$$ {{ constructor.constructor('alert(1)')() }} ${alert(1)}",
]
ODD = [
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H\x1bc\x9b31m \x1bP1;2|payload\x1b\\ \x1b",
    "a\u202eb\u2066c\u2069d\u202c \u200f\u200e",
    "\U000e0041\U000e0042 hidden",
    "\x00\x01\x02\x07\x08\x0b\x0c\x7f\x85\x9f",
    "\ufeff\u200b\u2028\u2029",
    "\ud800 lone \udfff",
    "مرحبا <b>שלום</b> [x](javascript:alert(1))",
    "Z̸̢̛̗͔̬̿̓͌a̵l̶g̷o̸" * 200,
]
CORPUS = [*SCRIPTS, *LINKS, *BROKEN, *ODD]

_NAMES = """
a blockquote br code del div em h3 h4 h5 h6 hr img li ol p pre s span strong table tbody td th thead tr ul
"""
_TAGS = frozenset(_NAMES.split())
_VOID = frozenset({"br", "hr", "img"})
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f\ud800-\udfff]"
)
_FINE = {
    ("a", "target"): re.compile("_blank"),
    ("a", "rel"): re.compile("noopener noreferrer nofollow"),
    ("a", "href"): re.compile(r"(?:https?://[^/?#\s]|mailto:\S).*", re.IGNORECASE | re.DOTALL),
    ("a", "title"): re.compile(".*", re.DOTALL),
    ("img", "src"): re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*"),
    ("img", "alt"): re.compile(".*", re.DOTALL),
    ("ol", "start"): re.compile("[0-9]{1,9}"),
    ("pre", "data-language"): re.compile(r"[\w+#.-]{1,32}"),
    ("span", "role"): re.compile("img"),
    ("span", "aria-label"): re.compile("done|to do"),
    ("th", "scope"): re.compile("col"),
}
_ANYWHERE = {"class": re.compile(r"(?:(?:md|hl)-[a-z]+ ?)*"), "dir": re.compile("auto|ltr")}


class _Reader(HTMLParser):
    """Reads HTML as a browser would, and says what should not be there."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            self.faults.append(f"<{tag}>")
        if tag not in _VOID:
            self.open.append(tag)
        given = dict(attrs)
        for name, value in given.items():
            if not _is_fine(tag, name, value or ""):
                self.faults.append(f"<{tag} {name}={value!r}>")
        if tag == "a" and "href" in given and not given.keys() >= {"target", "rel"}:
            self.faults.append("a link that tells where it comes from")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> that closes something else")

    def handle_comment(self, data: str) -> None:
        self.faults.append("a comment")

    def handle_decl(self, decl: str) -> None:
        self.faults.append("a declaration")

    def handle_pi(self, data: str) -> None:
        self.faults.append("an instruction")

    def handle_data(self, data: str) -> None:
        if found := _INVISIBLE.search(data):
            self.faults.append(f"an invisible character {found[0]!r}")


def _is_fine(tag: str, name: str, value: str) -> bool:
    allowed = _FINE.get((tag, name), _ANYWHERE.get(name))
    return allowed is not None and bool(allowed.fullmatch(value))


def faults_of(html: str) -> list[str]:
    """Return what HTML has that it must not have, or leaves open."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return [*reader.faults, *(f"<{tag}> is not closed" for tag in reader.open)]
