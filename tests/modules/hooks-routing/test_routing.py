"""Matrices, which model serves a role, and that what is shown is what a child really works with."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from amplifier_module_hooks_routing import mount
from amplifier_module_hooks_routing.matrix_loader import (
    MatrixError,
    load_matrix,
    matrix_files,
    parse_matrix,
    validate_matrix_config,
)
from amplifier_module_hooks_routing.resolver_class import MatrixModelRoleResolver

from amplifier_core.models import ConfigField, ProviderInfo
from amplifier_core.testing import MockCoordinator
from amplifier_kit.mounted_providers import best_match

ROLES = (
    *("general", "fast", "coding", "ui-coding", "security-audit", "reasoning", "critique", "creative", "writing"),
    *("research", "vision", "image-gen", "critical-ops"),
)


class Provider:
    def __init__(self, *models: str, fails: bool = False) -> None:
        self.models, self.fails, self.asked = models, fails, 0

    async def list_models(self) -> list[str]:
        self.asked += 1
        if self.fails:
            raise RuntimeError("down")
        return list(self.models)


def matrix(**roles: list[Any]) -> dict[str, Any]:
    whole = {"general": [{"provider": "a", "model": "m"}], "fast": [{"provider": "a", "model": "m"}], **roles}
    described = {name: {"description": name, "candidates": listed} for name, listed in whole.items()}
    return {"name": "mine", "roles": described}


async def session(tmp_path: Path, plan: dict[str, Any] | None = None, **providers: Provider) -> MockCoordinator:
    coordinator = MockCoordinator()
    coordinator.config = plan or {}
    for name, provider in providers.items():
        await coordinator.mount("providers", provider, name=name)
    return coordinator


@pytest.mark.parametrize(
    "name", ["balanced", "quality", "economy", "anthropic", "openai", "gemini", "copilot", "ollama"]
)
def test_the_matrices_that_come_along_have_all_roles(name: str) -> None:
    found = load_matrix(name)

    assert (found.name, tuple(found.roles)) == (name, ROLES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["roles"].pop("fast"), "fast"),
        (lambda m: m["roles"]["general"].pop("description"), "no description"),
        (lambda m: m["roles"]["general"].update(candidates=[]), "no candidates"),
        (lambda m: m["roles"]["general"].update(candidates=["base"]), "'base'"),
        (lambda m: m["roles"]["general"].update(candidates=[{"provider": "a"}]), "provider and model"),
        (lambda m: m.update(roles=[]), "'roles'"),
    ],
)
def test_what_is_no_matrix_is_named_with_its_file(change: Any, words: str) -> None:
    document = matrix()
    change(document)

    with pytest.raises(MatrixError, match=words) as error:
        parse_matrix(document, "mine.yaml")

    assert "mine.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("override", "models"),
    [
        ([{"provider": "b", "model": "n"}], ["n"]),
        ([{"provider": "b", "model": "n"}, "base"], ["n", "m"]),
        ({"candidates": ["base", {"provider": "b", "model": "n"}]}, ["m", "n"]),
        ({"description": "Other"}, ["m"]),
    ],
)
def test_an_override_replaces_a_list_and_base_is_the_list_itself(override: Any, models: list[str]) -> None:
    changed = parse_matrix(matrix(), "x").overridden({"fast": override, "new": [{"provider": "c", "model": "o"}]})

    assert [candidate.model for candidate in changed.roles["fast"].candidates] == models
    assert changed.roles["new"].candidates[0].model == "o"
    with pytest.raises(MatrixError, match="more than once"):
        changed.overridden({"fast": ["base", "base"]})


@pytest.mark.parametrize(
    ("pattern", "models", "best"),
    [
        ("sonnet-*", ["sonnet-9", "sonnet-10"], "sonnet-10"),
        ("Sonnet-*", ["sonnet-4-20250101", "sonnet-4"], "sonnet-4"),
        ("sonnet-*", ["sonnet-4-5-20260101", "sonnet-4-20990101"], "sonnet-4-5-20260101"),
        ("opus-*", ["sonnet-4"], None),
    ],
)
def test_the_newest_model_that_matches_is_meant(pattern: str, models: list[str], best: str | None) -> None:
    assert best_match(pattern, models) == best


async def test_every_candidate_that_can_serve_comes_in_order_and_the_others_say_why(tmp_path: Path) -> None:
    listed = [
        *({"provider": "absent", "model": "m"}, {"provider": "keyless", "model": "m"}),
        *({"provider": "down", "model": "m-*"}, {"provider": "other", "model": "none-*"}),
        *({"provider": "provider-good", "model": "m-*"}, {"provider": "other", "model": "exact", "config": {"x": 1}}),
    ]
    plan = {"providers": [{"module": "provider-keyless"}, {"module": "provider-good"}]}
    coordinator = await session(
        tmp_path, plan, down=Provider(fails=True), other=Provider("a"), good=Provider("m-1", "m-2")
    )
    failure = {"module_id": "provider-keyless", "error": "Provider mount did not install\n  no API key"}
    coordinator.session = SimpleNamespace(status=SimpleNamespace(load_failures=[failure]))
    resolver = MatrixModelRoleResolver(parse_matrix(matrix(general=listed), "x"), coordinator)

    explained = await resolver.explain("general")
    found = await resolver.resolve(["unknown", "general"])

    assert [(one["verdict"], one["model"]) for one in explained] == [
        ("not mounted", "m"),
        ("no key", "m"),
        ("listing failed", "m-*"),
        ("no model matches", "none-*"),
        ("usable", "m-2"),
        ("usable", "exact"),
    ]
    assert explained[1]["why"] == "no API key"
    assert [each.to_dict() for each in found] == [
        {"provider": "good", "model": "m-2"},
        {"provider": "other", "model": "exact", "config": {"x": 1}},
    ]
    assert await resolver.resolve("unknown") == []


async def test_of_several_instances_the_one_with_the_lowest_priority_serves(tmp_path: Path) -> None:
    plan = {
        "providers": [
            {"module": "provider-acme", "instance_id": "one", "config": {"priority": 20}},
            {"module": "provider-acme", "instance_id": "two", "config": {"priority": 10}},
        ]
    }
    coordinator = await session(tmp_path, plan, one=Provider(), two=Provider())
    listed = [{"provider": "acme", "model": "m"}]
    resolver = MatrixModelRoleResolver(parse_matrix(matrix(general=listed), "x"), coordinator)

    assert [each.provider for each in await resolver.resolve("general")] == ["two"]


AGENTS = {
    "roled": {"model_role": ["missing", "fast"]},
    "own": {"model_role": "fast", "provider_preferences": [{"provider": "x", "model": "y"}]},
    "unserved": {"model_role": "missing"},
    "plain": {},
}


async def mounted(tmp_path: Path, provider: Provider, **config: Any) -> MockCoordinator:
    (tmp_path / "routing").mkdir(exist_ok=True)
    document = matrix(fast=[{"provider": "a", "model": "m-*"}])
    (tmp_path / "routing" / "mine.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    coordinator = await session(tmp_path, {"agents": AGENTS}, a=provider)
    given = {"default_matrix": "mine", "custom_routing_dirs": [str(tmp_path / "routing")], **config}
    await mount(coordinator, given)
    return coordinator


async def test_agents_get_the_models_of_their_roles_in_a_map_of_the_sessions_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider("m-1", "m-2")
    coordinator = await mounted(tmp_path, provider)

    await coordinator.hooks.emit("session:start", {})

    agents = coordinator.config["agents"]
    assert agents["roled"]["provider_preferences"] == [{"provider": "a", "model": "m-2"}]
    assert agents["own"] == AGENTS["own"]
    assert ("provider_preferences" in agents["unserved"], "provider_preferences" in AGENTS["roled"]) == (False, False)
    assert coordinator.get_capability("session.routing") == {"preresolved_models": {"a": ["m-1", "m-2"]}}
    assert provider.asked == 1
    (error,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert all(part in error for part in ("missing", "unserved", "mine", str(tmp_path)))


async def test_a_child_asks_no_provider_again(tmp_path: Path) -> None:
    provider = Provider()
    coordinator = await session(tmp_path, None, a=provider)
    coordinator.register_capability("session.routing", {"matrix": "mine", "preresolved_models": {"a": ["m-7"]}})
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(matrix(fast=[{"provider": "a", "model": "m-*"}])))
    await mount(coordinator, {"custom_routing_dirs": [str(tmp_path)]})

    found = await coordinator.get_capability("model_role_resolver").resolve("fast")

    assert ([each.model for each in found], provider.asked) == (["m-7"], 0)


async def test_the_model_is_told_of_the_roles(tmp_path: Path) -> None:
    coordinator = await mounted(tmp_path, Provider(), placement="request")

    answer = await coordinator.hooks.emit("provider:request", {})

    assert answer.context_injection == (
        '<system-reminder source="routing-matrix">\nModels by role (matrix mine); name one as model_role when you '
        "delegate:\n- general: general\n- fast: fast\n</system-reminder>"
    )


async def test_without_a_matrix_there_is_no_resolver(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    coordinator = await session(tmp_path)
    await mount(coordinator, {"default_matrix": "nowhere"})

    assert coordinator.get_capability("model_role_resolver") is None
    assert "there is no routing matrix 'nowhere'" in caplog.text
    assert "balanced" in matrix_files()


def test_only_a_choice_that_the_provider_declares_can_be_wrong() -> None:
    effort = ConfigField(id="effort", display_name="E", prompt="?", field_type="choice", choices=["low", "high"])
    info = ProviderInfo(id="a", display_name="A", config_fields=[effort])

    assert validate_matrix_config({"effort": "low", "other": 7}, info) == []
    assert validate_matrix_config({"effort": "max"}, info) == ["effort is 'max', the provider knows low, high"]
