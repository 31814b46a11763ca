"""The one parser of mentions."""

import re

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(?<!`)`(?!`)[^`]+(?<!`)`(?!`)")
_MENTION = re.compile(
    r"""
    (?<![A-Za-z0-9_.+-])                     # not the @ of an e-mail address
    @(?:
        "(?P<quoted>[^"\n]+)"
      | (?![A-Za-z0-9_.+-]+@[A-Za-z0-9-]+\.)  # nor one in front of an address
        (?P<plain>[A-Za-z0-9_:./~-]+)
    )
    """,
    re.VERBOSE,
)


def parse_mentions(text: str, *, quoted: bool = False) -> list[str]:
    """Return the mentions in a text, `@` included, each once, in order of appearance.

    Code, fenced or between single backticks, is not searched. With `quoted`, `@"a name with spaces.md"` counts too.
    """
    if "@" not in text:
        return []
    prose = _INLINE_CODE.sub("", _FENCED.sub("", text))
    names = (found["plain"] or (found["quoted"] if quoted else None) for found in _MENTION.finditer(prose))
    return list(dict.fromkeys(f"@{name}" for name in names if name))
