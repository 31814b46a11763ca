"""Which file set a value."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.bundle_file import read_bundle
from amplifier_foundation.provenance import Layer, explain, parse_path

BASE = """\
---
bundle:
  name: base
session:
  orchestrator: {module: loop-basic, source: ./loop}
tools:
  - module: tool-other
  - module: tool-bash
    config:
      timeout: 10
      allowed: [ls]
agents:
  include: [helper]
  inline:
    description: inline one
context:
  include: [a.md]
---

Base instruction.
"""
OVERLAY = """\
bundle: {name: overlay}
tools:
  - config:
      timeout: 20
      allowed: [cat]
    module: tool-bash
agents:
  inline:
    description: replaced
"""
HELPER = """\
---
meta:
  name: helper
  description: helps
model_role: fast
---
Help.
"""


@pytest.fixture
def base(tmp_path: Path) -> Bundle:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/helper.md").write_text(HELPER, encoding="utf-8")
    (tmp_path / "base.md").write_text(BASE, encoding="utf-8")
    return read_bundle(tmp_path / "base.md")


@pytest.fixture
def overlay(tmp_path: Path) -> Bundle:
    (tmp_path / "overlay.yaml").write_text(OVERLAY, encoding="utf-8")
    return read_bundle(tmp_path / "overlay.yaml")


def place(tmp_path: Path, bundle: str, line: int, file: str = "") -> dict[str, Any]:
    names = {"base": "base.md", "overlay": "overlay.yaml"}
    return {"bundle": bundle, "file": str(tmp_path / (file or names[bundle])), "line": line}


def test_a_value_is_traced_to_the_file_and_line_that_set_it_and_what_that_overrode(
    tmp_path: Path, base: Bundle, overlay: Bundle
) -> None:
    assert base.compose(overlay).explain("tools[tool-bash].config.timeout") == {
        "value": 20,
        "origin": place(tmp_path, "overlay", 4),
        "overrode": [{"value": 10, "origin": place(tmp_path, "base", 10), "merged": False}],
    }


def test_a_merged_list_names_everybody_who_has_a_part_in_it(tmp_path: Path, base: Bundle, overlay: Bundle) -> None:
    explained = base.compose(overlay).explain("tools[tool-bash].config.allowed")

    assert explained["value"] == ["ls", "cat"]
    assert explained["overrode"] == [{"value": ["ls"], "origin": place(tmp_path, "base", 11), "merged": True}]


def test_replaced_agents_are_not_merged(tmp_path: Path, base: Bundle, overlay: Bundle) -> None:
    explained = base.compose(overlay).explain("agents.inline")

    assert explained["value"] == {"description": "replaced"}
    assert explained["overrode"] == [
        {"value": {"description": "inline one"}, "origin": place(tmp_path, "base", 14), "merged": False}
    ]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("tools[tool-other]", {"module": "tool-other"}, 7),
        ("tools[tool-bash].module", "tool-bash", 8),
        ("session.orchestrator.module", "loop-basic", 5),
        ("session", None, 4),
        ("agents[inline].description", "inline one", 15),
        ("agents[helper]", {"name": "helper"}, 12),
        ("instruction", "Base instruction.", 20),
    ],
)
def test_a_bundle_read_from_one_file_can_be_explained_too(
    tmp_path: Path, base: Bundle, path: str, value: Any, line: int
) -> None:
    explained = base.explain(path)

    assert explained["value"] == value or value is None
    assert explained["origin"] == place(tmp_path, "base", line)
    assert explained["overrode"] == []


def test_the_value_is_the_one_in_the_bundle_not_the_one_in_the_file(tmp_path: Path, base: Bundle) -> None:
    explained = base.explain("session.orchestrator.source")

    assert explained["value"] == str(tmp_path.resolve() / "loop")
    assert explained["origin"]["line"] == 5


def test_context_files_are_traced_under_their_composed_names(tmp_path: Path, base: Bundle, overlay: Bundle) -> None:
    explained = base.compose(overlay).explain("context[base:a.md]")

    assert explained["value"] == tmp_path / "a.md"
    assert explained["origin"] == place(tmp_path, "base", 16)


def test_what_comes_from_an_agents_own_file_is_traced_to_it(tmp_path: Path, base: Bundle) -> None:
    base.load_agent_metadata()
    composed = base.compose(Bundle(name="outer"))

    described, role = composed.explain("agents.helper.description"), composed.explain("agents.helper.model_role")

    assert (described["value"], role["value"]) == ("helps", "fast")
    assert described["origin"] == place(tmp_path, "base", 4, "agents/helper.md")
    assert role["origin"] == place(tmp_path, "base", 5, "agents/helper.md")
    assert composed.explain("agents.helper.instruction")["origin"]["line"] == 7
    assert composed.explain("agents.helper.name")["origin"] == place(tmp_path, "base", 12)


def test_bundles_made_by_a_program_have_no_file() -> None:
    composed = Bundle(name="a", tools=[{"module": "t", "config": {"x": 1}}]).compose(
        Bundle(name="b", tools=[{"module": "t", "config": {"x": 2}}])
    )

    assert composed.explain("tools[t].config.x") == {
        "value": 2,
        "origin": {"bundle": "b", "file": None, "line": None},
        "overrode": [{"value": 1, "origin": {"bundle": "a", "file": None, "line": None}, "merged": False}],
    }


def test_what_a_program_changed_after_composing_is_not_blamed_on_a_file(base: Bundle, overlay: Bundle) -> None:
    composed = base.compose(overlay)
    composed.tools[1]["config"]["timeout"] = 99

    explained = composed.explain("tools[tool-bash].config.timeout")

    assert explained["origin"] == {"bundle": None, "file": None, "line": None}
    assert [earlier["value"] for earlier in explained["overrode"]] == [10, 20]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing",
        "tools[none]",
        "tools[tool-bash].config.none",
        "tools[tool-bash].module.x",
        "tools..x",
        "tools[",
        "a]",
    ],
)
def test_a_path_that_leads_nowhere_is_a_key_error(base: Bundle, path: str) -> None:
    with pytest.raises(KeyError):
        base.explain(path)


def test_a_file_that_is_gone_or_changed_leaves_the_line_open(tmp_path: Path, base: Bundle) -> None:
    (tmp_path / "base.md").write_text("---\nbundle: [\n---\n", encoding="utf-8")
    assert base.explain("tools")["origin"] == {"bundle": "base", "file": str(tmp_path / "base.md"), "line": None}

    (tmp_path / "base.md").unlink()
    assert base.explain("tools")["origin"]["line"] is None


def test_paths_have_dotted_keys_and_brackets_for_entries_and_keys_with_dots() -> None:
    assert parse_path("tools[tool-bash].config[a.b].c") == ("tools", "tool-bash", "config", "a.b", "c")


def test_other_owners_lists_and_identities_can_be_explained() -> None:
    layers = [
        Layer("defaults", None, {"tools": [{"key": "t", "paths": [1]}]}),
        Layer("mine", None, {"tools": [{"key": "t", "paths": [2]}]}),
    ]
    whole = {"tools": [{"key": "t", "paths": [2]}]}

    explained = explain(
        whole, layers, "tools[t].paths", owner="profile", lists="replace", identity=lambda entry: entry.get("key")
    )

    assert explained == {
        "value": [2],
        "origin": {"profile": "mine", "file": None, "line": None},
        "overrode": [{"value": [1], "origin": {"profile": "defaults", "file": None, "line": None}, "merged": False}],
    }


def test_composing_reads_no_file_again_for_provenance(tmp_path: Path, base: Bundle, overlay: Bundle) -> None:
    for file in (tmp_path / "base.md", tmp_path / "overlay.yaml"):
        file.unlink()

    assert base.compose(overlay).explain("tools[tool-bash].config.timeout")["value"] == 20
