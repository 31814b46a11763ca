"""What an agent's file adds to its definition."""

import logging
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.agents import read_agent_file


def agent_file(directory: Path, text: str, name: str = "helper") -> Path:
    path = directory / "agents" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(tmp_path: Path, definition: dict[str, Any]) -> dict[str, Any]:
    bundle = Bundle(name="b", base_path=tmp_path, agents={"helper": definition})
    bundle.load_agent_metadata()
    return bundle.agents["helper"]


def test_meta_and_the_sections_beside_it_make_the_definition(tmp_path: Path) -> None:
    path = agent_file(
        tmp_path,
        "---\nmeta:\n  name: bug-hunter\n  description: Finds bugs\n  model_role: fast\n  colour: red\n"
        "model_role: coding\ntools: [tool-bash, {module: tool-x}]\nproviders: []\nhooks: []\n"
        "session: {raw: true}\nprovider_preferences: [{provider: p, model: m}]\ncontext: {include: [x]}\n---\n"
        "\n You hunt.\n\n",
    )

    assert read_agent_file(path, "helper") == {
        "name": "bug-hunter",
        "description": "Finds bugs",
        "model_role": "coding",
        "colour": "red",
        "tools": ["tool-bash", {"module": "tool-x"}],
        "providers": [],
        "hooks": [],
        "session": {"raw": True},
        "provider_preferences": [{"provider": "p", "model": "m"}],
        "instruction": "You hunt.",
    }


def test_without_anything_an_agent_has_the_name_it_was_asked_for_by(tmp_path: Path) -> None:
    assert read_agent_file(agent_file(tmp_path, ""), "helper") == {"name": "helper", "description": ""}
    assert read_agent_file(agent_file(tmp_path, "Just text"), "helper") == {
        "name": "helper",
        "description": "",
        "instruction": "Just text",
    }


def test_the_flat_form_is_read_as_meta(tmp_path: Path) -> None:
    path = agent_file(tmp_path, "---\nname: flat\ndescription: d\nversion: 2\nrole: r\nmodel: m\ntools: [x]\n---\nText")

    assert read_agent_file(path, "helper") == {
        "name": "flat",
        "description": "d",
        "version": 2,
        "role": "r",
        "model": "m",
        "tools": ["x"],
        "instruction": "Text",
    }


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    ("written", "expected"),
    [("all", "all"), ("none", "none"), ("[a, b]", ["a", "b"]), ("{x: {description: d}}", None), ("", None)],
)
def test_which_agents_an_agent_may_use(tmp_path: Path, flat: bool, written: str, expected: Any) -> None:
    head = "name: n" if flat else "meta: {name: n}"
    path = agent_file(tmp_path, f"---\n{head}\nagents: {written}\n---\n")

    assert read_agent_file(path, "n").get("agents") == expected


@pytest.mark.parametrize("written", ["some", "7"])
def test_any_other_choice_of_agents_is_refused_with_file_and_value(tmp_path: Path, written: str) -> None:
    path = agent_file(tmp_path, f"---\nmeta: {{name: n}}\nagents: {written}\n---\n")

    with pytest.raises(ValueError, match=written) as error:
        read_agent_file(path, "n")

    assert str(path) in str(error.value)


def test_agents_in_meta_are_copied_and_overridden_from_the_top_level(tmp_path: Path) -> None:
    in_meta = agent_file(tmp_path, "---\nmeta: {name: n, agents: none}\n---\n")
    assert read_agent_file(in_meta, "n")["agents"] == "none"

    both = agent_file(tmp_path, "---\nmeta: {name: n, agents: none}\nagents: all\n---\n")
    assert read_agent_file(both, "n")["agents"] == "all"


def test_relative_sources_beside_the_agent_file_are_made_absolute_and_others_left(tmp_path: Path) -> None:
    (tmp_path / "modules/tool-x").mkdir(parents=True)
    path = agent_file(
        tmp_path,
        "---\nmeta: {name: n}\ntools:\n- {module: tool-x, source: ../modules/tool-x}\n"
        "- {module: tool-y, source: ./modules/tool-y}\n- tool-z\n---\n",
    )

    assert read_agent_file(path, "n")["tools"] == [
        {"module": "tool-x", "source": str((tmp_path / "modules/tool-x").resolve())},
        {"module": "tool-y", "source": "./modules/tool-y"},
        "tool-z",
    ]


def test_what_a_definition_leaves_open_is_filled_from_its_file(tmp_path: Path) -> None:
    agent_file(tmp_path, "---\nmeta: {name: other, description: from file, model_role: fast}\ntools: [t]\n---\nBody")

    assert loaded(tmp_path, {"name": "helper", "description": "", "tools": [], "model_role": "slow"}) == {
        "name": "helper",
        "description": "from file",
        "tools": ["t"],
        "model_role": "slow",
        "instruction": "Body",
    }


def test_the_definition_given_in_is_not_changed(tmp_path: Path) -> None:
    agent_file(tmp_path, "---\nmeta: {description: d}\n---\n")
    definition = {"name": "helper"}

    loaded(tmp_path, definition)

    assert definition == {"name": "helper"}


@pytest.mark.parametrize(
    "broken",
    ["---\n- a\n- b\n---\n", "---\nmeta: [\n---\n", "---\nmeta: text\n---\n", "---\nmeta: {name: n}\nagents: x\n---\n"],
)
def test_an_agent_file_that_cannot_be_used_is_reported_and_the_others_go_on(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = agent_file(tmp_path, broken)
    agent_file(tmp_path, "---\nmeta: {description: fine}\n---\n", name="other")
    bundle = Bundle(name="b", base_path=tmp_path, agents={"helper": {"name": "helper"}, "b:other": {}, "gone": {}})

    with caplog.at_level(logging.WARNING):
        bundle.load_agent_metadata()

    assert bundle.agents == {
        "helper": {"name": "helper"},
        "b:other": {"name": "b:other", "description": "fine"},
        "gone": {},
    }
    assert str(path) in caplog.text
