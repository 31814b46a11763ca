"""What a running session adds to its plan, and what changed between two plans."""

import copy
from pathlib import Path
from typing import Any

import pytest

from amplifierd.identifiers import ProfileId
from amplifierd.plans.difference import diff_plans
from amplifierd.plans.injection import inject_runtime
from amplifierd.plans.runtime_values import RuntimePlaces
from amplifierd.profiles.builds.plan_generation import agent_from_mapping, agent_from_text

PLACES = RuntimePlaces(
    working_dir=Path("/work dir"),
    session_dir=Path("/state/sessions/s1"),
    sessions_dir=Path("/state/sessions"),
    approvals_file=Path("/state/logs/amplifierd/approvals.jsonl"),
)


def inject(
    plan: dict[str, Any], environment: dict[str, str] | None = None, **keys: str
) -> tuple[dict[str, Any], list[str]]:
    return inject_runtime(
        plan,
        profile_id=ProfileId("a", "b"),
        places=PLACES,
        environment=environment or {},
        find_key=lambda module: keys.get(module.replace("-", "_")),
    )


def test_places_are_given_to_the_modules_that_want_them() -> None:
    plan = {
        "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-persistent"}},
        "tools": [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"working_dir": "/own"}}],
        "hooks": [{"module": "hooks-logging", "config": {"session_log_template": "x"}}, {"module": "hooks-approval"}],
    }
    before = copy.deepcopy(plan)

    injected, warnings = inject(plan)

    assert plan == before
    assert warnings == []
    assert injected["session"]["settings"] == {
        "working_dir": "/work dir",
        "session_cwd": "/work dir",
        "profile_name": "a/b",
    }
    assert injected["session"]["context"]["config"] == {"transcript_path": "/state/sessions/s1/context-messages.jsonl"}
    assert injected["tools"][0]["config"] == {"working_dir": "/work dir", "allowed_write_paths": ["/work dir"]}
    assert injected["tools"][1]["config"] == {"working_dir": "/own"}
    log = {"session_log_template": "/state/sessions/{session_id}/log.jsonl", "strip_raw": True, "tool_output": False}
    assert injected["hooks"][0]["config"] == log
    assert injected["hooks"][1]["config"] == {"audit": {"file": "/state/logs/amplifierd/approvals.jsonl"}}


def test_the_resolved_form_is_injected_too() -> None:
    injected, _ = inject({"session": {"orchestrator": "loop-basic", "context": "context-persistent"}})

    assert injected["context"]["config"] == {"transcript_path": "/state/sessions/s1/context-messages.jsonl"}


def test_a_stored_key_is_given_where_the_profile_has_none() -> None:
    plan = {"providers": [{"module": "provider-x"}, {"module": "provider-y", "config": {"api_key": "own"}}]}

    injected, _ = inject(plan, provider_x="stored", provider_y="stored")

    assert [entry["config"]["api_key"] for entry in injected["providers"]] == ["stored", "own"]


def test_a_key_is_looked_for_only_where_there_is_use_for_one() -> None:
    asked: list[str] = []
    plan = {
        "providers": [
            {"module": "provider-mock"},
            {"module": "provider-x"},
            {"module": "provider-y", "config": {"api_key": "own"}},
        ]
    }

    inject_runtime(plan, profile_id=None, places=PLACES, environment={}, find_key=asked.append)

    assert asked == ["provider-x"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${SET}", "value"),
        ("a ${SET} b", "a value b"),
        ("${UNSET:default}", "default"),
        ("${UNSET:-default}", "default"),
        ("${UNSET:}", ""),
        ("x${UNSET}y", "xy"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("$SET", "$SET"),
    ],
)
def test_placeholders_take_the_environments_values(written: str, expected: str) -> None:
    plan = {"tools": [{"module": "hooks-x", "config": {"k": [{"deep": written}]}}]}

    injected, _ = inject(plan, {"SET": "value", "EMPTY": ""})

    assert injected["tools"][0]["config"]["k"] == [{"deep": expected}]


def test_each_unset_variable_is_told_once_and_no_other() -> None:
    texts = ["${SET}", "${EMPTY}", "${UNSET:-d}", "${UNSET:}", "x${GONE}y", "${GONE}", "${ALSO_GONE}"]

    _, warnings = inject({"tools": [{"module": "t", "config": {"k": texts}}]}, {"SET": "value", "EMPTY": ""})

    assert warnings == ["env-missing: GONE", "env-missing: ALSO_GONE"]


def test_an_unset_variable_leaves_the_modules_default_and_a_warning() -> None:
    plan = {"providers": [{"module": "provider-x", "config": {"api_key": "${NO_KEY}", "base_url": "${NO_KEY}"}}]}

    injected, warnings = inject(plan)

    assert injected["providers"][0]["config"] == {}
    assert warnings == ["env-missing: NO_KEY"]


BEFORE: dict[str, Any] = {
    "session": {"orchestrator": {"module": "loop-a", "source": "a/b", "config": {"n": 1}}, "raw": False},
    "providers": [{"module": "provider-x", "source": "a/b", "config": {"m": {"k": 1, "gone": 2}}}],
    "tools": [{"module": "tool-a", "source": "a/b", "config": {}}],
    "agents": {"one": {"content": "1"}, "two": {"content": "2"}},
}
AFTER: dict[str, Any] = {
    "session": {"orchestrator": {"module": "loop-a", "source": "a/b", "config": {"n": 2}}, "raw": True},
    "providers": [{"module": "provider-x", "source": "a/b", "config": {"m": {"k": 1, "new": 3}}}],
    "tools": [{"module": "tool-b", "source": "a/b", "config": {}}],
    "agents": {"two": {"content": "changed"}, "three": {"content": "3"}},
}


def test_everything_that_changed_is_told_as_data_and_as_text() -> None:
    diff = diff_plans(BEFORE, AFTER, versions=({"loop-a": "c1"}, {"loop-a": "c2"}))

    assert diff.to_dict() == {
        "added": [{"section": "tools", "module": "tool-b"}],
        "removed": [{"section": "tools", "module": "tool-a"}],
        "changed": [
            {
                "section": "orchestrator",
                "module": "loop-a",
                "version": ["c1", "c2"],
                "config": [{"path": "n", "before": 1, "after": 2}],
            },
            {
                "section": "providers",
                "module": "provider-x",
                "version": None,
                "config": [{"path": "m.gone", "before": 2}, {"path": "m.new", "after": 3}],
            },
        ],
        "agents": {"added": ["three"], "removed": ["one"], "changed": ["two"]},
        "session": [{"path": "raw", "before": False, "after": True}],
        "moved": [],
    }
    assert str(diff).splitlines() == [
        "+ tools: tool-b",
        "- tools: tool-a",
        "~ orchestrator: loop-a",
        "    version c1 → c2",
        "    config.n 1 → 2",
        "~ providers: provider-x",
        "    config.m.gone removed",
        "    config.m.new = 3",
        "+ agent: three",
        "- agent: one",
        "~ agent: two",
        "~ session.raw false → true",
    ]


def test_equal_plans_have_no_difference() -> None:
    diff = diff_plans(BEFORE, copy.deepcopy(BEFORE))

    assert not diff
    assert str(diff) == "no changes"


def test_the_source_of_a_module_stands_for_its_version() -> None:
    after = copy.deepcopy(BEFORE)
    after["tools"][0]["source"] = "git+https://example.org/r@v2"

    [change] = diff_plans(BEFORE, after).changed

    assert change.version == ("a/b", "git+https://example.org/r@v2")


def test_an_agent_is_its_text_and_what_delegation_reads_of_it() -> None:
    plain = agent_from_text("x", "You are x.", "s")
    full = agent_from_text("x", "---\nmeta: {description: d}\ntools: [{module: tool-a}]\n---\nDo it.\n", "s")
    flat = agent_from_text("x", "---\nname: x\n---\nDo it.", "s")
    inline = agent_from_mapping("x", {"system": {"instruction": "Do."}, "session": {"raw": True}}, "s")

    assert plain == {"content": "You are x.", "metadata": {"source": "s"}}
    assert full["content"].startswith("---")
    assert (full["description"], full["tools"], full["system"]) == (
        "d",
        [{"module": "tool-a"}],
        {"instruction": "Do it."},
    )
    assert flat["description"] == "Agent: x"
    assert inline == {
        "content": "Do.",
        "metadata": {"source": "s"},
        "description": "Agent: x",
        "session": {"raw": True},
        "system": {"instruction": "Do."},
    }
    with pytest.raises(ValueError, match="Agent 'x'"):
        agent_from_text("x", "---\na: [1\n---\n", "s")


def test_a_module_at_another_place_has_moved() -> None:
    def plan(*hooks: str) -> dict[str, Any]:
        return {"session": {"orchestrator": "loop-a"}, "hooks": [{"module": f"hooks-{name}"} for name in hooks]}

    diff = diff_plans(plan("a", "b", "c", "d"), plan("c", "a", "b", "e"))

    assert [(each.section, each.module, each.before, each.after) for each in diff.moved] == [("hooks", "hooks-c", 3, 1)]
    assert str(diff) == "+ hooks: hooks-e\n- hooks: hooks-d\n~ hooks: hooks-c moved from 3 to 1"
    assert not diff_plans(plan("a", "b"), plan("a", "b"))
    assert diff_plans(plan("a", "b"), plan("b", "a"))
