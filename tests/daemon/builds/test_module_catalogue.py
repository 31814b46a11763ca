"""What is said of a module that a profile was compiled with."""

from typing import Any

from amplifierd.identifiers import ProfileId
from amplifierd.server.module_catalogue import ModuleCatalogue

DECLARED = """\
[config_schema]
type = "object"
properties.size = {type = "integer"}
"""


async def test_a_module_has_the_schema_that_it_declares_in_a_file(bench: Any) -> None:
    declaration = {"amplifier_module_tool_sized/runtime.toml": DECLARED}
    files = bench.module_files("tool-sized", declaration)
    source = bench.write_module("tool-sized", files)
    bench.write_profile(providers=[{"module": "provider-mock"}], tools=[{"module": "tool-sized", "source": source}])
    await bench.home.profiles.compile("local/mine")

    catalogue = ModuleCatalogue(bench.home.collections, bench.home.profiles, bench.home.paths.share)
    found = catalogue.get("tool-sized", profile=ProfileId.parse("local/mine"))

    assert found.config_schema == {"type": "object", "properties": {"size": {"type": "integer"}}}
    assert catalogue.get("tool-bash").config_schema is None
