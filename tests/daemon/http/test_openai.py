"""Profiles as models, used by OpenAI's own client, unchanged, against a server on loopback with real workers."""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2
import openai
import pytest
from agents_at_work import Agent, call

from amplifierd import Home, open_home
from amplifierd.app import create_app
from amplifierd.control.binding import bind
from amplifierd.control.serve import Server
from amplifierd.server.auth.tokens import Tokens

MODEL = "local/worker"
FAULTS = {"module": "tool-faults", "source": str(Path(__file__).parents[2] / "stand_ins/worker_modules/tool-faults")}
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
    settings = {"port": 0, "offline": True, "working_dir": str(folder), "stream": {"keepalive_seconds": 0.1}}
    home = open_home(folder / "home", overrides=settings)
    (folder / "notes.md").write_text("a note")
    write, told = call("write_file", file_path="new.md", content="x"), {"input_tokens": 7, "output_tokens": 3}
    agents = {
        "asking": Agent([call("weather", city="Oslo")]),
        "answering": Agent([{"text": "Take an umbrella.", "assert": {"contains": "rain"}}]),
        "guarded": Agent([write, "It says: {{last_tool_result}}"], hooks=[{"module": "hooks-approval"}]),
        "paid": Agent([{"text": "That was expensive.", "usage": {**told, "cost_usd": 0.25}}]),
        "waiting": Agent([call("fault", fault="wait"), "It is over."], tools=[FAULTS]),
        "worker": Agent([call("read_file", file_path="notes.md"), "I have read it."]),
    }
    for name, agent in agents.items():
        agent.source(home, "profile", folder)
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
    (again,) = client.chat.completions.create(messages=messages, model="local/answering", tools=[WEATHER]).choices
    assert (again.message.content, again.finish_reason) == ("Take an umbrella.", "stop")


def test_a_header_binds_a_stored_session_which_keeps_its_turns(client: openai.OpenAI, home: Home, url: str) -> None:
    record = asyncio.run(home.sessions.create("foundation/offline", working_dir=home.settings.working_dir))
    spoken: Any = [{"role": "assistant", "content": "Not read here."}, {"role": "user", "content": "list files"}]
    other = {"X-Session-Id": "of-nobody", "X-Client-Session-Id": "of-nobody"}
    headers = [{**other, "X-Amplifier-Session": record.session_id}]
    headers += [{name: record.session_id} for name in other]
    for number, named in enumerate(headers, start=1):
        client.chat.completions.create(model="foundation/offline", messages=spoken, extra_headers=named)
        assert home.sessions.get(record.session_id).turn_count == number
    assert "Not read here." not in str(home.sessions.messages(record.session_id))
    token = {"Authorization": f"Bearer {home.paths.token_file.read_text().strip()}"}
    assert httpx2.get(f"{url}/api/v1/status", headers=token).json()["queues"]["subscribers"] == 0


@pytest.mark.parametrize("is_started", [True, False])
def test_a_session_that_cannot_execute_is_refused(client: openai.OpenAI, home: Home, is_started: bool) -> None:
    record = asyncio.run(home.sessions.create("foundation/offline", start=is_started))
    if is_started:
        record = asyncio.run(home.sessions.end(record.session_id))
    with pytest.raises(openai.ConflictError):
        client.chat.completions.create(
            model="foundation/offline",
            messages=[{"role": "user", "content": "list files"}],
            extra_headers={"X-Amplifier-Session": record.session_id},
        )
    assert home.sessions.get(record.session_id).status == record.status


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


def test_what_would_need_an_approval_is_denied(client: openai.OpenAI, home: Home) -> None:
    answer = client.chat.completions.create(model="local/guarded", messages=[{"role": "user", "content": "Write."}])

    assert "denied" in str(answer.choices[0].message.content).lower()
    assert not (home.settings.working_dir / "new.md").exists()


def test_usage_tells_what_a_turn_cost(client: openai.OpenAI) -> None:
    asked: Any = {"model": "local/paid", "messages": [{"role": "user", "content": "Think."}]}
    whole = client.chat.completions.create(**asked).usage
    *_, last = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})

    for used in (whole, last.usage):
        assert used is not None
        assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (7, 3, 10)
        assert float((used.model_extra or {})["cost"]) == 0.25


class Held:
    """Requests whose turn waits in a tool until it is let go on."""

    def __init__(self, url: str, home: Home) -> None:
        self._folder = home.settings.working_dir
        headers = {"Authorization": f"Bearer {home.paths.token_file.read_text().strip()}"}
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=60)

    @contextmanager
    def streaming(self, *earlier: Any, **headers: str) -> Iterator[Iterator[str]]:
        """Ask for a stream, and wait until its tool runs; yields what comes. The client leaves with the block."""
        with self._client.stream("POST", "/v1/chat/completions", **self._request(*earlier, **headers)) as answer:
            assert answer.status_code == 200
            wait_until((self._folder / "begun").exists)
            yield answer.iter_lines()

    def again(self, **headers: str) -> httpx2.Response:
        """Send the same request, and return its answer."""
        return self._client.post("/v1/chat/completions", **self._request(**headers))

    def _request(self, *earlier: Any, **headers: str) -> Any:
        body = {"model": "local/waiting", "messages": [*earlier, {"role": "user", "content": "Wait."}], "stream": True}
        return {"json": body, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}

    def go_on(self) -> None:
        (self._folder / "go").touch()

    def close(self) -> None:
        self.go_on()
        self._client.close()


@pytest.fixture
def held(url: str, home: Home) -> Iterator[Held]:
    for name in ("begun", "go"):
        (home.settings.working_dir / name).unlink(missing_ok=True)
    held = Held(url, home)
    yield held
    held.close()


def said(lines: Iterable[str]) -> str:
    """Return the text of a stream's chunks."""
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks).strip()


def test_earlier_messages_are_history_and_a_connection_is_kept_alive_while_a_tool_runs(held: Held, home: Home) -> None:
    earlier = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello Ada."},
    ]
    with held.streaming(*earlier) as lines:
        (its_own,) = [one.session_id for one in home.sessions.list().sessions if "completion" in one.tags]
        (request,) = home.sessions.requests(its_own)
        assert ": keepalive" in itertools.islice(lines, 20)
        held.go_on()
        assert said(lines) == "It is over."

    sent = str([part["content"] for part in request.to_json()["parts"]])
    places = [sent.find(text) for text in ("Be brief.", "My name is Ada.", "Hello Ada.", "Wait.")]
    assert -1 not in places
    assert places == sorted(places)


def test_a_turn_of_a_stored_session_goes_on_when_its_client_leaves(held: Held, home: Home) -> None:
    session_id = asyncio.run(home.sessions.create("local/waiting")).session_id
    with held.streaming(X_Amplifier_Session=session_id):
        pass
    held.go_on()

    wait_until(lambda: home.sessions.get(session_id).turn_count == 1)
    assert "It is over." in str(home.sessions.messages(session_id)[-1])


def test_a_request_with_a_key_outlasts_its_client_and_is_answered_when_it_comes_again(held: Held) -> None:
    key = {"Idempotency_Key": "outlasting"}
    with held.streaming(**key) as lines:
        first = json.loads(next(lines).removeprefix("data: "))
    with ThreadPoolExecutor(1) as beside:
        joining = beside.submit(held.again, **key)
        held.go_on()
        joined = joining.result()
    again = held.again(**key)

    assert joined.headers["idempotency-repeated"] == again.headers["idempotency-repeated"] == "true"
    assert joined.text == again.text
    assert again.headers["content-type"].startswith("text/event-stream")
    lines = again.text.splitlines()
    assert (said(lines), lines[-2]) == ("It is over.", "data: [DONE]")
    assert json.loads(lines[0].removeprefix("data: "))["id"] == first["id"]


def test_a_request_that_comes_twice_with_one_key_runs_one_turn(client: openai.OpenAI, home: Home) -> None:
    session_id, other_id = [asyncio.run(home.sessions.create(MODEL)).session_id for _ in range(2)]
    headers = {"X-Amplifier-Session": session_id, "Idempotency-Key": "once"}
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Read the notes."}]}

    whole = [client.chat.completions.create(**asked, extra_headers=headers) for _ in range(2)]
    assert whole[0] == whole[1]
    assert home.sessions.get(session_id).turn_count == 1

    headers["Idempotency-Key"] = "streamed-once"
    streamed = [list(client.chat.completions.create(**asked, stream=True, extra_headers=headers)) for _ in range(2)]
    texts = ["".join(chunk.choices[0].delta.content or "" for chunk in chunks) for chunks in streamed]
    assert texts[0] == texts[1]
    assert [chunks[-1] for chunks in streamed] == [streamed[0][-1]] * 2
    assert home.sessions.get(session_id).turn_count == 2

    for changed in ({"temperature": 0.5}, {"extra_headers": {**headers, "X-Amplifier-Session": other_id}}):
        with pytest.raises(openai.ConflictError) as conflict:
            client.chat.completions.create(**{**asked, "stream": True, "extra_headers": headers, **changed})
        assert conflict.value.code == "idempotency-conflict"
    assert (home.sessions.get(session_id).turn_count, home.sessions.get(other_id).turn_count) == (2, 0)
