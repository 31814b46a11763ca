"""URLs as they may be stored and shown."""

import pytest

from amplifier_system.urls import shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git+https://token@host/org/repo@v1#subdirectory=a", "git+https://host/org/repo@v1#subdirectory=a"),
        ("git+https://me:pw@host/org/repo@main/a.md", "git+https://host/org/repo@main/a.md"),
        ("https://me:p@w@host/x", "https://host/x"),
        ("https://me:p/w@host.org/x", "https://host.org/x"),
        ("git+https://me:p/w@x@host/org/repo@v1", "git+https://host/org/repo@v1"),
        ("git+https://me:p?#@host.org/r@v1", "git+https://host.org/r@v1"),
        ("https://me:p@w/x@git.host.org/org/repo@v1", "https://git.host.org/org/repo@v1"),
        ("https://me:pw@[::1]:80/x@v", "https://[::1]:80/x@v"),
        ("git+ssh://git@host/o/r@v1", "git+ssh://git@host/o/r@v1"),
        ("git+ssh://git:pw@host/o/r@v1", "git+ssh://git@host/o/r@v1"),
        ("https://host:8080/org/repo@v1", "https://host:8080/org/repo@v1"),
        ("https://h/x?access_token=a&y=1#subdirectory=k", "https://h/x?access_token=***&y=1#subdirectory=k"),
        ("git+https://h/o/r?private_token=a@v1", "git+https://h/o/r?private_token=***@v1"),
        ("https://h/?X-Amz-Signature=1&X-Amz-Date=2", "https://h/?X-Amz-Signature=***&X-Amz-Date=2"),
        ("fatal: unable to access 'https://u:p@h:80/x/': no", "fatal: unable to access 'https://h:80/x/': no"),
        ("./a@b", "./a@b"),
        ("/srv/a:b@c/d", "/srv/a:b@c/d"),
    ],
)
def test_what_is_shown_has_no_credentials(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert shown(shown(text)) == expected
