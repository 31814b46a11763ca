"""What personal data looks like: mail addresses, phone numbers, social security numbers, payment cards."""

import re
from collections.abc import Iterator

from .patterns import SensitivePattern, Span

_MAIL_DOMAIN = re.compile(r"@(?:@++|(?P<domain>(?:[\w-]{1,63}+\.){1,8}[^\W\d_]{2,24}))")
_MAIL_NAME_BACKWARDS = re.compile(r"[\w.%+-]{1,64}")
_MAX_MAIL_NAME = 64
_REMOTE_PATH = re.compile(r":[\w~./-]{1,64}/")  # user@host:path/… is where git and ssh find a repository


def _mail_addresses(text: str) -> Iterator[Span]:
    """Yield mail addresses, found by the sign in their middle."""
    for domain in _MAIL_DOMAIN.finditer(text):
        at = domain.start()
        name = _MAIL_NAME_BACKWARDS.match(text[max(0, at - _MAX_MAIL_NAME) : at][::-1]) if domain.lastgroup else None
        if name is None:
            continue
        start = at - name.end()
        if text[start] in "bfnrt" and start > 0 and text[start - 1] == "\\":
            start += 1  # the letter belongs to an escape
        if start < at and _REMOTE_PATH.match(text, domain.end()) is None:
            yield start, domain.end()


# A number stands alone: it is not part of a word, a UUID, a version, an address or a time, and not a price. That is
# looked at behind its first character, because a regular expression that begins with a set is searched for quickly.
_STANDS_ALONE = r"(?:(?<![\w.:+$€£¥-].)|(?<=\\[bfnrt].))"
_ENDS = r"(?![\w:+-]|\.\w)"
_DATE_IN_CENTURY = r"[0-9]{2}(?:-[01][0-9]-[0-3][0-9]|[01][0-9][0-3][0-9][ -](?:[0-5][0-9]){3})(?![0-9])"
_DIGIT = rf"(?!(?:19|20){_DATE_IN_CENTURY})[0-9]"
_FIRST_DIGIT = rf"(?<=[0-9])(?!(?:(?<=1)9|(?<=2)0){_DATE_IN_CENTURY})"
# Digits that are too many, or a part of a word, are taken in one piece, so that none of them is looked at again.
_NO_NUMBER = r"(?<=[0-9])[0-9]{19,}+|(?<=\w[0-9])(?<!\\[bfnrt][0-9])[0-9]*+"

_OPENED = r"(?<=\()(?=[0-9]{1,5}\))"  # a parenthesis belongs to the number when it is closed inside
_DIGITS_OR_DASHES = rf"(?:(?<=\+)\(?{_DIGIT}|{_OPENED}{_DIGIT}|{_FIRST_DIGIT})(?:[ ()-]{{0,2}}{_DIGIT}){{8,14}}"
_DOTTED = (
    rf"(?:(?<=\+)[0-9]{{1,3}}[ .-]?\(?[0-9]|{_OPENED}[0-9]|(?<=[0-9]))"  # a country code, a parenthesis, the number
    r"[0-9]{2}\)?\.[0-9]{3}\.[0-9]{4}"
)
_SOCIAL_SECURITY = r"(?<=[0-9])(?:(?<![\w-].)|(?<=\\[bfnrt].))[0-9]{2}-[0-9]{2}-[0-9]{4}(?![\w-])"
_PHONE_OR_SSN = re.compile(
    rf"[+(0-9](?:{_NO_NUMBER}"
    rf"|{_STANDS_ALONE}(?P<phone>{_DIGITS_OR_DASHES}|{_DOTTED}){_ENDS}"
    rf"|(?P<social_security>{_SOCIAL_SECURITY}))"
)
_CARD = re.compile(rf"[0-9](?:{_NO_NUMBER}|{_STANDS_ALONE}(?P<card>{_FIRST_DIGIT}(?:[ -]?{_DIGIT}){{12,18}}){_ENDS})")
_LONG_NUMBER = re.compile(r"[0-9](?:[ ().-]{0,2}[0-9]){8}")
_SHORTEST_CARD = 13
_LENGTHS_OF_TIMES = (10, 13, 16, 19)
_COUNTED_OUT = "01234567890123456789"
_DATE_OR_BOOK = re.compile(
    r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?"
    r"|(?:19|20)\d\d-\d{5,8}|97[89](?:-\d{1,7}){3}-\d"
)
_MAX_GROUPS_BEHIND_CARD = 3
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # twice a digit, in one digit


def _numbers(text: str) -> Iterator[Span]:
    """Yield payment card, phone and social security numbers."""
    if _LONG_NUMBER.search(text) is None:
        return
    for match in _CARD.finditer(text):
        length = _card_length(match[0]) if match.lastgroup and not _is_plain_number(match[0]) else 0
        if length:
            yield match.start(), match.start() + length
    for match in _PHONE_OR_SSN.finditer(text):
        if match.lastgroup and not _is_plain_number(match[0]):
            yield match.span()


def _is_plain_number(candidate: str) -> bool:
    """True if digits are a date, seconds or parts of them, a book, a power of two, or just counted out."""
    if _DATE_OR_BOOK.fullmatch(candidate) is not None:
        return True
    if not candidate.isdecimal():
        return False
    if candidate in _COUNTED_OUT or (candidate[0] == "1" and len(candidate) in _LENGTHS_OF_TIMES):
        return True
    number = int(candidate)
    return number & (number - 1) == 0 or number & (number + 1) == 0


def _card_length(candidate: str) -> int:
    """Return how much of the text is a card number, 0 when nothing is; an expiry date or the like may follow it."""
    end = len(candidate)
    for _ in range(_MAX_GROUPS_BEHIND_CARD + 1):
        digits = [int(character) for character in candidate[:end] if character.isdigit()]
        if len(digits) < _SHORTEST_CARD:
            break
        if _passes_luhn(digits):
            return end
        end = max(0, candidate.rfind(" ", 0, end))
    return 0


def _passes_luhn(digits: list[int]) -> bool:
    return (sum(digits[-1::-2]) + sum(_DOUBLED[digit] for digit in digits[-2::-2])) % 10 == 0


PII_PATTERNS: tuple[SensitivePattern, ...] = (
    SensitivePattern("mail address", ("@",), _mail_addresses),
    SensitivePattern("payment card, phone or social security number", (), _numbers),
)
