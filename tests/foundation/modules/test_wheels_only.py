"""Installing runs no code of what is installed, and gives installers no secrets."""

import asyncio
import fcntl
import io
import os
import py_compile
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.modules.install_limits import InstallLimits
from amplifier_foundation.modules.installer import (
    InstallError,
    install_together,
    installer_command,
    installer_environment,
    remove_scratch_leftovers,
)
from amplifier_foundation.modules.requirements import HostPackages, host_packages

BACKEND = """
import pathlib, zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(directory, config_settings=None, metadata_directory=None):
    pathlib.Path({marker!r}).touch()
    name = "gadget-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as wheel:
        wheel.writestr("gadget.py", "")
        wheel.writestr("gadget-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: gadget\\nVersion: 1.0\\n")
        wheel.writestr("gadget-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("gadget-1.0.dist-info/RECORD", "")
    return name
"""
PROJECT = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "gadget"
version = "1.0"
"""


@pytest.fixture
def marker(tmp_path: Path, index: Path) -> Path:
    """What the backend of the source distribution `gadget`, which is in the index, makes when it runs."""
    marker = tmp_path / "ran"
    files = {
        "pyproject.toml": PROJECT,
        "backend.py": BACKEND.format(marker=str(marker)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: gadget\nVersion: 1.0\n",
    }
    with tarfile.open(index / "gadget-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"gadget-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return marker


@pytest.fixture
def host() -> HostPackages:
    return host_packages()


@pytest.mark.usefixtures("installer")
async def test_a_source_distribution_is_not_built(tmp_path: Path, marker: Any, host: HostPackages) -> None:
    with pytest.raises(InstallError) as caught:
        await install_together({"tool-a": ["gadget"]}, tmp_path / "target", host)

    assert "compile.allow_builds: true" in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("address", ["git+file:///srv/gadget", "{index}/gadget-1.0.tar.gz", "{index}"])
async def test_what_an_address_names_is_not_built(
    tmp_path: Path, marker: Any, index: Path, host: HostPackages, address: str
) -> None:
    line = f"gadget @ {address.format(index=index.as_uri())}"

    with pytest.raises(InstallError, match="only wheels are installed: tool-a requires gadget @"):
        await install_together({"tool-a": [line]}, tmp_path / "target", host)

    assert not marker.exists()


@pytest.mark.usefixtures("installer")
@pytest.mark.parametrize("address", ["{index}/gadget-1.0.tar.gz", "git+http://127.0.0.1:9/gadget"])
async def test_what_a_dependency_names_by_an_address_is_neither_fetched_nor_built(
    tmp_path: Path, marker: Any, index: Path, make_wheel: Any, host: HostPackages, address: str
) -> None:
    make_wheel("widget", "1.0", (f"gadget @ {address.format(index=index.as_uri())}",))

    with pytest.raises(InstallError) as caught:
        await install_together({"tool-a": ["widget"]}, tmp_path / "target", host)

    assert "compile.allow_builds: true" in str(caught.value)
    assert not marker.exists()


@pytest.mark.usefixtures("without_uv")  # which never takes an address from a dependency
async def test_what_a_dependency_names_by_an_address_is_built_where_that_is_allowed(
    tmp_path: Path, marker: Any, index: Path, make_wheel: Any, host: HostPackages
) -> None:
    make_wheel("widget", "1.0", (f"gadget @ {index.as_uri()}/gadget-1.0.tar.gz",))

    await install_together({"tool-a": ["widget"]}, tmp_path / "target", host, allow_builds=True)

    assert marker.exists()


@pytest.mark.usefixtures("installer")
async def test_bytecode_of_a_wheel_is_not_installed(tmp_path: Path, make_wheel: Any, host: HostPackages) -> None:
    names = [mode.name.lower() for mode in py_compile.PycInvalidationMode]
    for name, mode in zip(names, py_compile.PycInvalidationMode, strict=True):
        cached = compiled(tmp_path, "VALUE = 'hidden'\n", mode)
        beside = {f"stray_{name}.py": b"VALUE = 'shown'\n", f"stray_{name}.pyc": cached}
        beside[f"__pycache__/{name}.{sys.implementation.cache_tag}.pyc"] = cached
        make_wheel(name, "1.0", code="VALUE = 'shown'\n", more=beside)

    await install_together({"tool-a": names}, tmp_path / "target", host)

    modules = [*names, *(f"stray_{name}" for name in names)]
    script = f"import {', '.join(modules)}; print({', '.join(f'{module}.VALUE' for module in modules)})"
    shown = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        cwd=tmp_path / "target",
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.split() == ["shown"] * 6
    assert list((tmp_path / "target").glob("stray_*.pyc")) == []


@pytest.mark.usefixtures("installer")
async def test_a_wheel_whose_code_nobody_can_read_is_refused(
    tmp_path: Path, make_wheel: Any, host: HostPackages
) -> None:
    hidden = compiled(tmp_path, "VALUE = 'hidden'\n", py_compile.PycInvalidationMode.TIMESTAMP)
    make_wheel("widget", "1.0", more={"secret/__init__.pyc": hidden})

    with pytest.raises(InstallError, match=r"bytecode without its source: secret/__init__\.pyc"):
        await install_together({"tool-a": ["widget"]}, tmp_path / "target", host)


@pytest.mark.usefixtures("without_uv")
def test_both_installers_are_told_to_take_wheels_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--only-binary :all:" in " ".join(installer_command(tmp_path, allow_builds=False))
    assert "--only-binary" not in installer_command(tmp_path, allow_builds=True)

    program = tmp_path / "uv"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert installer_command(tmp_path, allow_builds=False)[0] == str(program)
    assert "--no-build" in installer_command(tmp_path, allow_builds=False)
    assert "--no-build" not in installer_command(tmp_path, allow_builds=True)


async def test_what_is_installed_is_compiled_here(tmp_path: Path, make_wheel: Any, host: HostPackages) -> None:
    make_wheel("widget", "1.0", more={"template.py": b"class {{ name }}:\n"})

    await install_together({"tool-a": ["widget"]}, tmp_path / "target", host)

    assert [path.name for path in (tmp_path / "target/__pycache__").iterdir()] == [
        f"widget.{sys.implementation.cache_tag}.pyc"
    ]


def compiled(directory: Path, text: str, mode: py_compile.PycInvalidationMode) -> bytes:
    source = directory / "hidden.py"
    source.write_text(text)
    py_compile.compile(str(source), cfile=str(directory / "hidden.pyc"), invalidation_mode=mode)
    return (directory / "hidden.pyc").read_bytes()


async def test_the_wheel_that_an_address_names_is_installed(
    tmp_path: Path, make_wheel: Any, host: HostPackages
) -> None:
    wheel = make_wheel("widget", "1.0")

    pins = await install_together({"tool-a": [f"widget @ {wheel.as_uri()}"]}, tmp_path / "target", host)

    assert pins.build == ("widget==1.0",)


async def test_builds_can_be_allowed(
    tmp_path: Path, marker: Any, host: HostPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMPLIFIERD_COMPILE__ALLOW_BUILDS", "true")

    pins = await install_together({"tool-a": ["gadget"]}, tmp_path / "target", host)

    assert pins.build == ("gadget==1.0",)
    assert marker.exists()


def test_an_installer_gets_the_index_and_no_other_secret() -> None:
    index = {
        "PIP_INDEX_URL": "https://me:pw@host/simple",
        "UV_EXTRA_INDEX_URL": "https://me:pw@host/simple",
        "UV_INDEX_PRIVATE_PASSWORD": "pw",
        "PIP_NO_INDEX": "1",
        "HOME": "/srv/me",
        "HTTPS_PROXY": "http://proxy:80",
    }
    secrets = {"OPENAI_API_KEY": "x", "GITHUB_TOKEN": "x", "AWS_PROFILE": "x", "DB_PASSWORD": "x", "SSH_AUTH_SOCK": "x"}

    assert installer_environment({**index, **secrets}) == index


async def test_a_failure_shows_no_credentials_of_a_requirement(tmp_path: Path, host: HostPackages) -> None:
    with pytest.raises(InstallError) as caught:
        await install_together({"tool-a": ["x @ git+https://me:s3cr3t@host/x"]}, tmp_path / "target", host)

    assert "s3cr3t" not in str(caught.value)


async def test_what_a_killed_installation_left_is_removed_and_what_runs_is_not(
    tmp_path: Path, make_wheel: Any, host: HostPackages, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "tmp"
    (scratch / "amplifier-install-dead" / "host").mkdir(parents=True)
    held = scratch / "amplifier-install-alive"
    held.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    descriptor = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        make_wheel("widget", "1.0")
        await install_together({"tool-a": ["widget"]}, tmp_path / "target", host)
        assert [path.name for path in scratch.iterdir()] == ["amplifier-install-alive"]
    finally:
        os.close(descriptor)
    remove_scratch_leftovers()
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("installer")
async def test_a_wheel_that_unpacks_to_more_than_is_allowed_is_not_installed(
    index: Path, tmp_path: Path, host: HostPackages
) -> None:
    with zipfile.ZipFile(index / "bomb-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("bomb.py", "#" * (8 << 20))
        wheel.writestr("bomb-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bomb\nVersion: 1.0\n")
        wheel.writestr("bomb-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("bomb-1.0.dist-info/RECORD", "")
    with pytest.raises(InstallError, match="it was ended because it wrote more than 4 MiB"):
        await install_together({"tool-mine": ["bomb"]}, tmp_path / "target", host, limits=InstallLimits(bytes=4 << 20))
    await install_together({"tool-mine": ["bomb"]}, tmp_path / "other", host)
    assert (tmp_path / "other/bomb.py").stat().st_size == 8 << 20


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what a process writes")
async def test_an_installer_is_ended_while_it_writes_too_much(
    stand_in_installer: Path, tmp_path: Path, host: HostPackages
) -> None:
    uv = stand_in_installer.with_name("uv")
    uv.write_text(f"#!/bin/sh\nhead -c 2M /dev/zero > {tmp_path}/written\nexec sleep 60\n")
    with pytest.raises(InstallError, match="wrote more than 1 MiB"):
        await install_together({"tool-mine": ["bomb"]}, tmp_path / "target", host, limits=InstallLimits(bytes=1 << 20))


@pytest.mark.usefixtures("installer")
async def test_a_wheel_of_more_files_than_are_allowed_is_not_installed(
    index: Path, tmp_path: Path, host: HostPackages
) -> None:
    with zipfile.ZipFile(index / "bomb-1.0-py3-none-any.whl", "w") as wheel:
        for number in range(300):
            wheel.writestr(f"bomb/{number}", "")
        wheel.writestr("bomb-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bomb\nVersion: 1.0\n")
        wheel.writestr("bomb-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("bomb-1.0.dist-info/RECORD", "")
    with pytest.raises(InstallError, match="it was ended because it wrote more than 200 files"):
        await install_together({"tool-mine": ["bomb"]}, tmp_path / "target", host, limits=InstallLimits(files=200))


async def test_an_installer_is_ended_while_it_makes_too_many_files(
    stand_in_installer: Path, tmp_path: Path, host: HostPackages
) -> None:
    (tmp_path / "unpacked").mkdir()
    uv = stand_in_installer.with_name("uv")
    uv.write_text(f"#!/bin/sh\ncd {tmp_path}/unpacked\ntouch $(seq 4000)\nexec sleep 60\n")
    with pytest.raises(InstallError, match="wrote more than 1,000 files"):
        await install_together({"tool-mine": ["bomb"]}, tmp_path / "target", host, limits=InstallLimits(files=1_000))
