"""What a person reads when a profile or one of its modules cannot be used: the words are part of the product."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pydantic
import pytest

from amplifier_core import AmplifierSession

BROKEN = """---
profile:
  name: broken
  version: 1.0.0

tools:
- module: a
  config: {x: [1, 2
- module: b
---
"""
AT_LINE_9 = "{profiles}/broken/profile.md:9: Invalid YAML in broken/profile.md: line 9, column 9: "
MISSING = "install 'nowhere', which amplifier_module_tool_own/__init__.py of {modules}/tool-own imports, or name it"
NO_RESOLVER = (
    "its source 'local/mine' needs a resolver, and the session has none: mount one as 'module-source-resolver'"
)
NO_IMPORT_PATH = "enter `with build.import_path():` before the session starts; the build has 'thing'"


@pytest.fixture
def broken(bench: Any) -> Any:
    bench.write_profile("broken", BROKEN)
    bench.write_profile("child", text="---\nprofile: {name: child, version: 1.0.0, extends: broken}\n---\n")
    return bench


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ("local/broken", f"Profile local/broken is not valid:\n  {AT_LINE_9}"),
        ("local/child", f"Profile 'broken' (extended by 'local/child') is not valid: {AT_LINE_9}"),
        ("local/nowhere", "Profile not found: local/nowhere"),
    ],
)
async def test_a_profile_that_cannot_be_read_is_not_called_missing(broken: Any, profile: str, text: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the text is what counts
        await broken.home.profiles.compile(profile)

    assert text.format(profiles=broken.home.paths.own_profiles) in str(caught.value)


@pytest.mark.usefixtures("make_wheel")
@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("pydantic<2", re.escape(f"pydantic<2 excludes pydantic {pydantic.VERSION}, which the host has")),
        (
            "nowhere>=1",
            "No matching distribution found for nowhere>=1|nowhere was not found in",
        ),  # as pip and uv say it
    ],
)
async def test_what_could_not_be_installed_is_told_with_its_reason(
    bench: Any, requirement: str, reason: str, tmp_path: Path
) -> None:
    source = bench.write_module("tool-own", requires=[requirement])
    path = bench.write_profile("lacking", tools=[{"module": "tool-own", "source": source}])
    bench.write_files(tmp_path / "others", {"profiles/lacking.md": path.read_text()})

    build = await bench.home.profiles.compile("local/lacking")
    added = await bench.home.collections.add("others", str(tmp_path / "others"))

    missing, explained = build.warnings
    assert missing == f"dependency-missing: tool-own: {requirement}"
    assert explained.startswith("dependency-reason: tool-own: ")
    assert re.search(reason, explained)
    assert added.warning == f"others/lacking: {missing}; {explained}"


@pytest.mark.parametrize(
    ("form", "imported", "has_resolver", "has_import_path", "advice"),
    [
        ("portable", "thing", False, True, NO_RESOLVER),
        ("portable", "thing", True, False, NO_IMPORT_PATH),
        ("resolved", "thing", True, False, NO_IMPORT_PATH),
        ("portable", "nowhere", True, True, MISSING),
        ("resolved", "nowhere", True, True, MISSING),
    ],
)
async def test_advice_tells_apart_what_is_missing(
    bench: Any, make_wheel: Any, form: str, imported: str, has_resolver: bool, has_import_path: bool, advice: str
) -> None:
    make_wheel("thing", "1")
    files = {"amplifier_module_tool_own/__init__.py": f"import {imported}\nasync def mount(coordinator, config): ...\n"}
    source = bench.write_module("tool-own", files, requires=["thing"])
    bench.write_profile(tools=[{"module": "tool-own", "source": source}])
    build = await bench.home.profiles.compile("local/mine")
    session = AmplifierSession(await bench.home.plans.generate("local/mine", form=form))
    if has_resolver:
        await session.coordinator.mount("module-source-resolver", bench.home.resolver())

    with build.import_path() if has_import_path else nullcontext():
        async with session:
            (failure,) = session.status.load_failures

    assert advice.format(modules=Path(source).parent) in failure["error"]
    assert str(bench.home.paths.home) not in failure["error"]
