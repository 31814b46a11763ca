"""Passwords in the arguments of commands."""

import re
from collections.abc import Iterator

from .patterns import SensitivePattern, Span

_CURL = "curl"
_COMMAND = re.compile(r"""(?:[^\n|;&\\"']|\\[\s\S]|"[^"\n]{0,1000}+"|'[^'\n]{0,1000}+'|["']){1,4000}+""")
# What the shell puts in has no secret in it, and neither has a placeholder.
_USER_OPTION = re.compile(
    r"""\s(?:-[A-Za-z]{0,8}u|--(?:proxy-)?user)[\s=]{0,4}"""
    r"""(?:"[^":\n]{0,128}:(?P<double>[^"\n$<{][^"\n]{0,255}+)|'[^':\n]{0,128}:(?P<single>[^'\n$<{][^'\n]{0,255}+)"""
    r"""|[^\s:"'=-][^\s:"']{0,127}:(?P<bare>[^\s"'$<{`][^\s"'`]{0,255}+))"""
)


def _curl_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords that curl is given, command by command, each of which is looked at once."""
    start = text.find(_CURL)
    while start >= 0:
        command = _COMMAND.match(text, start)
        end = command.end() if command else start + len(_CURL)
        for option in _USER_OPTION.finditer(text, start, end):
            yield option.span(option.lastgroup or 0)
        start = text.find(_CURL, max(end, start + len(_CURL)))


COMMAND_PASSWORDS = (SensitivePattern("password of a command", (_CURL,), _curl_passwords),)
