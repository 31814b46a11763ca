"""`amplifier routing`: which model serves which kind of work."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Say = Callable[..., Any]


@pytest.fixture
def plan(amplifier: Any) -> Path:
    roles = {
        "general": {"description": "All", "candidates": [{"provider": "mock", "model": "mock-large"}]},
        "fast": {
            "description": "Small",
            "candidates": [{"provider": "absent", "model": "x"}, {"provider": "mock", "model": "mock-small"}],
        },
    }
    folder = amplifier.work / "routing"
    folder.mkdir()
    (folder / "mine.yaml").write_text(json.dumps({"name": "mine", "description": "Mine", "roles": roles}))
    (folder / "broken.yaml").write_text("roles: []\n")
    file: Path = amplifier.work / "plan.json"
    config = {"default_matrix": "mine", "custom_routing_dirs": [str(folder)]}
    file.write_text(
        json.dumps(
            {
                "session": {"orchestrator": "loop-basic", "context": "context-simple"},
                "providers": [{"module": "provider-mock"}],
                "hooks": [{"module": "hooks-routing", "config": config}],
                "agents": {"scout": {"description": "S", "instruction": "Look.", "model_role": "fast"}},
            }
        )
    )
    return file


def test_roles_and_agents_are_shown_with_what_they_really_get(say: Say, plan: Path) -> None:
    report = json.loads(say("routing", "show", "--plan", plan, "--json").out)
    text = say("routing", "show", "--plan", plan).out
    why = say("routing", "explain", "scout", "--plan", plan).out

    models = {one["role"]: (one["provider"], one["model"], one["position"]) for one in report["roles"]}
    assert models == {"general": ("mock", "mock-large", 1), "fast": ("mock", "mock-small", 2)}
    assert report["agents"][0]["reason"] == "agent role fast"
    assert "absent/x: not mounted" in text
    assert "mock/mock-small" in why
    assert "not mounted" in why


def test_matrices_are_listed_checked_and_used(say: Say, plan: Path) -> None:
    listed = {one["name"]: one for one in json.loads(say("routing", "list", "--plan", plan, "--json").out)}
    good = say("routing", "check", str(plan.parent / "routing/mine.yaml"), "--plan", plan)
    bad = say("routing", "check", str(plan.parent / "routing/broken.yaml"), "--plan", plan)

    assert (listed["mine"]["is_used"], listed["balanced"]["is_used"]) == (True, False)
    assert "'roles'" in listed["broken"]["problem"]
    assert (good.code, bad.code) == (0, 1)
    assert "broken.yaml" in bad.out


def test_an_agent_without_routing_says_so(say: Say) -> None:
    said = say("routing", "list")

    assert said.code != 0
    assert "no routing" in said.err + said.out
