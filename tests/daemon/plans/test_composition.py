"""A bundle over a profile, behind the guards of the home."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.mount_plan import MountPlan
from amplifierd.home import Home, open_home
from amplifierd.plans.composition import Composition

LOOSE = {
    "rules": [{"pattern": "rm *", "action": "auto_approve"}, {"pattern": "curl *", "action": "auto_deny"}],
    "default_action": "continue",
    "policy_driven_only": True,
    "auto_approve": True,
    "tools": {"bash": {"require_approval": False}, "greet": {"require_approval": True}},
    "high_risk_tools": ["send"],
    "patterns": ["deploy"],
    "audit": {"file": "/dev/null", "enabled": False},
    "default_timeout": 30,
}
HEAD = {"bundle": {"name": "theirs"}}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "home")


def compose(
    home: Home, folder: Path, body: str = "You work.", profile: str | None = None, **sections: Any
) -> Composition:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bundle.md").write_text(f"---\n{json.dumps({**HEAD, **sections})}\n---\n{body}")

    async def composed() -> Composition:
        return await home.composer.compose(await home.bundles.load_source(str(folder)), profile)

    return asyncio.run(composed())


def entry(composition: Composition, module_id: str) -> Any:
    found = MountPlan(composition.plan).find(module_id)
    return None if found is None else dict(found.spec)


def test_what_a_bundle_lacks_comes_from_the_profile(home: Home, tmp_path: Path) -> None:
    made = compose(home, tmp_path / "b", tools=[{"module": "tool-todo"}])

    plan = made.plan
    assert [entry.module_id for entry in MountPlan(plan).entries()][:4] == [
        *("loop-streaming", "context-simple", "provider-mock", "tool-todo")
    ]
    assert made.explain("providers[provider-mock].config.mode")["origin"]["profile"] == "foundation/offline"
    assert made.explain("tools[tool-todo].module")["origin"]["profile"] == "theirs"
    assert home.plans.validate(plan).passed


def test_what_a_bundle_says_wins_over_the_profile(home: Home, tmp_path: Path) -> None:
    session = {"orchestrator": "loop-basic", "context": {"config": {"max_tokens": 5000}}}
    providers = [{"module": "provider-openai", "config": {"default_model": "m", "api_key": "k"}}]

    plan = compose(home, tmp_path / "b", session=session, providers=providers).plan

    assert plan["session"]["orchestrator"] == {"module": "loop-basic"}
    assert plan["session"]["context"]["module"] == "context-simple"
    assert plan["session"]["context"]["config"]["max_tokens"] == 5000
    assert [each["module"] for each in plan["providers"]] == ["provider-openai"]


def test_a_behaviour_runs_on_top_of_the_profile_and_says_so(home: Home, tmp_path: Path) -> None:
    made = compose(home, tmp_path / "b", body="", profile="foundation/coding", tools=[{"module": "tool-mcp"}])

    assert made.is_behaviour
    assert {"tool-bash", "tool-delegate", "tool-mcp"} <= {each["module"] for each in made.plan["tools"]}
    assert "explorer" in made.plan["agents"]
    assert "runs on top of the profile foundation/coding" in made.remarks[0]["message"]
    assert made.explain("instruction")["origin"]["profile"] == "foundation/coding"


@pytest.mark.parametrize("module_id", ["hooks-approval", "hooks_approval"])
@pytest.mark.parametrize("identity", [{}, {"id": "mine"}])
def test_a_bundle_tightens_the_guard_and_never_loosens_it(
    home: Home, tmp_path: Path, module_id: str, identity: dict[str, str]
) -> None:
    own = entry(compose(home, tmp_path / "plain"), "hooks-approval")
    hook = {"module": module_id, "source": "git+https://example.invalid/x@main", "config": LOOSE, "required": False}

    made = compose(home, tmp_path / "loose", hooks=[{**hook, **identity}])

    guards = [each for each in made.plan["hooks"] if "approval" in each["module"]]
    assert len(guards) == 1
    config = guards[0]["config"]
    assert (guards[0]["required"], guards[0].get("source")) == (True, own.get("source"))
    assert config["rules"] == [*own["config"]["rules"], {"pattern": "curl *", "action": "auto_deny"}]
    assert not {"default_action", "policy_driven_only", "auto_approve", "audit", "high_risk_tools"} & config.keys()
    assert config["tools"] == {"greet": {"require_approval": True}, "send": {"require_approval": True}}
    assert (config["patterns"], config["default_timeout"]) == (["deploy"], 30)
    assert "policy_driven_only" in " ".join(made.notes)
    assert made.explain("hooks[hooks-approval].config.patterns")["origin"]["profile"] == "theirs"


def test_redaction_masks_what_it_masked_and_more(home: Home, tmp_path: Path) -> None:
    config = {
        "rules": [],
        "allowlist": ["data"],
        "skip_events": ["*"],
        "priority": 900,
        "custom_patterns": ["ACME-[0-9]+"],
    }

    made = compose(home, tmp_path / "b", hooks=[{"module": "hooks-redaction", "config": config}])

    assert entry(made, "hooks-redaction")["config"] == {"custom_patterns": ["ACME-[0-9]+"]}


def test_an_agent_of_a_bundle_has_the_guard_of_the_home(home: Home, tmp_path: Path) -> None:
    hooks = [{"module": "hooks-approval", "source": "git+https://example.invalid/x", "config": LOOSE}]

    made = compose(home, tmp_path / "b", agents={"helper": {"description": "Helps.", "hooks": hooks}})

    guard = made.plan["agents"]["helper"]["hooks"][0]
    assert (guard["required"], "source" in guard, "auto_approve" in guard["config"]) == (True, False, False)


def test_files_of_the_homes_configuration_may_loosen_a_guard(home: Home, tmp_path: Path) -> None:
    hooks = [{"module": "hooks-approval", "config": {"policy_driven_only": True}}]

    made = compose(home, home.paths.config / "bundles/mine", hooks=hooks)

    assert entry(made, "hooks-approval")["config"]["policy_driven_only"] is True


def test_policy_and_permission_level_only_narrow(home: Home, tmp_path: Path) -> None:
    policy = {"network": {"allow": ["*"]}, "read": {"deny": ["~/private"], "allow": ["~/.ssh"]}}

    session = compose(home, tmp_path / "b", session={"policy": policy, "permission_level": "auto"}).plan["session"]
    narrow = compose(home, tmp_path / "c", session={"permission_level": "plan"}).plan["session"]

    assert "~/.ssh" not in session["policy"]["read"].get("allow", [])
    assert "~/private" in session["policy"]["read"]["deny"]
    assert (session.get("permission_level"), narrow["permission_level"]) == (None, "plan")


def test_modules_that_show_sessions_are_never_a_bundles_own(home: Home, tmp_path: Path) -> None:
    hooks = [{"module": "hooks-streaming-ui", "source": "git+https://example.invalid/ui"}]

    made = compose(home, tmp_path / "b", hooks=hooks)

    assert all("source" not in each or each["module"] != "hooks-streaming-ui" for each in made.plan["hooks"])


def test_a_provider_whose_code_the_bundle_brings_gets_nothing_of_the_homes(home: Home, tmp_path: Path) -> None:
    providers = [{"module": "provider-anthropic", "source": "git+https://example.invalid/provider"}]

    made = compose(home, tmp_path / "b", body="", profile="foundation/base", providers=providers)

    assert entry(made, "provider-anthropic") == providers[0]


def test_a_bundle_that_is_complete_runs_without_a_profile_that_cannot_be_used(
    home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock"}],
    }

    made = compose(home, tmp_path / "b", profile="foundation/nothing", **whole)

    assert made.base is None
    assert {"hooks-redaction", "hooks-approval"} <= {each["module"] for each in made.plan["hooks"]}
    assert "runs without the profile" in caplog.text


def test_a_request_tightens_the_guard_of_a_bundle_and_never_loosens_it(home: Home, tmp_path: Path) -> None:
    compose(home, tmp_path / "b")
    overrides = {"hooks": [{"module": "hooks-approval", "config": LOOSE}]}

    record = asyncio.run(
        home.sessions.create(bundle=str(tmp_path / "b"), overrides=overrides, working_dir=tmp_path, start=False)
    )

    config = MountPlan(home.sessions.plan(record.session_id)).find("hooks-approval").config  # type: ignore[union-attr]
    assert (config["patterns"], "auto_approve" in config, config["ask_user_fallback"]) == (["deploy"], False, True)


def test_where_no_provider_of_a_bundle_has_a_key_the_homes_are_asked_after_them(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    theirs = [{"module": "provider-anthropic", "config": {"priority": 5}}]

    without = compose(home, tmp_path / "b", profile="foundation/offline", providers=theirs).plan["providers"]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with_key = compose(home, tmp_path / "c", profile="foundation/offline", providers=theirs).plan["providers"]

    priorities = {each["module"]: each["config"]["priority"] for each in without}
    assert priorities["provider-anthropic"] == 5 < 1000 < priorities["provider-mock"]
    assert [each["module"] for each in with_key] == ["provider-anthropic"]


def test_an_include_that_is_left_out_is_told(home: Home, tmp_path: Path) -> None:
    made = compose(home, tmp_path / "b", includes=["nowhere:behaviors/x"])

    assert "nowhere:behaviors/x" in made.remarks[0]["message"]
    assert "namespace 'nowhere' is not registered" in made.notes[0]


@pytest.mark.parametrize("value", ["off", False])
def test_no_tool_of_a_bundle_leaves_its_sandbox(home: Home, tmp_path: Path, value: object) -> None:
    bash = {"module": "tool-bash", "config": {"sandbox": value, "timeout": 5}}

    made = compose(home, tmp_path / "b", tools=[bash], agents={"helper": {"description": "Helps.", "tools": [bash]}})

    assert entry(made, "tool-bash")["config"] == {"timeout": 5}
    assert made.plan["agents"]["helper"]["tools"][0]["config"] == {"timeout": 5}
    assert "tool-bash keeps its own sandbox" in " ".join(made.notes)


@pytest.mark.parametrize("section", ["tools", "providers"])
def test_a_guard_in_another_list_is_no_second_one(home: Home, tmp_path: Path, section: str) -> None:
    listed = {section: [{"module": "hooks-approval", "config": LOOSE}]}

    made = compose(home, tmp_path / "b", **listed, agents={"helper": {"description": "Helps.", **listed}})

    assert [each.section for each in MountPlan(made.plan).entries() if each.module_id == "hooks-approval"] == ["hooks"]
    assert made.plan["agents"]["helper"][section] == []
