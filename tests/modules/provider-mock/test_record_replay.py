"""Recording another provider, and replaying the recording without it."""

import asyncio
import http.client
import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_provider_mock import MockProvider
from amplifier_module_provider_mock.recording import canonical_request, first_difference, request_hash
from interruptions import cancelled_everywhere

from amplifier_core import AmplifierSession, ChatRequest, Message, ModelInfo, ProviderInfo, llm_errors
from amplifier_core.llm_errors import ConfigurationError, InvalidRequestError, RateLimitError
from amplifier_kit.providers.response import ProviderResponse, parse_tool_calls
from amplifier_kit.providers.stream import ProviderEvents, StreamEvents

KEY = "sk-very-secret"


class Vendor(BaseHTTPRequestHandler):
    """Answers the first request of a conversation with a tool call, later ones with a text."""

    def do_POST(self) -> None:
        assert self.headers["Authorization"] == f"Bearer {KEY}"
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        call = {"type": "tool_call", "id": "c1", "name": "echo", "input": {"text": "hi"}}
        content = [{"type": "text", "text": f"got {len(messages)}"}] if len(messages) > 1 else [call]
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


class VendorProvider:
    """A provider of a vendor on loopback."""

    name = "vendor"

    def __init__(self, port: int, coordinator: Any) -> None:
        self._port = port
        self._events = ProviderEvents(coordinator)

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="vendor", display_name="Vendor")

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="v1", display_name="V1", context_window=1, max_output_tokens=1)]

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ProviderResponse:
        await self._events.emit("llm:request", {"provider": self.name, "model": "v1", "message_count": 1})
        content = await asyncio.to_thread(self._post, [message.role for message in request.messages])
        async with StreamEvents(self._events) as stream:
            for block in content:
                await stream.feed("text", block.get("text", ""))
            await stream.call("echo")
        await self._events.emit("llm:response", {"provider": self.name, "model": "v1", "status": "ok"})
        parsed = ProviderResponse.model_validate({"content": content}).content
        return ProviderResponse.of(parsed, finish_reason="stop")

    def parse_tool_calls(self, response: Any) -> Any:
        return parse_tool_calls(response)

    def _post(self, messages: list[str]) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        connection.request("POST", "/", json.dumps(messages), {"Authorization": f"Bearer {KEY}"})
        answer: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        connection.close()
        return answer


@pytest.fixture
def vendor_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Vendor) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class EchoTool:
    name = "echo"
    description = "Says it again."

    async def execute(self, input: dict[str, Any]) -> Any:
        return input["text"]


class Turn:
    """One turn of a real session, and what was heard of it."""

    def __init__(self, config: dict[str, Any], port: int | None = None) -> None:
        self.config, self.port = config, port
        self.stream: list[tuple[str, dict[str, Any]]] = []
        self.llm: list[str] = []
        self.called: list[str] = []

    async def run(self, prompt: str) -> str:
        modules = Path(__file__).parents[3] / "modules"
        plan = {
            "session": {
                "orchestrator": {
                    "module": "loop-basic",
                    "source": str(modules / "loop-basic"),
                    "config": {"default_provider": "mock"},
                },
                "context": {"module": "context-simple", "source": str(modules / "context-simple")},
            },
            "providers": [{"module": "provider-mock", "source": str(modules / "provider-mock"), "config": self.config}],
        }
        async with AmplifierSession(plan) as session:
            coordinator = session.coordinator
            for event in ("start", "delta", "end"):
                coordinator.hooks.register(f"llm:stream_block_{event}", self._keep)
            coordinator.hooks.register("llm:request", self._keep_request)
            coordinator.hooks.register("tool:pre", self._keep_tool)
            await coordinator.mount("tools", EchoTool(), name="echo")
            if self.port is not None:
                await coordinator.mount("providers", VendorProvider(self.port, coordinator), name="vendor")
            return await session.execute(prompt)

    async def _keep(self, event: str, data: dict[str, Any]) -> None:
        dropped = ("timestamp", "request_id", "session_id", "parent_id")
        self.stream.append((event, {key: value for key, value in data.items() if key not in dropped}))

    async def _keep_request(self, event: str, data: dict[str, Any]) -> None:
        self.llm.append(data["provider"])

    async def _keep_tool(self, event: str, data: dict[str, Any]) -> None:
        self.called.append(data["tool_name"])


async def test_a_recorded_turn_replays_without_the_vendor(tmp_path: Path, vendor_port: int) -> None:
    path = tmp_path / "turn.jsonl"
    recorded = Turn({"record": str(path), "provider": "vendor"}, vendor_port)
    text = await recorded.run("Say hi")
    replayed = Turn({"replay": str(path)})

    again = await replayed.run("Say hi")

    assert (again, replayed.called, replayed.stream) == (text, recorded.called, recorded.stream)
    assert text == "got 3"
    assert recorded.stream
    assert (recorded.llm, replayed.llm) == (["vendor"] * 2, ["mock"] * 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KEY not in path.read_text(encoding="utf-8")


async def test_one_changed_word_is_reported_with_call_path_and_both_texts(tmp_path: Path, vendor_port: int) -> None:
    path = tmp_path / "turn.jsonl"
    await Turn({"record": str(path), "provider": "vendor"}, vendor_port).run("Say hi")

    with pytest.raises(InvalidRequestError) as caught:
        await Turn({"replay": str(path)}).run("Say ho")

    message = str(caught.value)
    assert all(part in message for part in ("n: 1", "messages[0].content", "'Say hi'", "'Say ho'"))


async def test_a_line_holds_number_hash_request_response_and_events(desk: Any, tmp_path: Path) -> None:
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"responses": ["hé llo"]}, one.coordinator)

    response = await one.ask({"role": "user", "content": "x", "metadata": {"a": 1}}, metadata={"b": 2})

    (line,) = [json.loads(line) for line in (tmp_path / "rec.jsonl").read_text(encoding="utf-8").splitlines()]
    assert set(line) == {"n", "request_hash", "request", "response", "events"}
    assert line["n"] == 1
    assert line["request"] == {"messages": [{"content": "x", "role": "user"}], "stream": False}
    assert line["request_hash"] == request_hash(line["request"])
    assert line["response"]["content"][0]["text"] == "hé llo" == response.content[0].text
    assert [event for event, _ in line["events"]] == one.names("llm:stream_")
    assert one.names("llm:re") == ["llm:request", "llm:response"]


async def test_text_may_hold_every_kind_of_line_end(desk: Any) -> None:
    said = "one\u2028two\u2029three\x85four\x0bfive\r\nsix"
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"responses": [said]}, one.coordinator)
    await one.ask(said)

    assert await desk({"replay": "rec.jsonl"}).text(said) == said


async def test_concurrent_calls_are_recorded_apart_and_numbered_as_they_started(desk: Any, tmp_path: Path) -> None:
    one = desk({"record": "rec.jsonl", "provider": "other"})
    entries = [{"text": "slow one", "latency_ms": 20}, {"text": "quick"}]
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"responses": entries}, one.coordinator)

    await asyncio.gather(one.ask("first"), one.ask("second"))

    lines = [json.loads(line) for line in (tmp_path / "rec.jsonl").read_text(encoding="utf-8").splitlines()]
    said = {
        line["n"]: [payload["text"] for event, payload in line["events"] if event.endswith("delta")] for line in lines
    }
    asked = {line["n"]: line["request"]["messages"][0]["content"] for line in lines}
    assert said == {1: ["slow ", "one "], 2: ["quick "]}
    assert asked == {1: "first", 2: "second"}
    replayed = desk({"replay": "rec.jsonl"})
    assert [await replayed.text("first"), await replayed.text("second")] == ["slow one", "quick"]


async def test_an_error_is_recorded_and_raised_again_as_its_class(desk: Any) -> None:
    fault = {"type": "rate_limit", "retry_after": 7, "message": "slow down", "after_deltas": 1}
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"errors": [fault]}, one.coordinator)
    with pytest.raises(RateLimitError):
        await one.ask("x")

    replayed = desk({"replay": "rec.jsonl", "max_retries": 3})
    with pytest.raises(RateLimitError, match="slow down") as caught:
        await replayed.ask("x")

    assert (caught.value.retry_after, caught.value.status_code, caught.value.retryable) == (7, 429, True)
    assert replayed.heard("llm:stream_") == one.heard("llm:stream_")
    assert replayed.names("provider:retry") == []


@pytest.mark.parametrize("name", ["LLMError", "ContextLengthError", "QuotaExceededError"])
async def test_errors_keep_their_class(desk: Any, name: str) -> None:
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"errors": [{"type": name}]}, None)
    with pytest.raises(llm_errors.LLMError):
        await one.ask("x")

    with pytest.raises(llm_errors.LLMError) as caught:
        await desk({"replay": "rec.jsonl"}).ask("x")

    assert type(caught.value).__name__ == name


async def test_a_call_beyond_the_recording_names_how_many_there_are(desk: Any) -> None:
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({}, None)
    await one.ask("x")
    replayed = desk({"replay": "rec.jsonl"})
    await replayed.ask("x")

    with pytest.raises(InvalidRequestError, match=r"call 2 .* holds 1 calls"):
        await replayed.ask("x")


async def test_a_recording_without_stream_events_is_streamed_all_the_same(desk: Any) -> None:
    one = desk({"record": "rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = MockProvider({"responses": ["a b"]}, None)
    await one.ask("x")
    replayed = desk({"replay": "rec.jsonl"})

    await replayed.ask("x")

    assert replayed.names("llm:stream_").count("llm:stream_block_delta") == 2


async def test_a_recording_that_exists_is_continued(desk: Any) -> None:
    for prompt in ("one", "two"):
        one = desk({"record": "rec.jsonl", "provider": "other"})
        one.coordinator.mount_points["providers"]["other"] = MockProvider({"mode": "echo"}, None)
        await one.ask(prompt)
        await one.provider.close()

    replayed = desk({"replay": "rec.jsonl"})
    assert [await replayed.text("one"), await replayed.text("two")] == ["one", "two"]


async def test_a_recording_that_is_cancelled_leaves_nothing_open_wherever_it_waits(desk: Any) -> None:
    async def record() -> None:
        one = desk({"record": "rec.jsonl", "provider": "other"})
        one.coordinator.mount_points["providers"]["other"] = MockProvider({"mode": "echo"}, None)
        try:
            await one.ask("Hello")
        finally:
            await one.provider.close()

    assert await cancelled_everywhere(record) > 0


async def test_while_recording_the_other_provider_describes_itself(desk: Any) -> None:
    one = desk({"record": "rec.jsonl", "provider": "vendor"})
    before = one.provider.get_info().id
    one.coordinator.mount_points["providers"]["vendor"] = VendorProvider(0, None)

    assert (before, one.provider.get_info().id) == ("mock", "vendor")
    assert [model.id for model in await one.provider.list_models()] == ["v1"]
    assert one.provider.parse_tool_calls(ProviderResponse.of([])) == []


@pytest.mark.parametrize("name", ["gone", "mock"])
async def test_without_a_provider_to_record_the_mounted_names_are_listed(desk: Any, name: str) -> None:
    one = desk({"record": "rec.jsonl", "provider": name})
    one.coordinator.mount_points["providers"].update({"mock": one.provider, "other": MockProvider({}, None)})

    with pytest.raises(ConfigurationError, match="mounted: mock, other"):
        await one.ask("x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "rec.jsonl: No such file"),
        ("{oops\n", "rec.jsonl, line 1: not a recorded call"),
        ('{"n": 1}\n', "rec.jsonl, line 1: not a recorded call .*'request'"),
    ],
)
async def test_a_recording_that_cannot_be_read_is_a_configuration_error(
    desk: Any, tmp_path: Path, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / "rec.jsonl").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigurationError, match=words):
        await desk({"replay": "rec.jsonl"}).ask("x")


async def test_a_recording_that_cannot_be_written_fails_before_the_other_provider_is_asked(
    desk: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    other = MockProvider({}, None)
    one = desk({"record": "file/rec.jsonl", "provider": "other"})
    one.coordinator.mount_points["providers"]["other"] = other

    with pytest.raises(ConfigurationError, match=r"file/rec\.jsonl"):
        await one.ask("x")

    assert other.call_count == 0


def test_the_canonical_request_has_no_nulls_and_no_metadata() -> None:
    block = {"type": "text", "text": "hi", "metadata": {"a": 1}}
    message = Message.model_validate({"role": "user", "content": [block], "metadata": {"b": 1}})
    call = {"id": "1", "name": "x", "arguments": {"metadata": "kept", "none": None}}
    assistant = Message.model_validate({"role": "assistant", "content": "", "tool_calls": [call]})
    request = ChatRequest(messages=[message, assistant], metadata={"c": 1})

    assert canonical_request(request) == {
        "stream": False,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "", "tool_calls": [{**call, "arguments": {"metadata": "kept"}}]},
        ],
    }


@pytest.mark.parametrize(
    ("recorded", "given", "expected"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, ("a[1].b", "x", "y")),
        ({"a": [1]}, {"a": [1, 2]}, ("a[1]", "(absent)", "2")),
        ({"a": 1, "b": 1}, {"b": 1}, ("a", "1", "(absent)")),
        ({"a": "x" * 300}, {"a": [1]}, ("a", "x" * 200 + "…", "[1]")),
    ],
)
def test_the_first_difference_names_its_place(recorded: Any, given: Any, expected: Any) -> None:
    assert first_difference(recorded, given) == expected
