"""The two forms of a plan."""

import copy
from pathlib import Path
from typing import Any

import pytest

from amplifierd import open_home
from amplifierd.exceptions import MountPlanError
from amplifierd.plans.conversion import find_compiled, find_hint, to_portable, to_resolved


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    root = tmp_path / "share with space" / "profiles"
    for place in ("orchestrator/loop-streaming", "context/context-simple", "providers/provider-x", "tools/tool-web"):
        (root / "foundation" / "base" / place).mkdir(parents=True)
    return root


PORTABLE: dict[str, Any] = {
    "session": {
        "orchestrator": {"module": "loop-streaming", "source": "foundation/base", "config": {"max_iterations": 10}},
        "context": {"module": "context-simple", "source": "foundation/base", "config": {}},
        "injection_budget_per_turn": None,
    },
    "providers": [
        {"module": "provider-x", "source": "foundation/base", "config": {"api_key": "${X}"}, "instance_id": "one"}
    ],
    "tools": [
        {"module": "tool-web", "source": "foundation/base", "config": {}},
        {"module": "tool-installed", "source": "foundation/base", "config": {}},
        {"module": "tool-other", "source": "git+https://example.org/r@v1", "config": {}},
    ],
    "hooks": [],
    "agents": {
        "code-expert": {"content": "…", "metadata": {"source": "foundation:agents/code-expert.md"}},
        "inline": {"content": "x", "metadata": {"source": "foundation/base#agents.inline"}},
    },
}
REFS = {"foundation:agents/code-expert.md": "git+https://example.org/agents@v1.0.0#experts/code.md"}


def test_a_resolved_plan_has_names_directories_and_separate_configuration(profiles: Path) -> None:
    resolved = to_resolved(PORTABLE, profiles, REFS)

    base = (profiles / "foundation" / "base").as_uri()
    assert "%20" in base
    assert list(resolved) == ["session", "orchestrator", "providers", "tools", "hooks", "agents"]
    assert resolved["session"] == {
        "orchestrator": "loop-streaming",
        "orchestrator_source": f"{base}/orchestrator/loop-streaming",
        "context": "context-simple",
        "context_source": f"{base}/context/context-simple",
        "injection_budget_per_turn": None,
    }
    assert resolved["orchestrator"] == {"config": {"max_iterations": 10}}
    assert resolved["providers"] == [
        {
            "module": "provider-x",
            "source": f"{base}/providers/provider-x",
            "config": {"api_key": "${X}"},
            "instance_id": "one",
        }
    ]
    assert [entry.get("source") for entry in resolved["tools"]] == [
        f"{base}/tools/tool-web",
        None,
        "git+https://example.org/r@v1",
    ]
    assert (
        resolved["agents"]["code-expert"]["metadata"]["source"]
        == "git+https://example.org/agents@v1.0.0#experts/code.md"
    )
    assert resolved["agents"]["inline"] == PORTABLE["agents"]["inline"]


def test_there_and_back_is_the_identity(profiles: Path) -> None:
    before = copy.deepcopy(PORTABLE)
    resolved = to_resolved(PORTABLE, profiles, REFS)

    assert to_portable(resolved, profiles, REFS) == PORTABLE
    assert to_resolved(to_portable(resolved, profiles, REFS), profiles, REFS) == resolved
    assert before == PORTABLE


def test_a_plan_of_installed_modules_alone_finds_its_way_back(tmp_path: Path) -> None:
    plan = {
        "session": {
            "orchestrator": {"module": "loop-basic", "source": "foundation/offline", "config": {}},
            "context": {"module": "context-simple", "source": "foundation/offline", "config": {}},
        },
        "providers": [{"module": "provider-mock", "source": "foundation/offline", "config": {}}],
        "tools": [],
        "hooks": [],
        "agents": {},
    }

    resolved = to_resolved(plan, tmp_path, {})

    assert "source" not in resolved["providers"][0]
    assert "orchestrator_source" not in resolved["session"]
    assert to_portable(resolved, tmp_path, {}) == plan


def test_a_plan_that_has_the_form_stays_as_it_is(profiles: Path) -> None:
    resolved = to_resolved(PORTABLE, profiles, REFS)

    assert to_portable(PORTABLE, profiles, REFS) == PORTABLE
    assert to_resolved(resolved, profiles, REFS) == resolved


def test_mixed_members_are_converted_each(profiles: Path) -> None:
    mixed = {
        **PORTABLE,
        "session": {"orchestrator": PORTABLE["session"]["orchestrator"], "context": "context-simple"},
        "context": {"config": {"m": 1}},
    }

    portable = to_portable(mixed, profiles, REFS)

    assert portable["session"]["context"] == {
        "module": "context-simple",
        "source": "foundation/base",
        "config": {"m": 1},
    }
    assert to_resolved(mixed, profiles, REFS)["context"] == {"config": {"m": 1}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a/b", "a/b"),
        ({"collection": "a", "profile": "b"}, "a/b"),
        ("a/b/c", None),
        ("../b", None),
        ("git+https://h/r", None),
        ({"collection": "a"}, None),
        (None, None),
    ],
)
def test_a_hint_names_a_profile(source: Any, expected: str | None) -> None:
    found = find_hint(source)

    assert (str(found) if found else None) == expected


def test_only_modules_of_published_profiles_are_compiled(profiles: Path) -> None:
    assert str(find_compiled((profiles / "a" / "b" / "tools" / "tool-x").as_uri(), profiles)) == "a/b"
    assert find_compiled((profiles / "a" / "b").as_uri(), profiles) is None
    assert find_compiled("file:///elsewhere/a/b/tools/tool-x", profiles) is None


def test_a_plan_with_gaps_is_converted_as_far_as_it_goes(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    nameless = {"config": {"a": 1}}
    plan = {"session": {"orchestrator": "loop-x", "context": {"source": "a/b"}}, "providers": None, "tools": [nameless]}

    resolved = home.plans.convert({**plan, "agents": None}, "resolved")

    assert (resolved["providers"], resolved["tools"], resolved["agents"]) == ([], [nameless], {})
    assert home.plans.convert(resolved, "portable")["tools"] == [nameless]


@pytest.mark.parametrize(
    "plan", [None, "plan", [], {"tools": ["tool-x"]}, {"agents": []}, {"tools": {}}, {"session": "x"}]
)
def test_what_is_no_plan_cannot_be_converted(tmp_path: Path, plan: Any) -> None:
    with pytest.raises(MountPlanError, match="cannot be converted"):
        open_home(tmp_path / "home").plans.convert(plan, "resolved")
