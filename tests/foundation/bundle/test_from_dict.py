"""From the mapping of a bundle file to a bundle."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleLoadError, BundleValidationError

MODULE_SECTIONS = ["providers", "tools", "hooks"]


def test_an_empty_mapping_is_an_empty_bundle() -> None:
    bundle = Bundle.from_dict({})

    assert bundle == Bundle(name="")
    assert (bundle.version, bundle.description, bundle.instruction, bundle.from_meta) == ("1.0.0", "", None, False)


def test_every_key_finds_its_field() -> None:
    data: dict[str, Any] = {
        "bundle": {"name": "b", "version": "2.1", "description": "d", "namespace_root": "..", "author": "ignored"},
        "includes": ["x", {"bundle": "ns:y"}],
        "session": {"orchestrator": "loop-basic", "raw": True},
        "providers": [{"module": "p"}],
        "tools": [{"module": "t", "anything": 1}],
        "hooks": [{"module": "h"}],
        "agents": {"a": {"description": "A"}},
        "context": {"guide": "g.md"},
        "spawn": {"exclude_tools": ["t"]},
        "instruction": "ignored",
        "skills": ["ignored"],
    }

    bundle = Bundle.from_dict(data)

    assert bundle == Bundle(
        name="b",
        version="2.1",
        description="d",
        includes=["x", {"bundle": "ns:y"}],
        namespace_root="..",
        session={"orchestrator": "loop-basic", "raw": True},
        providers=[{"module": "p"}],
        tools=[{"module": "t", "anything": 1}],
        hooks=[{"module": "h"}],
        spawn={"exclude_tools": ["t"]},
        agents={"a": {"description": "A"}},
        context={"guide": Path("g.md")},
    )
    assert bundle.tools is data["tools"]
    assert bundle.session is data["session"]


def test_fields_can_be_given_by_position_and_none_stands_for_an_empty_collection() -> None:
    nones: list[Any] = [None] * 3

    bundle = Bundle("n", "1", "d", *nones, *nones, *nones, None, None, *nones)

    assert (bundle.includes, bundle.session, bundle.tools, bundle.agents) == ([], {}, [], {})
    assert (bundle.context, bundle.source_base_paths, bundle._pending_context, bundle.origins) == ({}, {}, {}, {})
    assert bundle.namespace_root is None


@pytest.mark.parametrize(
    "key", ["bundle", "meta", "includes", "session", "providers", "tools", "hooks", "agents", "context", "spawn"]
)
def test_a_null_counts_as_absent(key: str) -> None:
    assert Bundle.from_dict({key: None}) == Bundle(name="")


@pytest.mark.parametrize("head", [{"name": None, "version": None, "description": None, "namespace_root": None}, {}])
def test_nulls_in_the_head_count_as_absent(head: dict[str, Any]) -> None:
    assert Bundle.from_dict({"bundle": head}) == Bundle(name="")


def test_nulls_under_include_count_as_absent() -> None:
    bundle = Bundle.from_dict({"agents": {"include": None}, "context": {"include": None}}, Path("/b"))

    assert (bundle.agents, bundle.context) == ({}, {})


def test_name_and_description_of_an_agent_file_come_from_meta_and_do_not_count_for_equality() -> None:
    agent = Bundle.from_dict({"meta": {"name": "helper", "description": "d", "model_role": "fast"}})

    assert (agent.name, agent.description, agent.from_meta) == ("helper", "d", True)
    assert agent == Bundle(name="helper", description="d")


def test_meta_is_not_read_beside_bundle() -> None:
    bundle = Bundle.from_dict({"bundle": {"name": "b"}, "meta": {"name": "m", "description": "d"}})

    assert (bundle.name, bundle.description, bundle.from_meta) == ("b", "", False)


@pytest.mark.parametrize("section", MODULE_SECTIONS)
def test_a_section_of_modules_that_is_no_list_is_refused_with_the_correct_format(section: str) -> None:
    with pytest.raises(BundleValidationError) as error:
        Bundle.from_dict({"bundle": {"name": "bad"}, section: {"module": "x"}})

    for part in ["bad", f"malformed {section}", "expected list, got dict", "Correct format:", "module", "source"]:
        assert part in str(error.value)


@pytest.mark.parametrize("section", MODULE_SECTIONS)
def test_an_entry_that_is_no_mapping_is_refused_with_its_place(section: str) -> None:
    with pytest.raises(BundleValidationError) as error:
        Bundle.from_dict({section: [{"module": "fine"}, "tool-bash"]}, Path("/somewhere"))

    for part in ["/somewhere", f"{section}[1]", "expected dict", "got str", "'tool-bash'", "Correct format:"]:
        assert part in str(error.value)


@pytest.mark.parametrize("nothing", [None, [], {}, "", 0])
def test_an_empty_section_of_modules_is_an_empty_list(nothing: Any) -> None:
    assert Bundle.from_dict({"tools": nothing}).tools == []


def test_an_entry_without_module_is_accepted() -> None:
    assert Bundle.from_dict({"tools": [{"path": "x"}]}).tools == [{"path": "x"}]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (["x"], "the whole document"),
        ({"bundle": "name"}, "bundle"),
        ({"bundle": {"name": 3}}, "bundle.name"),
        ({"bundle": {"namespace_root": []}}, "bundle.namespace_root"),
        ({"meta": ["x"]}, "meta"),
        ({"includes": "x"}, "includes"),
        ({"session": ["x"]}, "session"),
        ({"spawn": "all"}, "spawn"),
        ({"context": "file.md"}, "context"),
        ({"context": {"include": "file.md"}}, "context.include"),
        ({"context": {"include": ["a", {"b": 1}]}}, "context.include[1]"),
        ({"agents": 7}, "agents"),
        ({"agents": {"include": "x"}}, "agents.include"),
        ({"agents": {"include": [["x"]]}}, "agents.include[0]"),
    ],
)
def test_a_section_of_the_wrong_shape_is_refused_by_its_key(data: Any, key: str) -> None:
    with pytest.raises(BundleLoadError) as error:
        Bundle.from_dict(data)

    assert f"{key} must be a " in str(error.value)


def test_relative_sources_count_from_the_declaring_file(tmp_path: Path) -> None:
    module = {"module": "m", "source": "../m"}
    expected = {"module": "m", "source": str(tmp_path.parent.resolve() / "m")}
    sections = {"providers": [module], "tools": [module], "hooks": [module]}
    resolved_sections = {"providers": [expected], "tools": [expected], "hooks": [expected]}
    session = {"orchestrator": module, "context": {**module, "config": {"x": 1}}, "raw": True}
    resolved_session = {"orchestrator": expected, "context": {**expected, "config": {"x": 1}}, "raw": True}
    agent = {"description": "A", "session": session, **sections}

    bundle = Bundle.from_dict({"session": session, "agents": {"a": agent}, **sections}, tmp_path)

    assert bundle.session == resolved_session
    assert (bundle.providers, bundle.tools, bundle.hooks) == ([expected], [expected], [expected])
    assert bundle.agents == {"a": {"description": "A", "session": resolved_session, **resolved_sections}}
    assert module == {"module": "m", "source": "../m"}


@pytest.mark.parametrize("source", ["modules/x", ".", "x", "git+https://h/r@v1", "/abs", None, 5])
def test_other_sources_stay_as_they_are(source: Any, tmp_path: Path) -> None:
    entries = [{"module": "m", "source": source}, {"module": "n"}]

    bundle = Bundle.from_dict({"tools": entries}, tmp_path)

    assert bundle.tools is entries
    assert bundle.tools[0]["source"] == source


def test_without_a_directory_relative_sources_stay_as_they_are() -> None:
    assert Bundle.from_dict({"tools": [{"module": "m", "source": "./m"}]}).tools[0]["source"] == "./m"


@pytest.mark.parametrize("access", ["all", "none", ["a", "b"], "", None])
def test_agents_as_text_or_list_is_access_control_and_leaves_the_roster_empty(access: Any) -> None:
    assert Bundle.from_dict({"agents": access}).agents == {}


def test_the_roster_has_the_included_agents_first_and_drops_what_is_no_definition() -> None:
    inline = {"description": "I"}

    bundle = Bundle.from_dict({"agents": {"inline": inline, "odd": "text", "include": ["one", "ns:two"]}})

    assert list(bundle.agents.items()) == [
        ("one", {"name": "one"}),
        ("ns:two", {"name": "ns:two"}),
        ("inline", {"description": "I"}),
    ]
    assert bundle.agents["inline"] is inline


def test_context_files_are_placed_or_wait_for_their_namespace() -> None:
    declared = {"include": ["a/b.md", "/c.md", "ns:d.md", "@ns:e.md", "@f.md"], "guide": "g.md", "odd": 3}

    bundle = Bundle.from_dict({"context": declared}, Path("/b"))

    assert bundle.context == {
        "a/b.md": Path("/b/a/b.md"),
        "/c.md": Path("/b/c.md"),
        "f.md": Path("/b/f.md"),
        "guide": Path("/b/g.md"),
    }
    assert bundle._pending_context == {"ns:d.md": "ns:d.md", "ns:e.md": "ns:e.md"}


def test_context_as_a_list_is_shorthand_for_include() -> None:
    bundle = Bundle.from_dict({"context": ["a.md", "ns:b.md"]}, Path("/b"))

    assert bundle.context == {"a.md": Path("/b/a.md")}
    assert list(bundle._pending_context) == ["ns:b.md"]


def test_without_a_directory_included_context_is_dropped_and_named_context_kept() -> None:
    bundle = Bundle.from_dict({"context": {"include": ["a.md"], "guide": "g.md"}})

    assert bundle.context == {"guide": Path("g.md")}
