"""What modules require: installed into the build, with exact versions, never into the host."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.modules.requirements import host_packages
from amplifier_foundation.sources import ProgressEvent
from amplifierd import open_home
from amplifierd.exceptions import ProfileCompilationError

pytestmark = pytest.mark.usefixtures("make_wheel")


def tool(bench: Any, name: str, *requires: str, where: str = "modules") -> dict[str, str]:
    return {"module": name, "source": bench.write_module(name, requires=requires, where=where)}


def pins(bench: Any, profile_id: str = "local/mine") -> dict[str, list[tuple[str, str]]]:
    entries = bench.lock(profile_id)["resources"]["tools"]
    return {entry["name"]: [(pin["pin"], pin["from"]) for pin in entry["requirements"]] for entry in entries}


def version_seen_by(build: Any, name: str) -> str:
    """Return the version of a dependency that a process which runs the build imports."""
    program = (
        "import sys; from pathlib import Path; sys.path.append(str(Path(sys.argv[1]) / '.deps'));"
        f"import {name}; print({name}.VERSION)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(build.path)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


async def test_it_is_told_that_packages_are_installed_and_for_which_modules(
    bench: Any, make_wheel: Callable[..., Path]
) -> None:
    make_wheel("leaf", "1.0")
    bench.write_profile(tools=[tool(bench, "tool-a", "leaf")])
    steps: list[ProgressEvent] = []
    home = open_home(bench.home.paths.home, progress=steps.append, shipped_collection=bench.tmp_path / "shipped")

    await home.profiles.compile("local/mine")
    await home.profiles.compile("local/mine")

    told = [(step.what, step.ref) for step in steps if step.what != "source"]
    assert told == [("profile", "local/mine"), ("packages", "tool-a"), ("profile", "local/mine")]


async def test_requirements_are_resolved_together_pinned_and_kept(
    bench: Any, make_wheel: Callable[..., Path], activity: Any
) -> None:
    make_wheel("leaf", "1.0")
    make_wheel("leaf", "2.0")
    make_wheel("middle", "1.5", ["leaf<2", "pydantic>=2"])
    host = host_packages(bench.home.paths.cache).versions
    tools = [tool(bench, "tool-a", "leaf"), tool(bench, "tool-b", "middle", "amplifier-core>=1000", "pydantic>=2")]
    bench.write_profile(tools=tools)

    build = await bench.home.profiles.compile("local/mine")

    assert pins(bench) == {
        "tool-a": [("leaf==1.0", "build")],
        "tool-b": [
            (f"amplifier-core=={host['amplifier-core']}", "host"),
            ("leaf==1.0", "build"),
            ("middle==1.5", "build"),
            (f"pydantic=={host['pydantic']}", "host"),
        ],
    }
    installed = sorted(path.name for path in (build.path / ".deps").glob("*.dist-info"))
    assert installed == ["leaf-1.0.dist-info", "middle-1.5.dist-info"]
    assert build.status == "fresh"
    with build.import_path():
        packages = next(index for index, path in enumerate(sys.path) if path.endswith("site-packages"))
        assert sys.path.index(str(build.path / ".deps")) == packages - 1
        with build.import_path():
            pass
        assert sys.path.count(str(build.path / ".deps")) == 1
    assert str(build.path / ".deps") not in sys.path

    # A change of configuration, and even another module, installs nothing that is there already.
    make_wheel("leaf", "1.1")
    bench.write_profile(tools=tools, body="Words.")
    with activity.watching():
        second = await bench.home.profiles.compile("local/mine")
    assert activity.started == []
    assert (second.path / ".deps/leaf.py").read_text() == "VERSION = '1.0'\n"
    assert (await bench.home.profiles.verify("local/mine")).status == "fresh"

    make_wheel("other", "1.0")
    bench.write_profile(tools=[*tools, tool(bench, "tool-c", "other")])
    await bench.home.profiles.compile("local/mine")
    assert pins(bench)["tool-a"] == [("leaf==1.0", "build")]
    assert pins(bench)["tool-c"] == [("other==1.0", "build")]

    (second.path.parent / bench.lock()["build_id"] / ".deps/leaf.py").write_text("VERSION = '6.6'\n")
    assert (await bench.home.profiles.verify("local/mine")).codes == ("resource-modified",)
    repaired = await bench.home.profiles.compile("local/mine", frozen=True)
    assert version_seen_by(repaired, "leaf") == "1.0"

    bench.write_profile("other", tools=[tool(bench, "tool-a", "leaf>=2", where="other")])
    other = await bench.home.profiles.compile("local/other")
    assert (version_seen_by(repaired, "leaf"), version_seen_by(other, "leaf")) == ("1.0", "2.0")


async def test_requirements_that_contradict_each_other_name_both_modules(
    bench: Any, make_wheel: Callable[..., Path]
) -> None:
    make_wheel("leaf", "1.0")
    make_wheel("leaf", "2.0")
    bench.write_profile(tools=[tool(bench, "tool-a", "leaf<2"), tool(bench, "tool-b", "leaf>=2")])

    with pytest.raises(ProfileCompilationError) as caught:
        await bench.home.profiles.compile("local/mine")

    assert caught.value.code == "dependency-conflict"
    assert "tool-a requires leaf<2" in caught.value.message
    assert "tool-b requires leaf>=2" in caught.value.message
    assert not (bench.home.paths.profile_dir("local/mine") / "profile.lock").exists()


async def test_an_optional_module_whose_requirements_cannot_be_met_leaves_the_build_degraded(
    bench: Any,
) -> None:
    bench.write_profile(tools=[tool(bench, "tool-b", "nowhere>=1"), tool(bench, "tool-c", "pydantic<1")])

    build = await bench.home.profiles.compile("local/mine")

    assert build.status == "degraded"
    assert bench.lock()["degraded"] == ["tool-b", "tool-c"]
    assert [text for text in build.warnings if text.startswith("dependency-missing")] == [
        "dependency-missing: tool-b: nowhere>=1",
        "dependency-missing: tool-c: pydantic<1",
    ]
    assert (build.path / "tools/tool-b").is_dir()


async def test_an_orchestrator_whose_requirements_cannot_be_met_is_an_error(bench: Any) -> None:
    bench.reopen(offline=True)
    source = bench.write_module("loop-own", requires=["nowhere"])
    bench.write_profile(session={"orchestrator": {"module": "loop-own", "source": source}})

    with pytest.raises(ProfileCompilationError, match="loop-own") as caught:
        await bench.home.profiles.compile("local/mine")

    assert caught.value.code == "dependency-missing"


@pytest.mark.parametrize("settings", [{"offline": True}, {"compile": {"install_dependencies": "never"}}])
async def test_nothing_is_installed_offline_or_when_told_not_to(
    bench: Any, settings: dict[str, Any], activity: Any
) -> None:
    bench.reopen(**settings)
    bench.write_profile(tools=[tool(bench, "tool-a", "leaf", "pydantic>=2")])

    with activity.watching():
        build = await bench.home.profiles.compile("local/mine")

    assert activity.started == []
    assert build.warnings == ("dependency-missing: tool-a: leaf",)
    assert build.status == ("degraded" if "offline" in settings else "fresh")
    assert not (build.path / ".deps").exists()


async def test_another_version_of_what_the_host_provides_is_recorded_anew(bench: Any) -> None:
    bench.write_profile(tools=[tool(bench, "tool-a", "pydantic>=2")])
    first = await bench.home.profiles.compile("local/mine")
    lock = bench.lock()
    (pin,) = lock["resources"]["tools"][0]["requirements"]
    recorded, pin["pin"] = pin["pin"], "pydantic==2.0"
    (first.path / "profile.lock").write_text(json.dumps(lock))

    status = await bench.home.profiles.status("local/mine")
    assert "installed-changed: pydantic==2.0" in [str(reason) for reason in status.reasons]

    second = await bench.home.profiles.compile("local/mine")
    assert pins(bench)["tool-a"] == [(recorded, "host")]
    assert second.build_id == first.build_id


async def test_requirements_whose_markers_do_not_hold_are_not_pinned(
    bench: Any, make_wheel: Callable[..., Path]
) -> None:
    make_wheel("leaf", "1.0")
    more = "leaf; extra == 'more'\nProvides-Extra: more"
    make_wheel("human", "1.0", ["pytest; extra == 'tests'", more, "nowhere; python_version < '3'"])
    make_wheel("wide", "1.0", ["human[more]"])
    bench.write_profile(tools=[tool(bench, "tool-a", "human"), tool(bench, "tool-b", "wide", "gone; os_name == 'x'")])

    build = await bench.home.profiles.compile("local/mine")

    assert build.status == "fresh"
    assert pins(bench) == {
        "tool-a": [("human==1.0", "build")],
        "tool-b": [("human==1.0", "build"), ("leaf==1.0", "build"), ("wide==1.0", "build")],
    }


async def test_an_extra_of_ours_counts_only_for_a_build_that_has_its_module(
    bench: Any, make_wheel: Callable[..., Path]
) -> None:
    provided = host_packages(bench.home.paths.cache).versions["ddgs"]
    make_wheel("ddgs", "0.1")
    bench.write_profile("alone", tools=[tool(bench, "tool-a", "ddgs<1")])
    bench.write_profile("beside", tools=[{"module": "tool-web"}, tool(bench, "tool-b", "ddgs")])

    await bench.home.profiles.compile("local/alone")
    await bench.home.profiles.compile("local/beside")

    assert pins(bench, "local/alone")["tool-a"] == [("ddgs==0.1", "build")]
    assert (f"ddgs=={provided}", "host") in pins(bench, "local/beside")["tool-b"]


async def test_a_package_that_is_imported_already_in_another_version_is_reported(
    bench: Any, make_wheel: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_wheel("twig", "2.0")
    bench.write_profile(tools=[tool(bench, "tool-a", "twig")])
    build = await bench.home.profiles.compile("local/mine")
    elsewhere = tmp_path / "elsewhere"
    bench.write_files(elsewhere, {"twig.py": "VERSION = '1.0'\n", "branch.py": "import twig\n"})
    sys.path.insert(0, str(elsewhere))
    try:
        importlib.import_module("branch")
        with build.import_path():
            pass
    finally:
        sys.path.remove(str(elsewhere))
        for name in ("twig", "branch"):
            del sys.modules[name]

    assert "it brings twig 2.0, but twig" in caplog.text
    assert f"from {elsewhere} is imported already, by branch" in caplog.text
    caplog.clear()
    with build.import_path():
        assert importlib.import_module("twig").VERSION == "2.0"
    del sys.modules["twig"]
    assert caplog.text == ""
