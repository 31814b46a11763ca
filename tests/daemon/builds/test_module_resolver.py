"""From a plan's hint to a compiled module."""

import json
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_core.module_sources import ModuleNotFoundError as KernelModuleNotFoundError
from amplifierd.profiles.builds.module_resolver import DaemonModuleSourceResolver


@pytest.fixture
def share(tmp_path: Path) -> Path:
    return tmp_path / "share"


@pytest.fixture
def resolver(share: Path) -> DaemonModuleSourceResolver:
    return DaemonModuleSourceResolver(share)


def put(share: Path, place: str, code: str = "") -> Path:
    directory = share / "profiles" / "foundation" / "base" / place
    package = directory / f"amplifier_module_{directory.name.replace('-', '_')}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code, encoding="utf-8")
    return directory


@pytest.mark.parametrize("hint", ["foundation/base", {"collection": "foundation", "profile": "base"}])
def test_a_hint_leads_to_the_outer_directory(share: Path, resolver: DaemonModuleSourceResolver, hint: Any) -> None:
    directory = put(share, "orchestrator/loop-streaming")

    source = resolver.resolve("loop-streaming", hint)

    assert source.resolve() == directory
    assert (source.module_id, source.path) == ("loop-streaming", directory)
    assert "loop-streaming" in str(source)
    assert resolver.resolve("loop-streaming", source_hint=hint, profile_hint="other/one").path == directory
    assert resolver.resolve("loop-streaming", profile_hint=hint).path == directory


def test_a_known_type_stands_for_the_prefix(share: Path, resolver: DaemonModuleSourceResolver) -> None:
    assert resolver.resolve("odd-name", "foundation/base", mount_type="tools").path.parent.name == "tools"
    with pytest.raises(ValueError, match="Could not determine mount type for module: odd-name"):
        resolver.resolve("odd-name", "foundation/base")


@pytest.mark.parametrize(
    ("module_id", "mount_type"), [("tool-web", "hooks"), ("odd-name", "../../x"), ("tool-web", "")]
)
def test_a_known_type_agrees_with_the_prefix_and_is_no_path(
    resolver: DaemonModuleSourceResolver, module_id: str, mount_type: str
) -> None:
    with pytest.raises(ValueError, match=module_id):
        resolver.resolve(module_id, "foundation/base", mount_type=mount_type)


def test_a_damaged_build_never_falls_back_whichever_form_the_plan_has(
    share: Path, resolver: DaemonModuleSourceResolver
) -> None:
    directory = put(share, "tools/tool-web")
    build = directory.parents[1]
    lock = {"resources": {"tools": [{"name": "tool-web", "path": "tools/tool-web"}]}}
    (build / "profile.lock").write_text(json.dumps(lock), encoding="utf-8")
    directory.rename(share / "elsewhere")

    for hint in ("foundation/base", directory.as_uri(), str(directory)):
        with pytest.raises(FileNotFoundError, match="Module 'tool-web' not found: Module path not found") as caught:
            resolver.resolve("tool-web", hint).resolve()
        assert not isinstance(caught.value, KernelModuleNotFoundError)


def test_a_session_bound_to_a_build_gets_its_modules(share: Path, tmp_path: Path) -> None:
    build = tmp_path / "builds" / "x"
    resolver = DaemonModuleSourceResolver(share, pins={"foundation/base": build})

    assert resolver.resolve("tool-a", "foundation/base").path == build / "tools" / "tool-a"


@pytest.mark.parametrize("hint", [None, ""])
def test_no_hint_sends_the_kernel_to_installed_modules(resolver: DaemonModuleSourceResolver, hint: Any) -> None:
    with pytest.raises(ValueError, match="profile_hint must") as caught:
        resolver.resolve("tool-a", hint)
    assert isinstance(caught.value, KernelModuleNotFoundError)


@pytest.mark.parametrize("hint", ["base", 3, {}, {"collection": "a"}, {"collection": "a", "profile": ""}, ["a", "b"]])
def test_a_malformed_hint_is_the_plans_mistake(resolver: DaemonModuleSourceResolver, hint: Any) -> None:
    with pytest.raises(ValueError, match="profile_hint must") as caught:
        resolver.resolve("tool-a", hint)
    assert not isinstance(caught.value, KernelModuleNotFoundError)


@pytest.mark.parametrize("hint", ["../x", "a/../b", "a/b/c", "a/..", {"collection": "..", "profile": "x"}])
def test_a_hint_never_leads_out_of_the_profiles(resolver: DaemonModuleSourceResolver, hint: Any) -> None:
    with pytest.raises(ValueError, match="Invalid profile hint"):
        resolver.resolve("tool-a", hint)


@pytest.mark.parametrize("module", ["tool-../../x", "tool-a/b", "Tool-a"])
def test_a_module_id_never_leads_out_either(resolver: DaemonModuleSourceResolver, module: str) -> None:
    with pytest.raises(ValueError, match="Could not determine mount type"):
        resolver.resolve(module, "a/b")


def test_paths_are_taken_below_the_profiles_and_named_roots_only(share: Path, tmp_path: Path) -> None:
    inside = put(share, "tools/tool-a")
    elsewhere = tmp_path / "modules with space" / "tool-b"
    elsewhere.mkdir(parents=True)
    closed, opened = DaemonModuleSourceResolver(share), DaemonModuleSourceResolver(share, module_roots=[tmp_path])

    assert closed.resolve("tool-a", inside.as_uri()).resolve() == inside
    assert closed.resolve("tool-a", str(inside)).resolve() == inside
    assert opened.resolve("tool-b", elsewhere.as_uri()).resolve() == elsewhere
    for source in (elsewhere.as_uri(), str(elsewhere), (share / "profiles" / ".." / ".." / "x").as_uri()):
        with pytest.raises(ValueError, match="Module source outside allowed roots"):
            closed.resolve("tool-b", source)


def test_a_link_does_not_lead_out(share: Path, tmp_path: Path) -> None:
    (share / "profiles").mkdir(parents=True)
    (share / "profiles" / "link").symlink_to(tmp_path)

    with pytest.raises(ValueError, match="outside allowed roots"):
        DaemonModuleSourceResolver(share).resolve("tool-a", str(share / "profiles" / "link" / "x"))


@pytest.mark.parametrize("source", ["git+https://example.org/r@v1", "https://example.org/x.zip"])
def test_references_in_a_plan_are_refused_unless_allowed(resolver: DaemonModuleSourceResolver, source: str) -> None:
    with pytest.raises(ValueError, match="allow_plan_sources"):
        resolver.resolve("tool-a", source)


def test_a_missing_module_is_named_and_the_kernel_may_look_elsewhere(
    share: Path, resolver: DaemonModuleSourceResolver
) -> None:
    source = resolver.resolve("tool-a", "foundation/base")

    with pytest.raises(FileNotFoundError, match="Module 'tool-a' not found: Module path not found: ") as caught:
        source.resolve()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, KernelModuleNotFoundError)


def test_a_damaged_build_never_falls_back_to_another_version(share: Path, resolver: DaemonModuleSourceResolver) -> None:
    put(share, "hooks/hooks-x")
    lock = {"resources": {"tools": [{"name": "tool-a", "path": "tools/tool-a"}, {"name": "tool-b", "path": None}]}}
    (share / "profiles" / "foundation" / "base" / "profile.lock").write_text(json.dumps(lock), encoding="utf-8")

    with pytest.raises(FileNotFoundError, match="Module 'tool-a' not found") as damaged:
        resolver.resolve("tool-a", "foundation/base").resolve()
    with pytest.raises(FileNotFoundError) as installed:
        resolver.resolve("tool-b", "foundation/base").resolve()

    assert not isinstance(damaged.value, KernelModuleNotFoundError)
    assert isinstance(installed.value, KernelModuleNotFoundError)


async def test_the_kernel_mounts_compiled_modules_and_falls_back_to_installed_ones(share: Path) -> None:
    put(
        share,
        "tools/tool-compiled",
        """
from amplifier_core import ToolResult

class Tool:
    name = "compiled"
    description = "A tool of a build"
    input_schema = {"type": "object"}
    async def execute(self, input):
        return ToolResult(success=True, output="x")

async def mount(coordinator, config=None):
    await coordinator.mount("tools", Tool(), name="compiled")
""",
    )
    plan = {
        "session": {
            "orchestrator": {"module": "loop-basic", "source": "foundation/base", "config": {}},
            "context": {"module": "context-simple", "source": "foundation/base", "config": {}},
        },
        "providers": [{"module": "provider-mock", "source": "foundation/base", "config": {"responses": ["hello"]}}],
        "tools": [{"module": "tool-compiled", "source": "foundation/base", "config": {}}],
    }
    session = AmplifierSession(plan)
    await session.coordinator.mount("module-source-resolver", DaemonModuleSourceResolver(share))

    async with session:
        assert "compiled" in session.coordinator.get("tools")
        assert await session.execute("hi") == "hello"
