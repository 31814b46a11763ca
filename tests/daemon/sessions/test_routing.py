"""What is shown of routing is what sessions really work with."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from agents_at_work import Agent

from amplifierd.home import Home, open_home
from amplifierd.sessions.routing import routing_of

CANDIDATES = {
    "general": [{"provider": "alpha", "model": "alpha-large"}],
    "fast": [{"provider": "absent", "model": "x"}, {"provider": "beta", "model": "beta-small"}],
    "coding": [{"provider": "keyless", "model": "x"}, {"provider": "alpha", "model": "alpha-code"}],
    "vision": [{"provider": "beta", "model": "no-such-*"}, {"provider": "beta", "model": "beta-eyes"}],
    "research": [{"provider": "absent", "model": "x"}],
}
AGENTS = {
    "roled": {"description": "R", "instruction": "Help.", "model_role": ["research", "fast"]},
    "choosy": {
        "description": "C",
        "instruction": "Help.",
        "model_role": "fast",
        "provider_preferences": [{"provider": "alpha", "model": "alpha-own"}],
    },
    "lost": {"description": "L", "instruction": "Help.", "model_role": "research"},
    "plain": {"description": "P", "instruction": "Help."},
}


def routed(tmp_path: Path) -> Agent:
    folder = tmp_path / "routing"
    folder.mkdir()
    roles = {name: {"description": name, "candidates": listed} for name, listed in CANDIDATES.items()}
    (folder / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", "roles": roles}))
    config = {"default_matrix": "mine", "custom_routing_dirs": [str(folder)]}
    return Agent(["Hm."], agents=AGENTS, hooks=[{"module": "hooks-routing", "config": config}])


def plan_of(agent: Agent, home: Home, tmp_path: Path) -> dict[str, Any]:
    plan: dict[str, Any] = agent.source(home, "plan", tmp_path)["plan"]
    shared = {"responses": ["Done."], "default_model": "alpha-large"}
    providers = [
        {"module": "provider-mock", "instance_id": "alpha", "config": {**shared, "priority": 1}},
        {"module": "provider-mock", "instance_id": "beta", "config": {**shared, "priority": 2}},
        {"module": "provider-openai", "instance_id": "keyless", "config": {"priority": 3}},
    ]
    return {**plan, "providers": providers}


async def test_every_role_and_agent_gets_what_is_shown(
    home: Home, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = plan_of(routed(tmp_path), home, tmp_path)
    async with home.sessions.open(plan=plan, working_dir=work) as session:
        coordinator = await session.load()
        report = await routing_of(coordinator)
        await session.execute("Hm?")
        spawn = coordinator.get_capability("session.spawn")
        used: dict[str, Any] = {}
        for role in CANDIDATES:
            answer = await spawn("plain", "go", model_role=role)
            used[role] = model_of(home, answer["session_id"])
        for agent in AGENTS:
            used[agent] = model_of(home, (await spawn(agent, "go"))["session_id"])

    shown = {one["role"]: one["model"] for one in report["roles"]}
    assert shown | {one["agent"]: one["model"] for one in report["agents"]} == used
    assert used == {
        "general": "alpha-large",
        "fast": "beta-small",
        "coding": "alpha-code",
        "vision": "beta-eyes",
        "research": "alpha-large",
        "roled": "beta-small",
        "choosy": "alpha-own",
        "lost": "alpha-large",
        "plain": "alpha-large",
    }
    roles = {one["role"]: one for one in report["roles"]}
    assert [each["verdict"] for each in roles["fast"]["passed"]] == ["not mounted"]
    assert [each["verdict"] for each in roles["coding"]["passed"]] == ["no key"]
    assert [each["verdict"] for each in roles["vision"]["passed"]] == ["no model matches"]
    assert (roles["research"]["is_served"], roles["research"]["position"]) == (False, None)
    assert {one["agent"]: one["reason"] for one in report["agents"]} == {
        "roled": "agent role fast",
        "choosy": "agent",
        "lost": "parent",
        "plain": "parent",
    }
    assert (report["matrix"], report["default"]) == ("mine", {"provider": "alpha", "model": "alpha-large"})


def model_of(home: Home, session_id: str) -> Any:
    return home.sessions.get(session_id).model


async def test_a_setting_of_the_home_chooses_the_matrix(work: Path, tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", offline=True, overrides={"routing": {"matrix": "economy"}})
    try:
        agent = Agent(["Hm."], hooks=[{"module": "hooks-routing"}])
        async with home.sessions.open(**agent.source(home, "plan", tmp_path), working_dir=work) as session:
            assert (await routing_of(await session.load()))["matrix"] == "economy"
    finally:
        await home.sessions.close()
