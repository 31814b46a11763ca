"""The whole home is for those who put things together; a service is given the parts of it that it uses."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
PACKAGE, HOME = "amplifierd", "amplifierd.home"
NAMES = {"Home", "open_home"}

ROOTS = {
    "amplifierd/__init__.py",  # the front door
    "amplifierd/app.py",
    "amplifierd/control/serve.py",
    "amplifierd/control/tokens.py",
    "amplifierd/server/daemon.py",
    "amplifierd/workers/worker_methods.py",  # a worker puts its own home together
}


def imported(path: str, text: str) -> Iterator[str]:
    """Yield the full names of what a file imports, whenever it does."""
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def uses_home(path: str, text: str) -> bool:
    return not {HOME, *(f"{PACKAGE}.{name}" for name in NAMES)}.isdisjoint(imported(path, text))


def test_only_composition_roots_and_the_command_know_the_whole_home() -> None:
    files = {str(file.relative_to(SOURCES)): file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py")}
    users = {path for path, text in files.items() if "home" in text and uses_home(path, text)}

    assert {path for path in users if not path.startswith("amplifier_cli/")} == ROOTS


@pytest.mark.parametrize(
    ("text", "is_user"),
    [
        ("from amplifierd.home import Home", True),
        ("from amplifierd import open_home", True),
        ("from ..home import Home", True),
        ("if TYPE_CHECKING:\n    from amplifierd import home", True),
        ("def f():\n    import amplifierd.home", True),
        ("from .home import place", False),
        ("from amplifierd import Settings", False),
    ],
)
def test_a_user_is_recognised(text: str, is_user: bool) -> None:
    assert uses_home("amplifierd/server/some.py", text) == is_user
