"""Markdown as HTML over HTTP: on request, in messages, and in streams while it comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import RealServer, SentEvent, plan, read_events, real_server

ANSWER = "# Milk\n\n" + "Some **bold** words, and <script>alert(1)</script>. " * 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("home"), stream={"keepalive_seconds": 1}) as served:
        yield served


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()


def create(client: httpx2.Client, work: Path, *script: Any, **mock: Any) -> str:
    answer = client.post("/sessions", json={"mount_plan": plan(*script, **mock), "working_dir": str(work)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


def watched(client: httpx2.Client, path: str, session_id: str, prompt: str, **query: Any) -> list[SentEvent]:
    """Watch one turn from its beginning to its end."""
    seen: list[SentEvent] = []
    url, body = f"/sessions/{session_id}/execute", {"prompt": prompt}
    turn = threading.Thread(target=lambda: client.post(url, json=body).raise_for_status())
    with client.stream("GET", path, params=query) as response:
        for event in read_events(response):
            if event.event == "stream:connected":
                turn.start()
            seen.append(event)
            if event.event == "execution:done":
                break
    turn.join()
    return seen


def test_markdown_is_rendered_on_request(server: RealServer, admin: httpx2.Client) -> None:
    answer = server.client("read", "reader").post("/render", json={"markdown": "*a* <script>alert(1)</script>"})

    assert answer.json() == {"html": '<p dir="auto"><em>a</em> &lt;script&gt;alert(1)&lt;/script&gt;</p>\n'}
    assert admin.post("/render", json={"markdown": ""}).json() == {"html": ""}
    half = admin.post("/render", content='{"markdown": "a \\ud800"}', headers={"Content-Type": "application/json"})
    assert half.status_code in (200, 422)
    assert server.stranger().post("/render", json={"markdown": "a"}).status_code == 401


def test_there_is_a_limit(admin: httpx2.Client) -> None:
    assert admin.post("/render", json={"markdown": "a" * (1 << 20)}).status_code == 200
    refused = admin.post("/render", json={"markdown": "a" * ((1 << 20) + 1)})
    assert (refused.status_code, refused.json()["code"]) == (413, "payload-too-large")


def test_a_text_that_takes_long_holds_up_no_other(server: RealServer, admin: httpx2.Client) -> None:
    hostile = "*a **a " * 140_000
    answers: list[httpx2.Response] = []
    other = httpx2.Client(base_url=admin.base_url, headers=admin.headers, timeout=120)
    slow = threading.Thread(target=lambda: answers.append(other.post("/render", json={"markdown": hostile})))
    slow.start()

    quick = [admin.post("/render", json={"markdown": f"quick {number}"}).json()["html"] for number in range(20)]

    assert not answers  # the slow one is still at work
    assert quick[-1] == '<p dir="auto">quick 19</p>\n'
    slow.join()
    other.close()
    assert answers[0].json()["html"].startswith('<pre class="md-plain">*a **a')


def test_messages_carry_their_html(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, ANSWER)
    admin.post(f"/sessions/{session_id}/execute", json={"prompt": "What *is* there?"}).raise_for_status()

    for path in ("messages", "transcript"):
        user, assistant = admin.get(f"/sessions/{session_id}/{path}", params={"render": "html"}).json()["messages"]

        assert user["html"] == '<p dir="auto">What <em>is</em> there?</p>\n'
        (html,) = htmls_of(assistant)
        assert html.startswith('<h3 dir="auto">Milk</h3>\n<p dir="auto">Some <strong>bold</strong>')
    plain = admin.get(f"/sessions/{session_id}/messages").json()["messages"]
    assert [htmls_of(message) for message in plain] == [[], []]


def htmls_of(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    parts = [message, *(content if isinstance(content, list) else [])]
    return [part["html"] for part in parts if "html" in part]


def test_what_a_tool_answers_is_not_markdown(admin: httpx2.Client, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("*milk*")
    call = {"tool_calls": [{"name": "read_file", "arguments": {"file_path": "notes.md"}}]}
    session_id = create(admin, tmp_path, call, "done", tools=True)
    admin.post(f"/sessions/{session_id}/execute", json={"prompt": "read"}).raise_for_status()

    found = admin.get(f"/sessions/{session_id}/transcript", params={"render": "html"}).json()["messages"]

    assert [message["role"] for message in found if not htmls_of(message)][-1:] == ["tool"]


@pytest.mark.parametrize("path", ["/sessions/{}/stream", "/events"])
def test_a_block_is_rendered_while_it_comes_and_when_it_is_complete(
    admin: httpx2.Client, tmp_path: Path, path: str
) -> None:
    session_id = create(admin, tmp_path, ANSWER, stream_delay_ms=10)

    events = watched(admin, path.format(session_id), session_id, "Go *on*.", render="html")

    pieces = [event for event in events if event.event == "llm:stream_block_delta"]
    texts = "".join(event.data["data"]["text"] for event in pieces)
    rendered = [event for event in pieces if "html" in event.data["data"]]
    assert texts.split() == ANSWER.split()
    assert 1 <= len(rendered) < len(pieces) / 2
    assert {(event.id, event.data["sequence"], event.data["data"]["text"]) for event in rendered} == {(None, None, "")}
    lengths = [event.data["data"]["length"] for event in rendered]
    assert lengths == sorted(set(lengths))
    assert all("<script" not in event.data["data"]["html"] for event in rendered)
    names = [event.event for event in events]
    (end,) = (event for event in events if event.event == "llm:stream_block_end")
    assert "llm:stream_block_delta" not in names[names.index("llm:stream_block_end") :]
    assert end.data["data"]["html"].startswith('<h3 dir="auto">Milk')
    (saved,) = (event for event in events if event.event == "user_message:saved")
    assert saved.data["data"]["html"] == '<p dir="auto">Go <em>on</em>.</p>\n'
    (complete,) = (event for event in events if event.event == "assistant_message:complete")
    assert len(htmls_of(complete.data["data"])) == 1
    assert complete.id is not None


def test_without_asking_nothing_is_rendered(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, ANSWER, stream_delay_ms=1)

    events = watched(admin, f"/sessions/{session_id}/stream", session_id, "Go on.")

    assert not any("html" in event.data["data"] for event in events if isinstance(event.data["data"], dict))


def test_a_stream_with_html_can_be_resumed(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, ANSWER, stream_delay_ms=1)
    admin.post(f"/sessions/{session_id}/execute", json={"prompt": "Go on."}).raise_for_status()
    stored = admin.get(f"/sessions/{session_id}/events", params={"limit": 1000}).json()["events"]
    seen: list[SentEvent] = []

    with admin.stream("GET", f"/sessions/{session_id}/stream", params={"render": "html", "after": "0"}) as response:
        for event in read_events(response):
            seen.append(event)
            if event.event == "execution:done":
                break

    numbered = [number for event in seen if (number := event.data["sequence"]) is not None]
    assert numbered == [line["seq"] for line in stored][: len(numbered)]
    assert any(htmls_of(event.data["data"]) for event in seen if event.event == "assistant_message:complete")
