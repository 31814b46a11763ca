"""The one parser of mentions."""

import re

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(?<!`)`(?!`)[^`]+(?<!`)`(?!`)")
_AT = r"(?<![A-Za-z0-9_.+-])@"  # not the @ of an e-mail address
_PLAIN = r"(?![A-Za-z0-9_.+-]+@[A-Za-z0-9-]+\.)([A-Za-z0-9_:./~-]+)"  # nor one in front of an address
_MENTION = re.compile(_AT + _PLAIN)
_MENTION_OR_QUOTED = re.compile(f'{_AT}(?:{_PLAIN}|"([^"\n]+)")')


def parse_mentions(text: str, *, quoted: bool = False) -> list[str]:
    """Return the mentions in a text, `@` included, each once, in order of appearance.

    Code, fenced or between single backticks, is not searched. With `quoted`, `@"a name with spaces.md"` counts too.
    """
    if "@" not in text:
        return []
    prose = _INLINE_CODE.sub("", _FENCED.sub("", text))
    found = (_MENTION_OR_QUOTED if quoted else _MENTION).finditer(prose)
    return list(dict.fromkeys(f"@{mention[mention.lastindex or 0]}" for mention in found))
