"""What a fetch returns: windows of text, within limits of size and time."""

import asyncio
import gzip
import hashlib
import sys
import time
import zlib
from typing import Any

import httpx2
import pytest
from amplifier_module_tool_web import WebFetchTool

from amplifier_core.testing import wait_for


async def test_a_page_comes_with_where_it_was_found(local_web: Any, site: Any) -> None:
    page = site.put("/page", "Hello, world", "text/plain; charset=utf-8")
    site.redirect("/old", "/page")

    output = await local_web.page(site.url + "/old")

    assert output == {
        "url": site.url + "/old",
        "requested_url": site.url + "/old",
        "source_url": page,
        "source_id": "web-" + hashlib.sha256(page.encode()).hexdigest()[:16],
        "status_code": 200,
        "content": "Hello, world",
        "content_type": "text/plain",
        "truncated": False,
        "total_bytes": 12,
        "offset": 0,
        "limit": 204800,
        "returned_bytes": 12,
    }


async def test_what_is_sent_says_who_asks_and_what_is_understood(mount_web: Any, site: Any) -> None:
    web = await mount_web(blocked_domains=[], user_agent="Probe/2")
    site.put("/", "x", Set_Cookie="session=1")

    await web.page(site.url + "/")
    await web.page(site.url + "/")

    headers = site.seen[1].headers
    assert headers["user-agent"] == "Probe/2"
    assert headers["accept"] == "text/html,text/plain,application/json;q=0.9,*/*;q=0.5"
    assert headers["accept-encoding"] == "gzip, deflate"
    assert "cookie" not in headers
    assert "authorization" not in headers


@pytest.mark.parametrize(
    "given",
    [{"offset": -1}, {"limit": 0}, {"limit": -5}, {"offset": True}, {"limit": "9"}, {"limit": 1.5}],
    ids=str,
)
async def test_a_window_that_is_none_is_invalid_input_without_a_request(
    local_web: Any, site: Any, code_of: Any, given: dict[str, Any]
) -> None:
    result = await local_web.fetch(site.put("/", "x"), **given)

    assert code_of(result) == "invalid_input"
    assert (site.connections, local_web.events) == (0, [])


async def test_explicit_nulls_count_as_absent(local_web: Any, site: Any) -> None:
    output = await local_web.page(site.put("/", "text"), offset=None, limit=None, save_to_file=None)

    assert (output["content"], output["offset"], output["limit"]) == ("text", 0, 204800)


async def test_the_configured_limit_is_used_and_advertised(mount_web: Any, site: Any) -> None:
    web = await mount_web(blocked_domains=[], default_limit=3)

    output = await web.page(site.put("/", "abcdef"))

    assert (output["returned_bytes"], output["next_offset"]) == (3, 3)
    schema = web.coordinator.get("tools", "web_fetch").input_schema
    assert schema["properties"]["limit"]["default"] == 3


async def test_a_long_text_is_read_window_by_window(local_web: Any, site: Any) -> None:
    text = "".join(f"line {number} äöü€\n" for number in range(100))
    url = site.put("/", text)
    windows, offset = [], 0

    while True:
        output = await local_web.page(url, offset=offset, limit=100)
        note = (
            f"\n\n[Truncated: bytes {offset} to {offset + output['returned_bytes']} of {len(text.encode())}, limit 100."
        )
        content, found, _ = output["content"].partition(note)
        windows.append(content)
        assert bool(found) is output["truncated"]
        assert output["total_bytes"] == len(text.encode())
        if not output["truncated"]:
            break
        offset = output["next_offset"]

    assert "".join(windows) == text
    assert "next_offset" not in output


async def test_a_window_smaller_than_a_character_has_that_character(local_web: Any, site: Any) -> None:
    output = await local_web.page(site.put("/", "€uro"), limit=1)

    assert (output["content"][0], output["returned_bytes"], output["next_offset"]) == ("€", 3, 3)


async def test_without_extraction_windows_are_exact_to_the_byte(mount_web: Any, site: Any) -> None:
    web = await mount_web(blocked_domains=[], extract_text=False)
    url = site.put("/", "<p>Grüße</p>", "text/html")

    output = await web.page(url, offset=3, limit=3)

    assert output["content"].startswith("Gr\ufffd\n\n[Truncated")
    assert (output["returned_bytes"], output["next_offset"], output["total_bytes"]) == (3, 6, 14)


async def test_an_offset_behind_the_end_returns_nothing(local_web: Any, site: Any) -> None:
    output = await local_web.page(site.put("/", "short"), offset=100)

    assert (output["content"], output["returned_bytes"], output["truncated"]) == ("", 0, False)


@pytest.mark.parametrize("content_type", ["text/plain", "text/html"])
@pytest.mark.parametrize("pause_s", [0, 0.01], ids=["fast", "slow"])
async def test_an_endless_stream_with_a_limit_of_four_returns_four_bytes_within_a_second(
    mount_web: Any, site: Any, content_type: str, pause_s: float
) -> None:
    web = await mount_web(blocked_domains=[], timeout=1)
    url = site.stream("/", b"abcd" * 16, content_type, pause_s)

    output = await web.page(url, limit=4)

    assert output["content"].startswith("abcd\n\n[Truncated: bytes 0 to 4 of an unknown total, limit 4.")
    assert (output["returned_bytes"], output["total_bytes"], output["truncated"]) == (4, None, True)
    (event,) = web.events
    assert (event["success"], event["status_code"]) == (True, 200)


async def test_a_body_that_stalls_behind_the_window_does_not_delay_the_result(local_web: Any, site: Any) -> None:
    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nabcd")
        await writer.drain()
        await asyncio.Event().wait()

    site.serve_at("/", respond)

    output = await local_web.page(site.url + "/", limit=4)

    assert (output["returned_bytes"], output["truncated"]) == (4, True)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "gzip in two parts"])
async def test_the_total_of_a_compressed_body_is_its_decoded_length(local_web: Any, site: Any, encoding: str) -> None:
    text = b"All work and no play. " * 10_000
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = {
        "gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "raw deflate": raw.compress(text) + raw.flush(),
        "gzip in two parts": gzip.compress(text[:1000]) + gzip.compress(text[1000:]) + b"\0\0",
    }[encoding]
    url = site.put("/", body, Content_Encoding="gzip" if "gzip" in encoding else "deflate")

    output = await local_web.page(url, limit=len(text))

    assert output["total_bytes"] == output["returned_bytes"] == len(text)
    assert output["content"].encode() == text
    assert not output["truncated"]


async def test_a_decompression_bomb_is_read_no_further_than_the_window(local_web: Any, site: Any) -> None:
    bomb = gzip.compress(bytes([65]) * (200 << 20), compresslevel=1)

    text = await local_web.page(site.put("/text", bomb, Content_Encoding="gzip"), limit=10)
    page = await local_web.page(site.put("/page", bomb, "text/html", Content_Encoding="gzip"), limit=10)

    assert [text["returned_bytes"], page["returned_bytes"]] == [10, 10]
    assert [text["total_bytes"], page["total_bytes"]] == [None, None]
    assert all(event["bytes"] < 11 << 20 for event in local_web.events)


async def test_a_body_that_is_not_what_its_encoding_says_is_a_network_error(
    local_web: Any, site: Any, code_of: Any
) -> None:
    assert code_of(await local_web.fetch(site.put("/", "plain", Content_Encoding="gzip"))) == "network_error"


async def test_an_encoding_that_was_not_asked_for_is_unsupported(local_web: Any, site: Any, code_of: Any) -> None:
    assert code_of(await local_web.fetch(site.put("/", "x", Content_Encoding="br"))) == "unsupported_content"


@pytest.mark.parametrize("chain", [10, 11])
async def test_ten_redirects_are_followed_and_the_eleventh_is_too_many(
    local_web: Any, site: Any, code_of: Any, chain: int
) -> None:
    for number in range(chain):
        site.redirect(f"/{number}", f"/{number + 1}", (301, 302, 303, 307, 308)[number % 5])
    site.put(f"/{chain}", "the end")

    result = await local_web.fetch(site.url + "/0")

    assert len(site.seen) == 11
    if chain == 10:
        assert result.output["content"] == "the end"
    else:
        assert (code_of(result), result.output) == ("too_many_redirects", "Too many redirects")
    (event,) = local_web.events
    assert event["redirects"] == 10


async def test_other_statuses_fail_with_status_and_reason(local_web: Any, site: Any, code_of: Any) -> None:
    missing = await local_web.fetch(site.url + "/missing")
    busy = await local_web.fetch(site.put("/busy", status=503))
    nowhere = await local_web.fetch(site.put("/nowhere", status=302))

    assert (code_of(missing), missing.output) == ("http_error", "HTTP 404: Not Found")
    assert missing.error["status_code"] == 404
    assert [result.error["retryable"] for result in (missing, busy)] == [False, True]
    assert nowhere.error["status_code"] == 302


@pytest.mark.parametrize("where", ["answer", "body", "page"])
async def test_a_fetch_ends_when_its_time_is_over(mount_web: Any, site: Any, code_of: Any, where: str) -> None:
    web = await mount_web(blocked_domains=[], timeout=0.2)
    kinds = {"body": "text/plain", "page": "text/html"}
    url = site.hang("/") if where == "answer" else site.stream("/", b"", kinds[where])

    result = await web.fetch(url)

    assert (code_of(result), result.output) == ("timeout", f"Timeout fetching {url}")
    assert result.error["retryable"] is True
    assert web.events[0]["code"] == "timeout"


async def test_making_the_session_takes_no_time_of_the_first_fetch(
    mount_web: Any, site: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = httpx2.AsyncClient

    def build_slowly(**options: Any) -> Any:
        time.sleep(0.4)
        return build(**options)

    monkeypatch.setattr(httpx2, "AsyncClient", build_slowly)
    web = await mount_web(blocked_domains=[], timeout=0.3)

    result = await web.fetch(site.hang("/"))

    assert (code_of(result), site.paths) == ("timeout", ["/"])


async def test_the_time_is_for_the_whole_fetch_not_for_each_redirect(mount_web: Any, site: Any, code_of: Any) -> None:
    web = await mount_web(blocked_domains=[], timeout=0.3)

    async def respond(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")

    site.serve_at("/", respond)

    assert code_of(await web.fetch(site.url + "/")) == "timeout"
    assert len(site.seen) < 5


async def test_connection_errors_are_network_errors_and_retryable(
    web: Any, local_web: Any, internet: Any, open_site: Any, code_of: Any
) -> None:
    internet.name("nobody.example", [])

    refused = await local_web.fetch("http://127.0.0.1:1/")
    unknown = await web.fetch("http://nobody.example/")

    assert [code_of(refused), code_of(unknown)] == ["network_error", "network_error"]
    assert refused.error["retryable"] is unknown.error["retryable"] is True


async def test_a_body_that_breaks_off_is_a_network_error(local_web: Any, site: Any, code_of: Any) -> None:
    assert code_of(await local_web.fetch(site.put("/", "half", Content_Length="8"))) == "network_error"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("Grüße".encode("iso-8859-1"), "text/plain; charset=ISO-8859-1", "Grüße"),
        (b"\x93quoted\x94", "text/plain; charset=latin-1", "\u201cquoted\u201d"),
        ("Grüße".encode("utf-8-sig"), "text/plain", "Grüße"),
        ("Grüße".encode("utf-16"), "text/plain", "Grüße"),
        ("Grüße".encode("utf-16-be"), "text/plain; charset=utf-16be", "Grüße"),
        ("日本".encode("shift_jis"), 'text/plain; charset="Shift_JIS"', "日本"),
        (b"Gr\xc3\xbc\xff", "text/plain", "Grü\ufffd"),
        ("ü".encode(), "text/plain; charset=nonsense", "ü"),
        ("ü".encode(), "text/plain; charset=base64", "ü"),
        (b'<meta charset="windows-1251">' + "Привет".encode("cp1251"), "text/html", "Привет"),
        (b'<meta http-equiv=x content="text/html; charset=koi8-r">' + "Да".encode("koi8-r"), "text/html", "Да"),
        ("<html>ü</html>".encode(), None, "ü"),
        ("plain ü".encode(), None, "plain ü"),
        (b'{"a": 1}', "application/octet-stream", '{"a": 1}'),
    ],
    ids=range(14),
)
async def test_text_is_decoded_as_the_server_its_mark_or_the_document_says(
    local_web: Any, site: Any, body: bytes, content_type: str | None, text: str
) -> None:
    assert (await local_web.page(site.put("/", body, content_type)))["content"] == text


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/pdf", b"%PDF-1.7"),
        ("image/png", b"png"),
        ("audio/mpeg", b"mp3"),
        ("font/woff2", b"font"),
        ("application/zip", b"PK"),
        ("application/wasm", b"asm"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK"),
        ("application/octet-stream", b"a\0b"),
        ("text/plain", b"a\0b"),
        ("text/html", b"<p>\0"),
    ],
    ids=str,
)
async def test_binary_content_is_not_shown_and_the_way_to_save_it_is_told(
    local_web: Any, site: Any, code_of: Any, content_type: str, body: bytes
) -> None:
    result = await local_web.fetch(site.put("/", body, content_type))

    assert code_of(result) == "unsupported_content"
    assert content_type in result.output
    assert f"{len(body)} bytes" in result.output
    assert "save_to_file" in result.output
    assert local_web.events[0]["content_type"] == content_type


async def test_every_fetch_is_told_once_whatever_comes_of_it(local_web: Any, site: Any) -> None:
    site.redirect("/old", "/page")
    site.put("/page", "Hello", "text/plain; charset=utf-8")

    await local_web.fetch(site.url + "/old")
    await local_web.fetch(site.url + "/none")

    found, missing = local_web.events
    told = {key: value for key, value in found.items() if key not in ("duration_ms", "session_id", "timestamp")}
    assert isinstance(found["duration_ms"], int)
    assert {key: told[key] for key in ("url", "source_url", "status_code", "content_type", "bytes", "redirects")} == {
        "url": site.url + "/old",
        "source_url": site.url + "/page",
        "status_code": 200,
        "content_type": "text/plain",
        "bytes": 5,
        "redirects": 1,
    }
    assert (told["success"], told["code"]) == (True, None)
    assert (missing["success"], missing["code"], missing["status_code"]) == (False, "http_error", 404)


async def test_cancellation_propagates_and_leaves_the_session_usable(local_web: Any, site: Any) -> None:
    site.put("/", "there")
    task = asyncio.create_task(local_web.fetch(site.hang("/hang")))
    await wait_for(lambda: site.paths == ["/hang"])

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await local_web.page(site.url + "/"))["content"] == "there"
    assert [event["code"] for event in local_web.events] == ["cancelled", None]


async def test_fetches_run_side_by_side(local_web: Any, site: Any) -> None:
    urls = [site.put(f"/{number}", f"page {number}") for number in range(20)]

    outputs = await asyncio.gather(*(local_web.page(url) for url in urls))

    assert [output["content"] for output in outputs] == [f"page {number}" for number in range(20)]


async def test_the_cleanup_can_run_twice_and_a_later_fetch_still_works(local_web: Any, site: Any) -> None:
    url = site.put("/", "there")
    await local_web.page(url)

    await local_web.cleanup()
    await local_web.cleanup()

    assert (await local_web.page(url))["content"] == "there"


async def test_the_tool_works_without_a_coordinator_and_a_session(site: Any) -> None:
    tool = WebFetchTool({"blocked_domains": []})

    result = await tool.execute({"url": site.put("/", "alone")})
    await tool.close()

    assert result.output["content"] == "alone"


async def test_a_missing_http_library_is_a_failed_result(
    local_web: Any, site: Any, code_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)

    result = await local_web.fetch(site.url)

    assert code_of(result) == "capability_missing"
    assert "httpx2" in result.output
    assert local_web.events[0]["code"] == "capability_missing"
