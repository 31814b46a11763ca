"""Saving what is fetched: byte for byte, within the paths that may be written, whole or not at all."""

import asyncio
import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from swapped_directory import swapped

from amplifier_system.policy import SessionPolicy

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 700


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory of the tools."""
    (tmp_path / "work").mkdir(exist_ok=True)
    return tmp_path / "work"


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def test_a_pdf_that_cannot_be_shown_is_saved_byte_for_byte(
    local_web: Any, site: Any, code_of: Any, work: Path
) -> None:
    url = site.put("/a.pdf", PDF, "application/pdf")

    inline = await local_web.fetch(url)
    output = await local_web.page(url, save_to_file="papers/new/a.pdf")

    assert code_of(inline) == "unsupported_content"
    assert (work / "papers/new/a.pdf").read_bytes() == PDF
    assert everything_in(work) == ["papers", "papers/new", "papers/new/a.pdf"]
    assert output["saved_to"] == str(work / "papers/new/a.pdf")
    assert output["saved_bytes"] == output["total_bytes"] == len(PDF)
    assert (output["truncated"], output["content_type"], output["source_url"]) == (False, "application/pdf", url)
    assert "PDF-1" not in output["content"]
    assert local_web.events[1]["bytes"] == len(PDF)


async def test_a_saved_text_comes_with_its_first_thousand_characters(local_web: Any, site: Any, work: Path) -> None:
    text = "äbc " * 1000

    output = await local_web.page(site.put("/", text), save_to_file="a.txt")

    assert (work / "a.txt").read_text() == text
    assert output["content"].startswith(text[:1000] + "\n\n[")
    assert output["content"].endswith("]")


async def test_html_is_saved_as_text_unless_extraction_is_off(mount_web: Any, site: Any, work: Path) -> None:
    source = "<title>T</title><h1>Grüße</h1><script>x</script>"
    url = site.put("/", source, "text/html; charset=utf-8")

    output = await (await mount_web(blocked_domains=[])).page(url, save_to_file="text.txt")
    await (await mount_web(blocked_domains=[], extract_text=False)).page(url, save_to_file="page.html")

    assert (work / "text.txt").read_text() == "T\n\n# Grüße"
    assert (output["saved_bytes"], output["total_bytes"], output["title"]) == (12, len(source.encode()), "T")
    assert (work / "page.html").read_text() == source


@pytest.mark.parametrize("path", ["../x", "{outside}/x", "link/x", "leaf", "sub/../../x", "~/x"])
async def test_saving_outside_of_the_allowed_paths_is_denied_without_a_request(
    mount_web: Any, site: Any, code_of: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("kept")
    (work / "link").symlink_to(outside)
    (work / "leaf").symlink_to(outside / "x")
    monkeypatch.setenv("HOME", str(outside))
    web = await mount_web(blocked_domains=[], allowed_write_paths=["."])

    result = await web.fetch(site.put("/", "new"), save_to_file=path.format(outside=outside))

    assert code_of(result) == "access_denied"
    assert result.output.endswith("is not within allowed write paths")
    assert (site.connections, (outside / "x").read_text()) == (0, "kept")
    assert web.events[0]["code"] == "access_denied"


async def test_a_link_to_a_file_inside_stays_a_link_and_its_target_is_replaced(
    local_web: Any, site: Any, work: Path
) -> None:
    (work / "target").write_text("old")
    (work / "target").chmod(0o640)
    (work / "link").symlink_to("target")

    await local_web.page(site.put("/", "new"), save_to_file="link")

    assert (work / "link").is_symlink()
    assert (work / "target").read_text() == "new"
    assert (work / "target").stat().st_mode & 0o777 == 0o640


async def test_by_default_the_temporary_directory_may_be_written_too(
    local_web: Any, site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    await local_web.page(site.put("/", "text"), save_to_file=str(folder / "a.txt"))

    assert (folder / "a.txt").read_text() == "text"


async def test_an_unusable_list_of_paths_allows_nothing(mount_web: Any, site: Any, code_of: Any) -> None:
    web = await mount_web(blocked_domains=[], allowed_write_paths=7)

    assert code_of(await web.fetch(site.put("/", "x"), save_to_file="a.txt")) == "access_denied"


async def test_what_is_no_regular_file_is_left_alone(local_web: Any, site: Any, code_of: Any, work: Path) -> None:
    url = site.put("/", "x")
    (work / "folder").mkdir()
    os.mkfifo(work / "pipe")

    assert code_of(await local_web.fetch(url, save_to_file="folder")) == "is_directory"
    assert code_of(await local_web.fetch(url, save_to_file="pipe")) == "not_regular_file"
    assert code_of(await local_web.fetch(url, save_to_file="a\0b")) == "invalid_input"
    assert everything_in(work) == ["folder", "pipe"]


async def test_mentions_are_resolved_and_checked_like_other_paths(
    local_web: Any, site: Any, code_of: Any, work: Path, tmp_path: Path
) -> None:
    class Resolver:
        def resolve(self, mention: str) -> Path | None:
            return {"@notes:a": work / "a.txt", "@outside:a": Path("/proc/a.txt")}.get(mention)

    url = site.put("/", "text")
    missing = await local_web.fetch(url, save_to_file="@notes:a")
    local_web.coordinator.register_capability("mention_resolver", Resolver())

    await local_web.page(url, save_to_file="@notes:a")

    assert code_of(missing) == "capability_missing"
    assert "mention_resolver" in missing.output
    assert (work / "a.txt").read_text() == "text"
    assert code_of(await local_web.fetch(url, save_to_file="@nobody")) == "not_found"
    assert code_of(await local_web.fetch(url, save_to_file="@outside:a")) == "access_denied"


@pytest.mark.parametrize("kind", ["announced", "streamed", "document", "compressed"])
async def test_what_is_too_large_is_not_saved_and_nothing_is_left_behind(
    mount_web: Any, site: Any, code_of: Any, work: Path, kind: str
) -> None:
    web = await mount_web(blocked_domains=[], max_download_bytes=100_000)
    url = {
        "announced": lambda: site.put("/", "x" * 100_001),
        "streamed": lambda: site.stream("/", b"x" * 10_000),
        "document": lambda: site.stream("/", b"<p>word</p>" * 1000, "text/html"),
        "compressed": lambda: site.put("/", gzip.compress(bytes(10 << 20)), Content_Encoding="gzip"),
    }[kind]()

    assert code_of(await web.fetch(url, save_to_file="new/folder/a")) == "too_large"
    assert everything_in(work) == []


@pytest.mark.parametrize("kind", ["status", "broken", "timeout"])
async def test_a_fetch_that_fails_leaves_the_old_file_and_nothing_else(
    mount_web: Any, site: Any, work: Path, kind: str
) -> None:
    web = await mount_web(blocked_domains=[], timeout=0.3)
    (work / "a.txt").write_text("old")
    urls = {
        "status": lambda: site.put("/", "no", status=500),
        "broken": lambda: site.put("/", "half", Content_Length="9999"),
        "timeout": lambda: site.stream("/", b"x", pause_s=0.05),
    }

    result = await web.fetch(urls[kind](), save_to_file="a.txt")

    assert not result.success
    assert everything_in(work) == ["a.txt"]
    assert (work / "a.txt").read_text() == "old"


async def test_an_empty_body_is_saved_as_an_empty_file(local_web: Any, site: Any, work: Path) -> None:
    await local_web.page(site.put("/", ""), save_to_file="empty")

    assert (work / "empty").read_bytes() == b""


async def test_each_session_saves_to_its_own_working_directory(mount_web: Any, site: Any, tmp_path: Path) -> None:
    url = site.put("/", "text")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        web = await mount_web(blocked_domains=[], working_dir="")
        web.coordinator.register_capability("session.working_dir", str(tmp_path / name))
        await web.page(url, save_to_file="a.txt")

    assert (tmp_path / "one/a.txt").read_text() == (tmp_path / "other/a.txt").read_text() == "text"


async def test_the_configuration_of_a_repository_is_never_saved_over(
    local_web: Any, site: Any, code_of: Any, work: Path
) -> None:
    (work / ".git").mkdir()
    (work / ".git/config").write_text("[core]\n")
    url = site.put("/config", "[core]\nfsmonitor = ./run-me\n")

    for path in (".git/config", ".git/hooks/pre-commit", "sub/.git/config"):
        assert code_of(await local_web.fetch(url, save_to_file=path)) == "access_denied"

    assert (work / ".git/config").read_text() == "[core]\n"
    assert everything_in(work) == [".git", ".git/config"]


async def test_a_policy_of_the_application_says_where_is_saved_and_what_is_reached(
    local_web: Any, site: Any, code_of: Any, work: Path
) -> None:
    rules = {"write": {"allow": ["out"]}, "network": {"allow": ["127.0.0.1", "private"]}}
    local_web.coordinator.register_capability("session.policy", SessionPolicy.of(rules, working_dir=work))
    url = site.put("/a", "text")

    assert code_of(await local_web.fetch(url, save_to_file="a.txt")) == "access_denied"
    assert (await local_web.fetch(url, save_to_file="out/a.txt")).success

    closed = SessionPolicy.of({"network": {"allow": []}}, working_dir=work)
    local_web.coordinator.register_capability("session.policy", closed)
    assert code_of(await local_web.fetch(url)) == "blocked_url"


@pytest.mark.parametrize("path", ["AGENTS.md", ".husky/pre-push", "link/tasks.json"])
async def test_nothing_is_saved_to_a_place_that_runs_where_no_guard_can_be_asked(
    local_web: Any, site: Any, code_of: Any, work: Path, path: str
) -> None:
    (work / ".vscode").mkdir()
    (work / "link").symlink_to(".vscode")
    before = everything_in(work)

    result = await local_web.fetch(site.put("/", "Obey"), save_to_file=path)

    assert code_of(result) == "access_denied"
    assert everything_in(work) == before


async def test_a_path_that_comes_to_lead_to_a_place_that_runs_is_refused(
    local_web: Any, site: Any, code_of: Any, work: Path
) -> None:
    (work / "notes").mkdir()
    (work / ".vscode").mkdir()

    async def respond(writer: asyncio.StreamWriter) -> None:
        (work / "notes").rmdir()
        (work / "notes").symlink_to(".vscode")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nObey")

    site.serve_at("/", respond)
    result = await local_web.fetch(site.url + "/", save_to_file="notes/tasks.json")

    assert code_of(result) == "access_denied"
    assert everything_in(work / ".vscode") == []


async def test_a_directory_that_becomes_a_link_leads_no_page_outside(
    local_web: Any, site: Any, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # else everything here could be written
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old.txt").write_text("old")
    (work / "place").mkdir()
    url = site.put("/", "new")

    with swapped(work / "place", outside):
        for number in range(40):
            await local_web.fetch(url, save_to_file=f"place/{number}.txt")
            await local_web.fetch(url, save_to_file="place/old.txt")

    assert (everything_in(outside), (outside / "old.txt").read_text()) == (["old.txt"], "old")
