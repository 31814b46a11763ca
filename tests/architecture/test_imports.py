"""Who may import whom, as allow-lists; the deny-lists are import-linter's contracts in `pyproject.toml`."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Allowance:
    """The packages that a package may import beside the standard library and itself."""

    package: str
    everywhere: frozenset[str]
    below: dict[str, frozenset[str]] = field(default_factory=dict)  # file or folder in the package → further packages

    def allows(self, name: str, file: str) -> bool:
        further = (names for place, names in self.below.items() if file == place or file.startswith(f"{place}/"))
        return name in sys.stdlib_module_names | {self.package} | self.everywhere.union(*further)


PYTEST = frozenset({"pytest", "pytest_asyncio"})

WEB = frozenset({"fastapi", "starlette"})

ALLOWANCES = [
    Allowance(
        "amplifier_cli",
        everywhere=frozenset(
            {
                "amplifier_core",
                "amplifier_foundation",
                "amplifier_sessions",
                "amplifier_system",
                "amplifierd",
                "httpx2",
                "prompt_toolkit",
                "pydantic",
                "rich",
                "typer",
                "yaml",
            }
        ),
    ),
    Allowance(
        "amplifier_core",
        everywhere=frozenset({"pydantic"}),
        below={"pytest_plugin.py": PYTEST, "validation/structural": PYTEST, "validation/behavioral": PYTEST},
    ),
    Allowance(
        "amplifier_foundation",
        everywhere=frozenset(
            {
                "amplifier_core",
                "amplifier_sessions",
                "amplifier_system",
                "filelock",
                "fsspec",
                "httpx2",
                "packaging",
                "pydantic",
                "ruamel",
                "yaml",
            }
        ),
    ),
    Allowance(
        "amplifierd",
        everywhere=frozenset(
            {
                "amplifier_core",
                "amplifier_foundation",
                "amplifier_rendering",
                "amplifier_sessions",
                "amplifier_system",
                "filelock",
                "pydantic",
                "pydantic_settings",
                "ruamel",
                "yaml",
            }
        ),
        below={
            "app.py": WEB,
            "client": frozenset({"httpx2"}),
            "cluster": frozenset({"httpx2"}),
            "control": frozenset({"typer", "uvicorn"}) | WEB,
            "control/certificates.py": frozenset({"cryptography"}),
            "profiles/documents/literal_secrets.py": frozenset({"amplifier_kit"}),
            "server/metrics.py": frozenset({"prometheus_client"}),
            "server/http": WEB,
            "server/http/forwarding.py": frozenset({"httpx2"}),
            "server/http/relayed_turn.py": frozenset({"httpx2"}),
            "server/api": WEB,
            "store/postgres": frozenset({"psycopg"}),
            "sessions": frozenset({"amplifier_kit"}),
            "turns/durable": frozenset({"procrastinate", "psycopg"}),
            "keys.py": frozenset({"keyring"}),
            "signing_keys.py": frozenset({"cryptography"}),
            "trust.py": frozenset({"amplifier_kit"}),
        },
    ),
    Allowance("amplifier_kit", everywhere=frozenset({"amplifier_core", "amplifier_system"})),
    Allowance("amplifier_rendering", everywhere=frozenset({"amplifier_system", "markdown_it", "nh3", "pygments"})),
    Allowance("amplifier_sessions", everywhere=frozenset()),
    Allowance("amplifier_system", everywhere=frozenset()),
]


def imported_packages(source: str) -> Iterator[str]:
    """Yield the top-level package of every absolute import, wherever in the file it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def strangers(root: Path, allowance: Allowance) -> list[str]:
    """Say which files under `root` import a package that the allowance does not name."""
    return [
        f"{allowance.package}/{file} imports {name}"
        for path in sorted(root.rglob("*.py"))
        for file in [path.relative_to(root).as_posix()]
        for name in sorted(set(imported_packages(path.read_text(encoding="utf-8"))))
        if not allowance.allows(name, file)
    ]


@pytest.mark.parametrize("allowance", ALLOWANCES, ids=lambda allowance: allowance.package)
def test_a_package_imports_only_what_its_allowance_names(allowance: Allowance) -> None:
    assert strangers(SRC / allowance.package, allowance) == []


def test_every_package_of_the_distribution_has_an_allowance() -> None:
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}

    assert packages == {allowance.package for allowance in ALLOWANCES}


def test_an_import_in_any_corner_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/lazy.py").write_text("def f():\n    import yaml.nodes, json\n    from .pytest import x\n")
    (tmp_path / "plugin.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pytest\n")
    (tmp_path / "plugin_helper.py").write_text("from pytest import mark\n")

    allowance = Allowance("sample", frozenset({"pydantic"}), below={"plugin.py": PYTEST})

    assert strangers(tmp_path, allowance) == [
        "sample/inner/lazy.py imports yaml",
        "sample/plugin_helper.py imports pytest",
    ]
