"""Requirements of several modules, resolved together with either installer, beside what the host provides."""

import importlib.metadata
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amplifier_core._version import ECOSYSTEM_VERSION
from amplifier_foundation.modules.installer import InstallError, RequirementConflict, install_together
from amplifier_foundation.modules.requirements import HostPackages, host_packages

PYDANTIC = importlib.metadata.version("pydantic")


@pytest.fixture
def host() -> HostPackages:
    return host_packages()


def test_the_host_provides_itself_and_what_it_requires(host: HostPackages) -> None:
    assert host.versions["pydantic"] == PYDANTIC
    assert {
        "amplifier",
        "amplifier-core",
        "amplifier-foundation",
        "amplifier-module-loop-basic",
    } <= host.versions.keys()
    assert host.provides("pydantic-core")
    assert not host.provides("widget")


@pytest.mark.usefixtures("installer")
async def test_modules_share_one_directory_without_what_the_host_has(
    tmp_path: Path, make_wheel: Any, host: HostPackages
) -> None:
    make_wheel("widget", "1.0", ("pydantic>=2", "amplifier-core"))
    make_wheel("widget", "2.0", ("pydantic<1",))
    make_wheel("email_validator", "9.0")
    make_wheel("pydantic", "99.0")
    make_wheel("gadget", "1.0", ("widget",))
    target = tmp_path / "target"

    pins = await install_together(
        {"tool-a": ["widget", "amplifier-core>=77"], "tool-b": ["pydantic[email]>=2", "gadget"]}, target, host
    )

    assert pins.build == ("email-validator==9.0", "gadget==1.0", "widget==1.0")
    assert f"pydantic=={PYDANTIC}" in pins.host
    assert sorted(path.stem for path in target.glob("*.py")) == ["email_validator", "gadget", "widget"]
    assert {path.name for path in target.glob("*.dist-info")} == {
        "email_validator-9.0.dist-info",
        "gadget-1.0.dist-info",
        "widget-1.0.dist-info",
    }


@pytest.mark.parametrize("kernel", ["amplifier-core>=77", "amplifier-core @ git+file:///srv/nowhere/amplifier-core"])
async def test_a_dependency_that_names_another_kernel_gets_ours(
    tmp_path: Path, make_wheel: Any, host: HostPackages, kernel: str
) -> None:
    make_wheel("amplifier_core", "77.0")
    make_wheel("gadget", "1.0", (kernel,))

    pins = await install_together({"tool-a": ["gadget"]}, tmp_path / "target", host)

    assert pins.build == ("gadget==1.0",)
    assert f"amplifier-core=={ECOSYSTEM_VERSION}" in pins.host


@pytest.mark.usefixtures("installer")
async def test_a_dependency_on_a_release_that_ours_stands_for_is_met(
    tmp_path: Path, make_wheel: Any, host: HostPackages
) -> None:
    make_wheel("gadget", "1.0", ("amplifier-core>=2.0,<3", "amplifier-foundation"))

    pins = await install_together({"tool-a": ["gadget"]}, tmp_path / "target", host)

    assert pins.build == ("gadget==1.0",)


@pytest.mark.usefixtures("installer")
async def test_contradicting_requirements_are_told_with_both_modules(
    tmp_path: Path, make_wheel: Any, host: HostPackages
) -> None:
    make_wheel("widget", "1.0")
    make_wheel("widget", "2.0")

    with pytest.raises(RequirementConflict) as caught:
        await install_together({"tool-a": ["widget==1.0"], "tool-b": ["widget>=2"]}, tmp_path / "target", host)

    assert set(caught.value.claims) == {("tool-a", "widget==1.0"), ("tool-b", "widget>=2")}
    assert "tool-a requires widget==1.0" in str(caught.value)
    assert "tool-b requires widget>=2" in str(caught.value)


@pytest.mark.parametrize(
    ("cause", "requires", "told"),
    [
        (
            """Because only needed-by-tool-a==0 is available and needed-by-tool-a==0
         depends on widget==1.0, we can conclude that all versions of
         needed-by-tool-a depend on widget==1.0.
         And because needed-by-tool-b==0 depends on widget>=2 and only
         needed-by-tool-b==0 is available, we can conclude that all versions of
         needed-by-tool-a and all versions of needed-by-tool-b are incompatible.
         And because you require needed-by-tool-a and needed-by-tool-b, we can
         conclude that your requirements are unsatisfiable.""",
            {"tool-a": ["widget==1.0"], "tool-b": ["widget>=2"]},
            "cannot be met together: tool-a requires widget==1.0; tool-b requires widget>=2",
        ),
        (
            """Because widget was not found in the provided package locations and
         needed-by-tool-a==0 depends on widget>=1, we can conclude that
         needed-by-tool-a==0 cannot be used.""",
            {"tool-a": ["widget>=1"]},
            "widget was not found in the provided package locations and tool-a==0 depends on widget>=1",
        ),
    ],
    ids=["a-conflict", "nothing-found"],
)
async def test_what_uv_says_on_a_narrow_terminal_is_told_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: HostPackages, cause: str, requires: Any, told: str
) -> None:
    said = tmp_path / "said.txt"
    said.write_text(f"error: No solution found when resolving dependencies\n  cause: {cause}\n")
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\ncat '{said}'\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)

    with pytest.raises(InstallError) as caught:
        await install_together(requires, tmp_path / "target", host)

    assert told in caught.value.message


@pytest.mark.usefixtures("installer")
async def test_a_requirement_that_excludes_the_hosts_version_fails(
    tmp_path: Path, index: Path, host: HostPackages
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        await install_together({"tool-a": ["pydantic<2"]}, tmp_path / "target", host)

    assert "tool-a requires pydantic<2" in str(caught.value)
    assert f"the host provides pydantic=={PYDANTIC} (required by " in str(caught.value)


@pytest.mark.usefixtures("installer")
async def test_a_requirement_that_nobody_offers_is_named(tmp_path: Path, index: Path, host: HostPackages) -> None:
    with pytest.raises(InstallError) as caught:
        await install_together({"tool-a": ["nowhere-to-be-found>=3"]}, tmp_path / "target", host)

    assert "tool-a" in str(caught.value)
    assert "nowhere-to-be-found>=3" in str(caught.value)


async def test_an_installer_that_fails_is_quoted_beside_the_hosts_version(
    tmp_path: Path, stand_in_installer: Path, host: HostPackages
) -> None:
    (stand_in_installer.parent / "fail").touch()

    with pytest.raises(InstallError) as caught:
        await install_together({"tool-a": ["pydantic<2", "thing"]}, tmp_path / "target", host)

    assert "no such thing" in str(caught.value)
    assert f"the host provides pydantic=={PYDANTIC}" in str(caught.value)
