"""Who brought the packages of our names, seen in an environment that is made of a few files."""

import base64
import hashlib
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from amplifier_core._version import ECOSYSTEM_VERSION, warn_of_other_distributions
from amplifier_system import distributions
from amplifier_system.distributions import can_start, mixed_installation, refuse_mixed_installation

PYTHON = shlex.quote(sys.executable)
FILES = ("amplifier_core/__init__.py", "amplifier_core/session.py", "amplifier_foundation/__init__.py")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with our distribution, which is the only one on the path."""
    site = tmp_path / "site-packages"
    lines = []
    for name in FILES:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(f"# ours: {name}\n")
        digest = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},1\n")
    _list(site, "amplifier", "0.1.0", "".join(lines))
    for part in ("amplifier_core", "amplifier_foundation"):
        _list(site, part, ECOSYSTEM_VERSION, "")
    monkeypatch.setattr(sys, "path", [str(site)])
    return site


def _list(site: Path, name: str, version: str, record: str, installer: str = "pip") -> Path:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(record)
    (info / "INSTALLER").write_text(f"{installer}\n")
    return info


@pytest.mark.usefixtures("site")
def test_an_environment_of_ours_alone_is_in_order() -> None:
    assert mixed_installation() is None
    assert can_start()
    refuse_mixed_installation()


def test_another_kernel_that_was_there_first_is_named_and_nothing_stops(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _list(site, "amplifier_core", "2.0.2", "")

    assert can_start()
    refuse_mixed_installation()
    said = capsys.readouterr().err
    assert said.startswith("warning: amplifier-core 2.0.2 and Amplifier are installed into the same files")
    uninstall = f"{PYTHON} -m pip uninstall --yes amplifier amplifier-core amplifier-foundation"
    assert said.splitlines()[-3:] == [
        f"    {line}" for line in (uninstall, uninstall, f"{PYTHON} -m pip install amplifier==0.1.0")
    ]


def test_what_asks_for_the_other_kernel_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _list(site, "amplifier_core", "2.1.0", "")
    eager = _list(site, "eager_app", "1.0", "")
    (eager / "METADATA").write_text(
        "Name: eager-app\nRequires-Dist: amplifier-core>=2.1\nRequires-Dist: amplifier_foundation @ git+https://a.example/f"
        " ; python_version > '3'\nRequires-Dist: amplifier-module-x\n\nRequires-Dist: amplifier-core<1\n"
    )

    assert can_start()

    assert (
        "  note: eager-app requires amplifier-core>=2.1 and amplifier_foundation @ git+https://a.example/f; what asks"
        " for another version than ours brings it back, so take that out first\n  fix: type\n"
    ) in capsys.readouterr().err


def test_files_that_another_kernel_replaced_stop_the_command_and_the_import(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / f"amplifier_core-{ECOSYSTEM_VERSION}.dist-info").rename(site / "amplifier_core-2.1.0.dist-info")
    for name in FILES[:2]:
        (site / name).write_text("# theirs\n")

    assert not can_start()
    assert "error: amplifier-core 2.1.0 replaced files of Amplifier: " in capsys.readouterr().err
    with pytest.raises(ImportError, match=r"amplifier_core/__init__\.py and 1 more\n  fix: type\n.* pip uninstall"):
        refuse_mixed_installation()


def test_a_kernel_that_was_uninstalled_stops_the_command(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = site / f"amplifier_core-{ECOSYSTEM_VERSION}.dist-info"
    for file in (*claim.iterdir(), site / FILES[0]):
        file.unlink()
    claim.rmdir()

    assert not can_start()
    assert "amplifier_core/__init__.py" in capsys.readouterr().err


def test_a_claim_that_was_uninstalled_stops_nothing(site: Path) -> None:
    (site / f"amplifier_core-{ECOSYSTEM_VERSION}.dist-info").rename(site / "gone")

    assert mixed_installation() is None


def test_another_kernel_that_hides_an_editable_installation_stops_the_command(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "amplifier-0.1.0.dist-info/RECORD").write_text("")
    (site / FILES[2]).unlink()
    monkeypatch.delitem(sys.modules, "amplifier_core")  # as at the start of a process
    _list(site, "amplifier_core", "2.0.2", "")

    found = mixed_installation()

    assert found is not None
    assert found.replaced == ("amplifier_core/__init__.py",)


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ('{"url": "file:///srv/a", "dir_info": {"editable": true}}', "--editable /srv/a"),
        ('{"url": "file:///srv/a.whl", "archive_info": {}}', "/srv/a.whl"),
        ('{"url": "https://a.example/a", "vcs_info": {"vcs": "git", "commit_id": "c1"}}', "git+https://a.example/a@c1"),
        ("{}", "amplifier==0.1.0"),
    ],
)
def test_the_remedy_installs_ours_from_where_it_came(site: Path, origin: str, source: str) -> None:
    _list(site, "amplifierd", "0.3.0", "")
    (site / "amplifier-0.1.0.dist-info/INSTALLER").write_text("uv")
    (site / "amplifier-0.1.0.dist-info/direct_url.json").write_text(origin)

    found = mixed_installation()

    assert found is not None
    python = f"--python {PYTHON}"
    assert found.remedy == (
        f"uv pip uninstall {python} amplifier-core amplifier-foundation amplifierd",
        f"uv pip uninstall {python} amplifier",
        f"uv pip install {python} {source}",
    )


@pytest.mark.parametrize(
    ("file", "text", "remedy"),
    [
        ("pipx_metadata.json", "", ["pipx uninstall amplifier", "pipx install amplifier==0.1.0"]),
        (
            "pipx_metadata.json",
            '{"injected_packages": {"one": {"package_or_url": "one>=1"}, "two": {"package_or_url": "two"}}}',
            [
                "pipx uninstall amplifier",
                "pipx install amplifier==0.1.0",
                "pipx inject amplifier 'one>=1' two",
            ],
        ),
        ("uv-receipt.toml", "", ["uv tool uninstall amplifier", "uv tool install amplifier==0.1.0"]),
        (
            "uv-receipt.toml",
            """
[tool]
requirements = [
    { name = "amplifier", path = "/srv/amplifier.whl" },
    { name = "one", specifier = ">=1,<2" },
    { name = "two", git = "https://git.example/two?rev=v1" },
    { name = "three", directory = "/srv/a place" },
]
""",
            [
                "uv tool uninstall amplifier",
                "uv tool install amplifier==0.1.0",
                "uv tool install --with 'one>=1,<2' --with git+https://git.example/two@v1 --with '/srv/a place'"
                " amplifier==0.1.0",
            ],
        ),
    ],
)
def test_tools_that_keep_an_environment_make_it_again(
    site: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, remedy: list[str]
) -> None:
    _list(site, "amplifier_foundation", "1.0.0", "")
    (site / file).write_text(text)
    monkeypatch.setattr(sys, "prefix", str(site))

    found = mixed_installation()

    assert found is not None
    assert list(found.remedy) == remedy


def test_the_kernel_warns_of_the_same_distributions(site: Path) -> None:
    _list(site, "amplifier_foundation", "1.0.0", "")

    with pytest.warns(UserWarning, match=r"^amplifier-foundation 1\.0\.0 is installed into .* amplifier_cli doctor$"):
        warn_of_other_distributions(str(site / "amplifier_core"))


def test_a_checkout_is_not_looked_at(site: Path) -> None:
    _list(site, "amplifier_core", "2.0.2", "")
    checkout = site.rename(site.with_name("src"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_other_distributions(str(checkout / "amplifier_core"))


def test_looking_loads_nothing_that_a_healthy_environment_has_no_use_for() -> None:
    script = f"import sys; import {distributions.__name__} as d; d.mixed_installation(); print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True).stdout

    assert {"csv", "dataclasses", "hashlib", "json"}.isdisjoint(loaded.split())
