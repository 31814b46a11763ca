"""A session that was begun with one vendor goes on with another: what was thought, called and seen is understood there.

The vendors' stand-ins refuse what the vendors refuse, so a block that the other does not take would fail the turn.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from anthropic_server import MESSAGES, AnthropicServer, redacted, reply, text, thinking, tool_use
from openai_server import OpenAIServer, Said

import amplifierd
from amplifierd.home import Home

Way = Literal["fork", "change", "change while open"]
VENDORS = ("anthropic", "responses", "chat")
PROFILE = """\
---
profile: {{name: {name}, version: 1.0.0, schema_version: 2}}
session: {{orchestrator: {{module: loop-streaming}}, context: {{module: context-simple}}}}
providers: [{provider}]
tools: [{{module: tool-filesystem}}]
---

You are the agent of {name}.
"""


class Vendors:
    """The stand-ins, one model each; every turn it thinks, reads the notes and answers."""

    def __init__(self, anthropic: AnthropicServer, responses: OpenAIServer, chat: OpenAIServer) -> None:
        self._anthropic, self._openai = anthropic, {"responses": responses, "chat": chat}

    def provider(self, name: str) -> dict[str, Any]:
        common = {"max_retries": 0, "reasoning_effort": "high"}
        if name == "anthropic":
            config = {"api_key": self._anthropic.key, "base_url": self._anthropic.url, **common}
            return {"module": "provider-anthropic", "config": config}
        server = self._openai[name]
        config = {"api": name, "api_key": server.key, "base_url": server.base_url, **common}
        return {"module": "provider-openai", "config": config}

    def script(self, name: str, number: int) -> None:
        file = {"file_path": "notes.md"}
        if name == "anthropic":
            calls = [tool_use(f"toolu_{number}", "read_file", file)]
            first = reply(thinking("hm", f"sig-{number}"), redacted("black"), text("I will look."), *calls)
            self._anthropic.script(MESSAGES, first, reply(thinking("so", f"end-{number}"), text(f"Seen, {number}.")))
        else:
            calls = [(f"functions.read:{number}", "read_file", file)]
            self._openai[name].say(
                Said("I will look.", thinking="hm", encrypted=f"sig-{number}", calls=calls),
                Said(f"Seen, {number}.", thinking="so", encrypted=f"end-{number}"),
            )

    def last_request(self, name: str) -> str:
        bodies = self._anthropic.bodies if name == "anthropic" else self._openai[name].sent()
        return json.dumps(bodies[-1])


@pytest.fixture(autouse=True, scope="module")
def one_set_of_certificates() -> Iterator[None]:
    """Read the machine's certificates once instead of for every client; no test needs them."""
    context = ssl.create_default_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", lambda *args, **options: context)
        yield


@pytest.fixture
def vendors() -> Iterator[Vendors]:
    with ExitStack() as running:
        yield Vendors(*(running.enter_context(server()) for server in (AnthropicServer, OpenAIServer, OpenAIServer)))


@pytest.fixture
def home(tmp_path: Path, vendors: Vendors) -> Home:
    home = amplifierd.open_home(tmp_path / "home", offline=True)
    home.paths.own_profiles.mkdir(parents=True)
    for name in VENDORS:
        text_of = PROFILE.format(name=name, provider=json.dumps(vendors.provider(name)))
        (home.paths.own_profiles / f"{name}.md").write_text(text_of)
    return home


async def go_on(home: Home, session_id: str, profile: str, way: Way) -> str:
    """Let another profile go on with a session; returns the id under which it does."""
    if way == "fork":
        return (await home.sessions.fork(session_id, profile=profile)).session_id
    if way == "change":
        await home.sessions.change_profile(session_id, profile)
        return session_id
    async with home.sessions.resume(session_id):
        await home.sessions.change_profile(session_id, profile)
    return session_id


@pytest.mark.parametrize(
    ("first", "second", "way"),
    [
        ("anthropic", "responses", "fork"),
        ("anthropic", "responses", "change"),
        ("responses", "anthropic", "change while open"),
        ("chat", "anthropic", "fork"),
    ],
)
async def test_a_session_goes_on_with_another_vendor_and_comes_back(
    home: Home, vendors: Vendors, tmp_path: Path, first: str, second: str, way: Way
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.md").write_text("THE-NOTES\n")
    vendors.script(first, 0)
    async with home.sessions.open(f"local/{first}", working_dir=work) as session:
        assert (await session.execute("Look, 0, at @notes.md.")).status == "completed"
    session_id = session.session_id

    for number, name in enumerate((second, first, second), 1):
        session_id = await go_on(home, session_id, f"local/{name}", way)
        vendors.script(name, number)
        async with home.sessions.resume(session_id) as session:
            result = await session.execute(f"Look, {number}.")
        assert (result.status, result.error) == ("completed", None)
        assert [call.status for call in result.tool_calls] == ["done"]

        request = vendors.last_request(name)
        assert f"You are the agent of {name}" in request
        assert request.count("You are the agent of") == 1
        assert [request.count(f"Look, {turn}") for turn in range(number + 1)] == [1] * (number + 1)
        assert [request.count(f"Seen, {turn}.") for turn in range(number)] == [1] * number
        own = [f"sig-{turn}" in request for turn in range(number + 1)]
        assert own == [name != "chat" and turn % 2 == number % 2 for turn in range(number + 1)], "thoughts go back home"
        assert request.count("THE-NOTES") == 1 + number + 1, "the file of the prompt, and what each call saw"
    assert home.sessions.get(session_id).turn_count == 4
    await home.sessions.close()
