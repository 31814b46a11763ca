"""Our distributions beside others of the ecosystem, in environments of their own, by pip, uv and pipx.

An index on loopback has what is needed to build and to run, and another `amplifier-core` and `amplifier-foundation`: of
the version that ours stands for, and newer.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from installed_environments import IMPORTS, OURS, SOURCES, Environment, Index, built
from package_index import write_wheel
from shared_packages import needed_by

from amplifier_core._version import ECOSYSTEM_VERSION


@pytest.fixture(autouse=True)
def nothing_taken(index: Index) -> None:
    index.taken.clear()


@pytest.mark.parametrize("source", SOURCES)
def test_others_install_beside_ours_and_fetch_no_other_kernel(
    environment: Environment, checkout: Path, source: str, index: Index
) -> None:
    environment.install(*SOURCES[source](checkout))
    environment.install("small-app")
    environment.install("small-module")

    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    doctor = environment.amplifier("doctor")
    assert not re.search("installation|commands|packages", doctor.stdout), doctor.stdout


def _mend(environment: Environment, said: str) -> None:
    """Type what a message says, in an environment whose own pip is the one of the tests."""
    lines = [line.strip() for line in said.partition("fix: type\n")[2].splitlines() if line.startswith("    ")]
    assert lines, said
    for line in lines:
        command = line.replace(f"{environment.python} -m pip", f"{sys.executable} -m pip --python {environment.python}")
        done = environment.run(*shlex.split(command))
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("source", SOURCES)
def test_pipx_injects_others_beside_ours(tmp_path: Path, checkout: Path, source: str, index: Index) -> None:
    environment = Environment(tmp_path, index, "pip")
    (tmp_path / "home").mkdir()
    asked = SOURCES[source](checkout)
    if source in ("git", "sdist"):  # pipx takes the name from what is new after an install, and there are three names
        nameless = environment.run(sys.executable, "-m", "pipx", "install", *asked)
        assert "Cannot determine package name" in nameless.stderr
        asked = ["amplifier", f"--pip-args={asked[0]}"]

    for command in (["install", *asked], ["inject", "amplifier", "small-app", "small-module"]):
        done = environment.run(sys.executable, "-m", "pipx", *command)
        assert done.returncode == 0, done.stderr

    pipx, environment = environment, Environment(tmp_path / "pipx/venvs/amplifier", index, "pip")
    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    if source != "wheel":
        return  # what mends it is the same
    assert pipx.run(sys.executable, "-m", "pipx", "inject", "amplifier", "eager-app").returncode == 0
    said = environment.amplifier("run", "Hello").stderr
    assert "amplifier-core 2.1.0 replaced files of Amplifier" in said
    assert "eager-app requires amplifier-core>=2.1; " in said
    assert pipx.run(sys.executable, "-m", "pipx", "uninject", "amplifier", "eager-app").returncode == 0
    _mend(pipx, environment.amplifier("run", "Hello").stderr)
    environment.imports("import small_app, small_module")
    environment.is_in_order()


def test_a_tool_of_uv_takes_others_in_a_second_step(tmp_path: Path, checkout: Path, index: Index) -> None:
    outside, environment = Environment(tmp_path, index, "uv"), Environment(tmp_path / "tools/amplifier", index, "uv")
    (tmp_path / "home").mkdir()
    wheel = SOURCES["wheel"](checkout)

    for more in ([], ["--with", "small-app", "--with", "small-module"]):
        done = outside.run("uv", "tool", "install", *more, *wheel)
        assert done.returncode == 0, done.stderr

    environment.imports("import small_app, small_module")
    environment.is_in_order()
    assert index.foreign == set()
    done = environment.run("uv", "pip", "install", "--python", environment.python, "eager-app")
    refused = environment.amplifier("doctor")
    assert index.foreign == {"amplifier_core-2.1.0-py3-none-any.whl"}, done.stderr
    _mend(outside, refused.stderr + refused.stdout)
    environment.imports("import small_app, small_module")
    environment.is_in_order()


def test_another_kind_of_source_takes_the_place_of_the_one_before(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")

    for source in ("checkout", "editable", "wheel", "git", "git"):
        environment.install("--upgrade", *SOURCES[source](checkout))
        environment.is_in_order()

    environment.imports("import small_app")
    assert index.foreign == set()


def test_the_kernel_alone_serves_an_application_and_gives_way_to_everything(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(str(checkout / "packages/amplifier-core"))
    environment.install("kernel-app")
    environment.imports("import kernel_app")
    assert environment.listed() == {"amplifier-core": ECOSYSTEM_VERSION}

    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")
    environment.is_in_order()
    assert index.foreign == set()

    environment.ask("uninstall", "--yes", "amplifier")
    assert environment.run(environment.python, "-c", "import amplifier_core.session").returncode != 0
    assert environment.run(environment.python, "-c", "import amplifier_cli").returncode != 0


def test_kernel_and_bundles_alone_serve_an_application(environment: Environment, checkout: Path, index: Index) -> None:
    environment.install(*(str(checkout / "packages" / name) for name in ("amplifier-core", "amplifier-foundation")))
    environment.install("small-app")

    environment.imports(f"{IMPORTS}import small_app")
    assert index.foreign == set()


def test_one_command_is_enough_if_it_names_our_parts(environment: Environment, checkout: Path, index: Index) -> None:
    trees = (checkout, checkout / "packages/amplifier-core", checkout / "packages/amplifier-foundation")

    environment.install(*(str(built(tree, "wheel")) for tree in trees), "small-app")

    environment.is_in_order()
    assert index.foreign == set()


PUBLISHED = {  # stand-ins of the modules that bundles name most, with the constraints that are known of them
    "loop_basic": (),
    "loop_streaming": (),
    "context_simple": (),
    "provider_anthropic": ("anthropic",),
    "provider_openai": ("openai",),
    "tool_filesystem": (),
    "tool_bash": (),
    "tool_web": ("ddgs", "primp>=0.15.0,<1.0.0"),
    "tool_search": (),
    "hooks_logging": (),
}


def test_everything_of_ours_and_ten_published_modules_resolve_together(
    environment: Environment, checkout: Path, tmp_path: Path, index: Index
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for needed in {each.metadata["Name"]: each for each in needed_by("amplifier[all]")}.values():
        requires = [line for line in needed.requires or () if "extra ==" not in line]
        write_wheel(links, needed.metadata["Name"].replace("-", "_"), needed.version, requires)
    write_wheel(links, "ddgs", "9.10.0", ["primp>=0.15.0"])
    write_wheel(links, "primp", "0.15.0")
    for name, requires in PUBLISHED.items():
        write_wheel(links, f"published_{name}", "1.0", ["amplifier-core>=2", "amplifier-foundation", *requires])
    (wheel,) = SOURCES["wheel"](checkout)
    parts = [str(built(checkout / "packages" / name, "wheel")) for name in ("amplifier-core", "amplifier-foundation")]

    asked = ("--dry-run", "--find-links", str(links), f"amplifier[all] @ {Path(wheel).as_uri()}", *parts)
    said = environment.install(*asked, *(f"published-{name.replace('_', '-')}" for name in PUBLISHED))

    assert re.search(r"ddgs[-=]+9\.10\.0", said), said
    assert re.search(r"primp[-=]+0\.15\.0", said), said
    assert index.foreign == set()


def test_an_upgrade_takes_the_claims_along(environment: Environment, checkout: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer"
    shutil.copytree(checkout, newer, symlinks=True)
    for file in (newer / "src/amplifier_core/_version.py", *newer.glob("packages/*/pyproject.toml")):
        file.write_text(file.read_text().replace("0.1.0", "0.2.0"))
    environment.install(*SOURCES["wheel"](checkout))
    environment.install("small-app")

    environment.install("--upgrade", str(built(newer, "wheel")))

    claimed = dict.fromkeys(OURS - {"amplifier"}, "2.0.2+amplifier.0.2.0")
    assert environment.listed() == {"amplifier": "0.2.0", **claimed}
    environment.ask("check")
    environment.imports("import small_app")


@pytest.mark.parametrize("name", ["amplifier-core", "amplifier-foundation"])
def test_uninstalling_a_claimed_name_leaves_the_code_and_is_named(
    environment: Environment, checkout: Path, name: str
) -> None:
    environment.install(*SOURCES["wheel"](checkout))

    environment.ask("uninstall", "--yes", name)

    environment.imports(IMPORTS)
    assert f"nothing tells installers that {name} is here" in environment.amplifier("doctor").stdout
    environment.ask("uninstall", "--yes", "amplifier")
    assert environment.listed() == {}


@pytest.mark.parametrize("source", ["wheel", "editable"])
def test_the_other_kernel_first_is_named_and_what_is_said_mends_it(
    environment: Environment, checkout: Path, source: str
) -> None:
    environment.install("amplifier-core==2.0.2", "amplifier-foundation==2.0.2")
    environment.install(*SOURCES[source](checkout))

    said = environment.amplifier("--version").stderr
    doctor = environment.amplifier("doctor")

    assert "amplifier-core 2.0.2 and amplifier-foundation 2.0.2" in said
    assert (doctor.returncode == 0, "installation:" in doctor.stdout or "error:" in doctor.stderr) == (
        source == "wheel",
        True,
    )
    _mend(environment, said)
    environment.is_in_order()


def test_one_command_that_does_not_name_our_parts_is_noticed_and_what_is_said_mends_it(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(*SOURCES["wheel"](checkout), "small-app")

    assert {name.partition("-")[0] for name in index.foreign} == {"amplifier_core", "amplifier_foundation"}
    said = environment.amplifier("--version").stderr
    assert "small-app requires amplifier-core>=2 and amplifier-foundation; " in said
    _mend(environment, said)
    environment.is_in_order()
    environment.imports("import small_app")


def test_a_command_and_a_daemon_of_our_names_are_named(
    environment: Environment, checkout: Path, tmp_path: Path
) -> None:
    links = tmp_path / "links"
    links.mkdir()
    scripts = b"[console_scripts]\namplifier = other_command:main\n[amplifierd.plugins]\nchat = other_command\n"
    more = {"other_command-1.0.dist-info/entry_points.txt": scripts}
    write_wheel(links, "other_command", "1.0", ["amplifier-core>=2"], "def main(): print('other')\n", more)
    write_wheel(
        links, "amplifierd", "0.1.0", ["amplifier-core"], more={"amplifierd/app.py": b"def create_app(): ...\n"}
    )
    environment.install(*SOURCES["wheel"](checkout))
    ours = (environment.python, "-m", "amplifier_cli", "--home", str(environment.folder / "home"))

    environment.install("--find-links", str(links), "other-command")

    assert environment.amplifier("--version").stdout == "other\n"
    doctor = environment.run(*ours, "doctor")
    assert "other_command 1.0 has a command amplifier too" in doctor.stdout
    environment.install("--find-links", str(links), "amplifierd")
    stopped = environment.run(*ours, "doctor")
    assert "amplifierd 0.1.0 replaced files of Amplifier" in stopped.stderr + stopped.stdout


def test_a_requirement_that_ours_does_not_meet_is_named_and_what_is_said_mends_it(
    environment: Environment, checkout: Path, index: Index
) -> None:
    environment.install(*SOURCES["wheel"](checkout))

    environment.install("eager-app")

    assert index.foreign == {"amplifier_core-2.1.0-py3-none-any.whl"}
    refused = environment.amplifier("run", "Hello")
    assert (refused.returncode, refused.stderr.count("amplifier-core 2.1.0 replaced files of Amplifier")) == (1, 1)
    imported = environment.run(environment.python, "-c", "import amplifier_foundation")
    assert "ImportError: amplifier-core 2.1.0 replaced files of Amplifier" in imported.stderr
    checked = environment.run(sys.executable, "-m", "pip", "--python", environment.python, "check")
    assert f"amplifier-foundation {ECOSYSTEM_VERSION} has requirement amplifier-core=={ECOSYSTEM_VERSION}" in (
        checked.stdout
    )
    environment.ask("uninstall", "--yes", "eager-app")
    _mend(environment, refused.stderr)
    environment.is_in_order()
