"""The files of the page: for everybody, tagged, compressed, and nothing else of the machine."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from pathlib import Path

import pytest

from amplifierd.server.http.page_files import PageFiles
from amplifierd.server.http.request_guard import HTML_POLICY

from .conftest import Served

PAGE = Path(str(files("amplifierd.page")))
SHELL = PageFiles(PAGE).find("index.html").content


def test_the_page_needs_no_token(served: Served) -> None:
    for path in ("/app/", "/app", "/app/index.html"):
        answer = served.client(None).get(path)

        assert (answer.status_code, answer.content) == (200, SHELL)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"


def test_a_path_of_the_pages_own_shows_the_shell(served: Served) -> None:
    for path in ("/app/sessions/abc", "/app/sessions/abc/timeline/", "/app/no/such.js", "/app/" + "x" * 5000):
        assert served.client(None).get(path).content == SHELL


def test_a_browser_that_has_the_file_is_told_so(served: Served) -> None:
    client = served.client(None)
    first = client.get("/app/", headers={"Accept-Encoding": "identity"})
    tag = first.headers["etag"]

    again = client.get("/app/", headers={"Accept-Encoding": "identity", "If-None-Match": f'"other", W/{tag}'})

    assert hashlib.sha256(SHELL).hexdigest().startswith(tag.strip('"'))
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert again.headers["cache-control"] == "no-cache"
    assert "content-security-policy" not in again.headers  # it would replace the one of the page that the browser has
    assert client.get("/app/", headers={"If-None-Match": '"older"'}).status_code == 200


def test_a_head_has_the_headers_alone(served: Served) -> None:
    got = served.client(None).get("/app/", headers={"Accept-Encoding": "identity"})

    head = served.client(None).head("/app/", headers={"Accept-Encoding": "identity"})

    assert (head.status_code, head.content) == (200, b"")
    for name in ("etag", "content-type", "content-length", "content-security-policy"):
        assert head.headers[name] == got.headers[name]


def test_files_are_compressed_for_who_can_read_that(tmp_path: Path) -> None:
    text = b"/* page */\n" * 1000
    (tmp_path / "style.css").write_bytes(text)

    found = PageFiles(tmp_path).find("style.css")

    assert found.packed is not None
    assert (gzip.decompress(found.packed), len(found.packed) < 200) == (text, True)


def test_a_compressed_answer_has_a_tag_of_its_own(served: Served) -> None:
    client = served.client(None)

    packed = client.get("/app/", headers={"Accept-Encoding": "gzip"})
    plain = client.get("/app/", headers={"Accept-Encoding": "identity"})

    assert (packed.content, packed.headers["vary"]) == (plain.content, "Accept-Encoding")
    assert packed.headers.get("content-encoding") == "gzip"
    assert packed.headers["etag"] != plain.headers["etag"]
    again = client.get("/app/", headers={"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]})
    assert again.status_code == 304


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "app.js"
    file.write_text("one")
    shown = PageFiles(tmp_path)
    before = shown.find("app.js")

    file.write_text("three")

    assert shown.find("app.js").content == b"three"
    assert shown.find("app.js").tag != before.tag


def test_a_file_that_the_shell_names_is_kept_for_ever_and_has_another_address_when_it_changes(tmp_path: Path) -> None:
    shell = '<link href="/app/page.css">'
    (tmp_path / "index.html").write_text(shell)
    (tmp_path / "page.css").write_text("one")
    shown = PageFiles(tmp_path)
    address = _named(shown)

    assert (shown.find(address).content, shown.find(address).is_lasting) == (b"one", True)
    assert not shown.find("page.css").is_lasting
    (tmp_path / "page.css").write_text("three")
    assert _named(shown) != address
    assert (shown.find(address).content, shown.find(address).is_lasting) == (b"three", False)


def _named(shown: PageFiles) -> str:
    """Return the path of the file that the shell names."""
    return shown.find("").content.decode().split("/app/")[1].split('"')[0]


def test_what_the_shell_names_needs_no_question_again(served: Served) -> None:
    address = SHELL.decode().split('rel="stylesheet" href="')[1].split('"')[0]

    answer = served.client(None).get(address)

    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize(
    "path",
    [
        "files/0123456789abcdef/../../__init__.py",
        "files/0123456789abcdef/__init__.py",
        "../__init__.py",
        "..%2f__init__.py",
        "%2e%2e/%2e%2e/app.py",
        "..\\..\\app.py",
        "....//app.py",
        "/etc/passwd",
        "//etc/passwd",
        "__init__.py",
        "__pycache__/__init__.cpython-311.pyc",
        ".hidden.js",
        "index.html/../__init__.py",
        "index.html%00.js",
        "index.html%0a",
        "~/x.js",
        "C:/x.js",
        "é.js",
    ],
)
def test_no_path_leads_out_of_the_page(served: Served, path: str) -> None:
    answer = served.client(None).get(f"http://127.0.0.1:8420/app/{path}")

    assert answer.status_code in (200, 401)  # 401: the client took the path apart itself, and asked for something else
    assert answer.status_code == 401 or answer.content == SHELL


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("shell")
    (page / "data.json").symlink_to(tmp_path / "secret.json")
    (page / "up").symlink_to(tmp_path)

    assert PageFiles(page).find("data.json").content == b"shell"
    assert PageFiles(page).find("up/secret.json").content == b"shell"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_files_are_only_read(served: Served, method: str) -> None:
    assert served.client(None).request(method, "/app/index.html").status_code == 401
    assert served.client().request(method, "/app/index.html").status_code == 405


def test_a_browser_is_sent_from_the_root_to_the_page(served: Served) -> None:
    accept = "text/html,application/xhtml+xml,*/*;q=0.8"

    sent = served.client(None).get("/", headers={"Accept": accept}, follow_redirects=False)

    assert (sent.status_code, sent.headers["location"], sent.headers["vary"]) == (303, "/app/", "Accept")
    assert served.client().get("/").json()["name"] == "amplifierd"
    assert served.client(None).get("/").status_code == 401


@pytest.mark.parametrize("path", ["/app/", "/app/x/y", "/docs", "/auth/login?ticket=used"])
def test_every_html_answer_has_the_content_policy(served: Served, path: str) -> None:
    answer = served.client(None).get(path)

    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == HTML_POLICY
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"


def test_other_answers_can_do_nothing_in_a_browser(served: Served) -> None:
    for path in ("/health", "/api/v1/status", "/api/v1/nowhere"):
        answer = served.client().get(path)

        assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_the_page_names_no_other_host_and_has_nothing_inline() -> None:
    text = SHELL.decode()

    assert "<style" not in text
    assert " style=" not in text
    assert "http://" not in text
    assert "https://" not in text
