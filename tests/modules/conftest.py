"""Makes the modules of the repository importable where the installed distribution does not offer them."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, reply, text, thinking, tool_use
from openai_server import OpenAIServer, Said

for _folder in sorted((Path(__file__).parents[2] / "modules").iterdir()):
    if _folder.is_dir() and find_spec(f"amplifier_module_{_folder.name.replace('-', '_')}") is None:
        sys.path.append(str(_folder))


@pytest.fixture
def provider_anthropic_stage() -> Iterator[dict[str, Any]]:
    with AnthropicServer() as server:
        call = tool_use("toolu_1", "echo", {"text": "hi"})
        server.always = reply(thinking("hm", "sig-1"), text("two words"), call)
        yield {"api_key": server.key, "base_url": server.url}


@pytest.fixture
def provider_openai_stage() -> Iterator[dict[str, Any]]:
    with OpenAIServer() as server:
        call = ("call_1", "echo", {"text": "hi"})
        server.always = Said("two words", thinking="hm", encrypted="sig-1", calls=[call])
        yield {"api_key": server.key, "base_url": server.base_url}
