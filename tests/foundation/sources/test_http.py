"""Files by http(s): kept under their own names, asked for again only on demand, and within limits."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import Limits, ProgressEvent, Sources


async def test_a_file_keeps_its_name_and_has_its_facts_beside_it(server: Any, sources: Sources) -> None:
    server.answers["/p/agent.md"] = (200, {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, b"agent")

    resolved = await sources.resolve(f"{server.url}/p/agent.md")

    key = hashlib.sha256(f"{server.url}/p/agent.md".encode()).hexdigest()[:16]
    digest = hashlib.sha256(b"agent").hexdigest()
    meta = json.loads((resolved.path.parent / ".meta.json").read_text())
    assert resolved.path == sources.cache_dir / "fsspec" / key / "agent.md"
    assert (resolved.path.read_bytes(), resolved.content_hash) == (b"agent", f"sha256:{digest}")
    assert (resolved.kind, resolved.commit, resolved.mutable, resolved.from_cache) == ("fsspec", None, True, False)
    assert meta.pop("fetched_at").endswith("Z")
    assert meta == {
        "url": f"{server.url}/p/agent.md",
        "sha256": digest,
        "etag": '"1"',
        "last_modified": "Mon, 01 Jan 2024 00:00:00 GMT",
        "bytes": 5,
        "is_dir": False,
    }
    assert sorted(path.name for path in resolved.path.parent.iterdir()) == [".meta.json", "agent.md"]


async def test_a_hit_asks_nobody(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {}, b"a")
    first = await sources.resolve(f"{server.url}/a.md")

    again = await sources.resolve(f"{server.url}/a.md")

    assert (again.path, again.from_cache, again.content_hash, len(server.seen)) == (
        first.path,
        True,
        first.content_hash,
        1,
    )


async def test_two_hosts_that_serve_one_name_stay_apart(server: Any, other_server: Any, sources: Sources) -> None:
    server.answers["/agent.md"], other_server.answers["/agent.md"] = (200, {}, b"one"), (200, {}, b"two")

    one, two = [await sources.resolve(f"{host.url}/agent.md") for host in (server, other_server)]

    assert (one.path.read_bytes(), two.path.read_bytes()) == (b"one", b"two")


@pytest.mark.parametrize(
    "spelling", ["HTTP://{host}/a.md?x=1&b=2", "http://{host}/a.md/?b=2&x=1#", "http://u:p@{host}/a.md?b=2&x=1"]
)
async def test_spellings_of_one_url_share_an_entry(server: Any, sources: Sources, spelling: str) -> None:
    server.answers["/a.md?b=2&x=1"] = (200, {}, b"a")
    first = await sources.resolve(f"{server.url}/a.md?b=2&x=1")

    other = await sources.resolve(spelling.format(host=server.url.removeprefix("http://")).removesuffix("#"))

    assert (other.path, other.from_cache) == (first.path, True)


async def test_another_url_with_the_same_key_gets_a_longer_one(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {}, b"a")
    digest = hashlib.sha256(f"{server.url}/a.md".encode()).hexdigest()
    occupied = sources.cache_dir / "fsspec" / digest[:16]
    occupied.mkdir(parents=True)
    (occupied / ".meta.json").write_text(json.dumps({"url": "https://elsewhere/"}))

    resolved = await sources.resolve(f"{server.url}/a.md")
    again = await sources.resolve(f"{server.url}/a.md")

    assert resolved.path == again.path == sources.cache_dir / "fsspec" / digest / "a.md"
    assert again.from_cache


async def test_a_refresh_is_conditional_and_a_server_may_say_nothing_changed(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, b"a")
    await sources.resolve(f"{server.url}/a.md")

    again = await sources.resolve(f"{server.url}/a.md", refresh=True)

    assert server.seen[1][1]["if-none-match"] == '"1"'
    assert server.seen[1][1]["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"
    assert (again.path.read_bytes(), again.from_cache, again.stale) == (b"a", True, False)


async def test_a_refresh_replaces_what_changed(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {"ETag": '"1"'}, b"old")
    await sources.resolve(f"{server.url}/a.md")
    server.answers["/a.md"] = (200, {"ETag": '"2"'}, b"new")

    same = await sources.resolve(f"{server.url}/a.md")
    new = await sources.resolve(f"{server.url}/a.md", refresh=True)

    assert (same.content_hash != new.content_hash, new.path.read_bytes(), new.from_cache) == (True, b"new", False)


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "not-found"), (410, "not-found"), (401, "auth"), (500, "network")]
)
async def test_an_error_of_the_server_has_its_reason_and_leaves_nothing(
    server: Any, sources: Sources, status: int, reason: str
) -> None:
    server.answers["/a.md"] = (status, {}, b"error page")

    with pytest.raises(RefResolutionError, match=f"Failed to download .* answers {status}") as caught:
        await sources.resolve(f"{server.url}/a.md")

    assert caught.value.reason == reason
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


async def test_a_failed_refresh_leaves_what_was_there(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {}, b"old")
    old = await sources.resolve(f"{server.url}/a.md")
    server.answers["/a.md"] = (500, {}, b"")

    with pytest.raises(RefResolutionError):
        await sources.resolve(f"{server.url}/a.md", refresh=True)

    assert (await sources.resolve(f"{server.url}/a.md")).content_hash == old.content_hash


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "", "Transfer-Encoding": ""}], ids=["declared", "streamed"])
async def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(
    server: Any, cache_dir: Path, limits: Limits, headers: dict[str, str]
) -> None:
    server.answers["/a"] = (200, headers, b"x" * 2000)

    with pytest.raises(RefResolutionError, match="larger than 1,000 bytes") as caught:
        await Sources(cache_dir, limits=replace(limits, file_bytes=1000)).resolve(f"{server.url}/a")

    assert caught.value.reason == "too-large"
    assert list((cache_dir / "fsspec").iterdir()) == []


async def test_redirects_on_the_same_host_are_followed(server: Any, sources: Sources) -> None:
    server.answers["/a"] = (302, {"Location": "/b"}, b"")
    server.answers["/b"] = (301, {"Location": f"{server.url}/c"}, b"")
    server.answers["/c"] = (200, {}, b"c")

    assert (await sources.resolve(f"{server.url}/a")).path.read_bytes() == b"c"


async def test_too_many_redirects_are_refused(server: Any, sources: Sources) -> None:
    server.answers["/a"] = (302, {"Location": "/a"}, b"")

    with pytest.raises(RefResolutionError, match="more than 5 redirects") as caught:
        await sources.resolve(f"{server.url}/a")

    assert (caught.value.reason, len(server.seen)) == ("network", 6)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.2", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]"]
)
async def test_a_redirect_to_a_private_address_is_refused(
    server: Any, other_server: Any, sources: Sources, host: str
) -> None:
    server.answers["/a"] = (302, {"Location": f"http://{host}:{other_server.port}/secret"}, b"")
    other_server.answers["/secret"] = (200, {}, b"secret")

    with pytest.raises(RefResolutionError, match="a private address") as caught:
        await sources.resolve(f"{server.url}/a")

    assert (caught.value.reason, other_server.seen) == ("network", [])


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
async def test_a_redirect_to_another_kind_of_url_is_refused(server: Any, sources: Sources, location: str) -> None:
    server.answers["/a"] = (302, {"Location": location}, b"")

    with pytest.raises(RefResolutionError, match="it redirects to") as caught:
        await sources.resolve(f"{server.url}/a")

    assert caught.value.reason == "network"


async def test_a_download_that_was_cut_off_leaves_nothing(server: Any, sources: Sources) -> None:
    server.answers["/a"] = (200, {"Content-Length": "100"}, b"only this")

    with pytest.raises(RefResolutionError) as caught:
        await sources.resolve(f"{server.url}/a")

    assert caught.value.reason == "network"
    assert list((sources.cache_dir / "fsspec").iterdir()) == []


async def test_what_a_crash_left_counts_as_nothing_and_is_removed(server: Any, sources: Sources) -> None:
    server.answers["/a"] = (200, {}, b"whole")
    first = await sources.resolve(f"{server.url}/a")
    (first.path.parent / ".meta.json").unlink()
    first.path.write_bytes(b"ha")
    (first.path.parent / ".tmp-1-a").write_bytes(b"h")

    again = await sources.resolve(f"{server.url}/a")

    assert (again.path.read_bytes(), again.from_cache) == (b"whole", False)
    assert sorted(path.name for path in again.path.parent.iterdir()) == [".meta.json", "a"]


async def test_one_download_serves_all_who_ask_at_the_same_time(server: Any, sources: Sources, cache_dir: Path) -> None:
    server.answers["/a"] = (200, {}, b"a")
    others = Sources(cache_dir)

    resolved = await asyncio.gather(*(each.resolve(f"{server.url}/a") for each in (sources, others) * 3))

    assert (len({found.path for found in resolved}), len(server.seen)) == (1, 1)


async def test_progress_names_the_bytes_and_no_password(server: Any, cache_dir: Path) -> None:
    server.answers["/a"] = (200, {}, b"12345")
    events: list[ProgressEvent] = []

    await Sources(cache_dir, progress=events.append).resolve(f"{server.url.replace('//', '//me:secret@')}/a")

    assert {event.ref for event in events} == {f"{server.url.replace('//', '//')}/a"}
    assert [(event.phase, event.bytes, event.total_bytes) for event in events] == [
        ("fetching", None, None),
        ("fetching", 5, 5),
        ("ready", None, None),
    ]


async def test_a_progress_callback_that_fails_stops_nothing(server: Any, cache_dir: Path) -> None:
    server.answers["/a"] = (200, {}, b"a")

    def fail(event: ProgressEvent) -> None:
        raise ValueError(event)

    assert (await Sources(cache_dir, progress=fail).resolve(f"{server.url}/a")).path.is_file()


@pytest.mark.parametrize(("path", "name"), [("/", "content"), ("/.meta.json", "content"), ("/x%2e%2e", "x%2e%2e")])
async def test_a_url_without_a_usable_name_still_has_a_file(
    server: Any, sources: Sources, path: str, name: str
) -> None:
    server.answers[path] = (200, {}, b"a")

    assert (await sources.resolve(f"{server.url}{path}")).path.name == name


async def test_a_path_inside_of_a_single_file_is_not_found(server: Any, sources: Sources) -> None:
    server.answers["/a.md"] = (200, {}, b"a")

    with pytest.raises(RefResolutionError, match="Subpath not found") as caught:
        await sources.resolve(f"{server.url}/a.md#section")

    assert caught.value.reason == "subpath-missing"
