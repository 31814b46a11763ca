"""Profiles as models, used by OpenAI's own client, unchanged, against a server on loopback with real workers."""

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import openai
import pytest

sys.path.append(str(Path(__file__).parents[1] / "sessions"))

from agents_at_work import Agent, call

from amplifierd import Home, open_home
from amplifierd.app import create_app
from amplifierd.control.binding import bind
from amplifierd.control.server import Server
from amplifierd.daemon.tokens import Tokens

MODEL = "local/worker"
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@contextmanager
def on_loopback(home: Home) -> Iterator[str]:
    """Serve a home on a port of its own, in a thread."""
    binding = bind(home.settings)
    app = create_app(home=home)
    is_started = Event()
    server = Server(app, find_tls=lambda: None, on_started=is_started.set)
    thread = Thread(target=lambda: server.run(sockets=[binding.listener]))
    thread.start()
    is_started.wait()
    try:
        yield binding.url
    finally:
        server.handle_exit(15, None)
        thread.join()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("facade")
    settings = {"port": 0, "offline": True, "working_dir": str(folder), "auth": {"mode": "token"}}
    home = open_home(folder / "home", overrides=settings)
    (folder / "notes.md").write_text("a note")
    scripts: dict[str, list[Any]] = {
        "asking": [call("weather", city="Oslo")],
        "answering": [{"text": "Take an umbrella.", "assert": {"contains": "rain"}}],
        "worker": [call("read_file", file_path="notes.md"), "I have read it."],
    }
    for name, script in scripts.items():
        Agent(script).source(home, "profile", folder)
        text = (home.paths.own_profiles / "worker.md").read_text()
        (home.paths.own_profiles / f"{name}.md").write_text(text.replace("name: worker", f"name: {name}"))
    return home


@pytest.fixture(scope="module")
def url(home: Home) -> Iterator[str]:
    with on_loopback(home) as url:
        yield url


@pytest.fixture
def client(url: str, home: Home) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=home.paths.token_file.read_text().strip(), max_retries=0) as one:
        yield one


def test_valid_profiles_are_the_models(client: openai.OpenAI) -> None:
    expected, limit = {MODEL, "foundation/offline"}, time.monotonic() + 60
    while not expected <= {model.id for model in client.models.list()}:  # the collection's come with the first start
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert client.models.retrieve(MODEL).owned_by == "amplifier"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("local/nobody")
    assert refused.value.code == "profile-not-found"


def test_a_chat_is_answered_by_a_turn_and_leaves_no_session(client: openai.OpenAI, home: Home) -> None:
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Read the notes."}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, temperature=0.5, max_tokens=100)
    assert answer.choices[0].message.content == "I have read it."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert home.sessions.list().total == 0


def test_a_client_that_leaves_before_the_first_piece_leaves_nothing_behind(url: str, home: Home) -> None:
    address = httpx2.URL(url)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Read."}], "stream": True}).encode()
    token = home.paths.token_file.read_text().strip()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nAuthorization: Bearer {token}"
    head += f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.host, address.port or 0)) as leaving:
        leaving.sendall(head.encode() + body)
        wait_until(lambda: home.sessions.list().total == 1)

    wait_until(lambda: home.sessions.list().total == 0)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_killed_daemon_was_asked_for_is_removed_at_the_next_start(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", overrides={"port": 0, "offline": True, "working_dir": str(tmp_path)})
    mine = asyncio.run(home.sessions.create("foundation/offline", tags=("completion",))).session_id
    left = {"tags": ("completion",), "metadata": {"for": "completion"}}
    asyncio.run(home.sessions.create("foundation/offline", **left))

    with on_loopback(home) as url:
        wait_until(lambda: httpx2.get(f"{url}/ready").status_code == 200)
        assert [record.session_id for record in home.sessions.list().sessions] == [mine]


def test_a_streamed_answer_says_the_same_piece_by_piece(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Read the notes."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert said.strip() == "I have read it."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None


@pytest.mark.parametrize("stream", [False, True])
def test_calls_to_tools_of_the_client_are_handed_back_and_continued(client: openai.OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    asked: dict[str, Any] = {"model": "local/asking", "tools": [WEATHER]}
    if stream:
        chunks = list(client.chat.completions.create(messages=messages, stream=True, **asked))
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = client.chat.completions.create(messages=messages, **asked).choices[0]
        calls, reason = list(choice.message.tool_calls or ()), choice.finish_reason
    assert reason == "tool_calls"
    (one,) = calls
    assert (one.function.name, json.loads(one.function.arguments)) == ("weather", {"city": "Oslo"})

    function = {"name": one.function.name, "arguments": one.function.arguments}
    messages += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": one.id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": one.id, "content": "rain"},
    ]
    again = client.chat.completions.create(messages=messages, **asked)
    assert again.choices[0].finish_reason in ("stop", "tool_calls")


def test_a_header_binds_a_stored_session_which_keeps_its_turns(client: openai.OpenAI, home: Home, url: str) -> None:
    record = asyncio.run(home.sessions.create("foundation/offline", working_dir=home.settings.working_dir))
    bound: Any = {"model": "foundation/offline", "extra_headers": {"X-Amplifier-Session": record.session_id}}
    for number in (1, 2):
        client.chat.completions.create(messages=[{"role": "user", "content": "list files"}], **bound)
        assert home.sessions.get(record.session_id).turn_count == number
    token = {"Authorization": f"Bearer {home.paths.token_file.read_text().strip()}"}
    assert httpx2.get(f"{url}/api/v1/status", headers=token).json()["queues"]["subscribers"] == 0


def test_who_has_no_token_gets_an_error_of_openais_shape(url: str) -> None:
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_session_of_somebody_else_is_not_there(url: str, home: Home) -> None:
    record = asyncio.run(home.sessions.create("foundation/offline", owner="ada"))
    token = Tokens(home.paths).create("bob", "run")[1]
    bob = openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0)
    with bob, pytest.raises(openai.NotFoundError):
        bob.chat.completions.create(
            model="foundation/offline",
            messages=[{"role": "user", "content": "list files"}],
            extra_headers={"X-Amplifier-Session": record.session_id},
        )


@pytest.mark.parametrize("model", ["local/nobody", "gpt", "../x"])
def test_an_unknown_model_and_a_body_without_a_prompt_are_refused(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=[{"role": "system", "content": "Hello"}])
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[])
    assert refused.value.param == "messages"
