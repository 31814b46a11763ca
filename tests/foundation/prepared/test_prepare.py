"""Preparing: every module that has a source is activated, the rest is the kernel's."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core.module_sources import ModuleNotFoundError as ModuleNotFound
from amplifier_foundation.bundle import Bundle, BundleModuleResolver, BundleModuleSource, PreparedBundle
from amplifier_foundation.modules import ModuleActivationError, ModuleActivator

_events: list[str] | None = None


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _events is None:
        return
    if event in ("subprocess.Popen", "os.posix_spawn", "os.mkdir", "os.rename", "os.remove"):
        _events.append(f"{event} {args[0]}")
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _events.append(f"write {args[0]}")


sys.addaudithook(_note)


async def test_modules_of_the_session_the_lists_and_the_agents_are_activated(
    tmp_path: Path, cache_dir: Path, make_module: Callable[..., Path]
) -> None:
    names = ["loop-a", "context-a", "provider-a", "tool-a", "hooks-a", "loop-b", "tool-b"]
    entry = {name: {"module": name, "source": str(make_module(name))} for name in names}
    bundle = Bundle(
        "b",
        session={"orchestrator": entry["loop-a"], "context": entry["context-a"]},
        providers=[entry["provider-a"], {"module": "provider-mock"}],
        tools=[entry["tool-a"]],
        hooks=[entry["hooks-a"]],
        agents={"x": {"session": {"orchestrator": entry["loop-b"]}, "tools": [entry["tool-b"], "tool-c"]}},
    )
    told: list[tuple[str, str]] = []

    prepared = await bundle.prepare(cache_dir=cache_dir, progress_callback=lambda *step: told.append(step))

    assert isinstance(prepared, PreparedBundle)
    assert sorted(told) == sorted(("activating", name) for name in names)
    for name in names:
        assert prepared.resolver.resolve(name).resolve() == tmp_path / "modules" / name
    assert prepared.mount_plan == bundle.to_mount_plan()
    assert prepared.bundle is bundle
    with pytest.raises(ModuleNotFound):
        prepared.resolver.resolve("provider-mock")


async def test_a_source_can_be_replaced_for_activation_only(cache_dir: Path, make_module: Callable[..., Path]) -> None:
    folder = make_module("tool-x")
    bundle = Bundle("b", tools=[{"module": "tool-x", "source": "git+https://host.invalid/x@v1"}])

    prepared = await bundle.prepare(
        strict=True, cache_dir=cache_dir, source_resolver=lambda module_id, source: str(folder)
    )

    assert prepared.resolver.get_module_source("tool-x") == str(folder)
    assert prepared.mount_plan["tools"][0]["source"] == "git+https://host.invalid/x@v1"


async def test_an_installed_package_is_used_as_it_is(cache_dir: Path, make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle(providers=[{"module": "provider-mock", "source": "amplifier_module_provider_mock"}])

    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    async with prepared.create_session() as session:
        assert list(session.coordinator.get("providers")) == ["mock"]


async def test_a_failing_module_is_missing_or_with_strict_an_error(
    cache_dir: Path, make_bundle: Callable[..., Bundle], caplog: pytest.LogCaptureFixture
) -> None:
    bundle = make_bundle(tools=[{"module": "tool-gone", "source": "./gone"}])

    prepared = await bundle.prepare(cache_dir=cache_dir)
    assert prepared.resolver.get_module_source("tool-gone") is None
    assert "tool-gone" in caplog.text
    with pytest.raises(ModuleActivationError, match="1 of 1 modules failed to activate"):
        await bundle.prepare(strict=True, cache_dir=cache_dir)


async def test_a_second_preparation_starts_no_process_and_writes_nothing(
    tmp_path: Path, cache_dir: Path, make_module: Callable[..., Path]
) -> None:
    global _events
    folders = [make_module(f"tool-{number}") for number in range(11)]
    for folder in folders:
        (folder / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["pydantic>=2"]\n')
    bundle = Bundle("b", tools=[{"module": folder.name, "source": str(folder)} for folder in folders])
    await bundle.prepare(strict=True, cache_dir=cache_dir)

    _events = seen = []
    try:
        prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)
    finally:
        _events = None

    assert seen == []
    assert prepared.resolver.get_module_source("tool-10") == str(folders[10])


async def test_the_bundles_own_packages_are_importable_and_known_to_modules(
    tmp_path: Path, cache_dir: Path, make_bundle: Callable[..., Bundle]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "pyproject.toml").write_text(f'[project]\nname = "bundle-{name}"\n')
    bundle = make_bundle(base_path=tmp_path / "one", source_base_paths={"b": tmp_path / "two"})

    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    expected = [str(tmp_path / "one" / "src"), str(tmp_path / "two" / "src")]
    assert prepared.bundle_package_paths == expected
    async with prepared.create_session() as session:
        assert session.coordinator.get_capability("bundle_package_paths") == expected
        assert set(expected) <= set(sys.path)
    assert set(expected).isdisjoint(sys.path)


async def test_a_resolver_activates_an_unknown_module_when_it_is_asked_for(
    cache_dir: Path, make_module: Callable[..., Path]
) -> None:
    folder = make_module("tool-late")
    resolver = BundleModuleResolver({}, ModuleActivator(cache_dir))

    found = await resolver.async_resolve("tool-late", source_hint="/gone", profile_hint=str(folder))

    assert found.resolve() == folder
    assert resolver.resolve("tool-late").resolve() == folder


async def test_an_activation_that_failed_is_tried_again_by_preparing_and_not_by_every_session(
    cache_dir: Path, make_bundle: Callable[..., Bundle], make_module: Callable[..., Path], tmp_path: Path
) -> None:
    source = str(tmp_path / "modules" / "hooks-later")
    bundle = make_bundle(hooks=[{"module": "hooks-later", "source": source}])
    prepared = await bundle.prepare(cache_dir=cache_dir)
    make_module("hooks-later")

    for _ in range(2):
        async with prepared.create_session() as session:
            (failure,) = session.status.load_failures
            assert "as before: File not found" in str(failure)
    with pytest.raises(ModuleNotFound, match="as before"):
        await BundleModuleResolver({}, ModuleActivator(cache_dir, base_path=bundle.base_path)).async_resolve(
            "hooks-later", source
        )

    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)
    assert prepared.resolver.get_module_source("hooks-later") == source


@pytest.mark.parametrize("hint", [None, "/does/not/exist", "amplifier_core", {"not": "text"}])
async def test_what_a_resolver_cannot_find_is_the_kernels_not_found_error(cache_dir: Path, hint: Any) -> None:
    resolver = BundleModuleResolver({}, ModuleActivator(cache_dir))

    with pytest.raises(ModuleNotFound):
        await resolver.async_resolve("tool-x", source_hint=hint)
    with pytest.raises(ModuleNotFound):
        await BundleModuleResolver({}).async_resolve("tool-x", source_hint="/tmp")


def test_a_module_source_is_its_path(tmp_path: Path) -> None:
    assert BundleModuleSource(tmp_path).resolve() == tmp_path


async def test_a_source_that_is_no_text_fails_like_any_other(
    cache_dir: Path, make_module: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    good = {"module": "tool-good", "source": str(make_module("tool-good"))}
    bundle = Bundle("b", tools=[good, {"module": "tool-odd", "source": {"git": "somewhere"}}])

    prepared = await bundle.prepare(cache_dir=cache_dir)

    assert prepared.resolver.get_module_source("tool-good") == good["source"]
    assert prepared.resolver.get_module_source("tool-odd") is None
    assert "tool-odd" in caplog.text
    with pytest.raises(ModuleActivationError, match="No handler for URI"):
        await bundle.prepare(cache_dir=cache_dir, strict=True)


async def test_of_several_sources_for_one_module_the_last_counts(
    cache_dir: Path, make_module: Callable[..., Path]
) -> None:
    one, two = ({"module": "tool-x", "source": str(make_module(name))} for name in ("tool-one", "tool-two"))
    bundle = Bundle("b", tools=[one], agents={"a": {"tools": [two]}, "b": {"tools": [one]}})

    prepared = await bundle.prepare(cache_dir=cache_dir)

    assert prepared.resolver.get_module_source("tool-x") == one["source"]
