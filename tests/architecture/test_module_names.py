"""No package knows a module by its name: modules declare what they want."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_IDS = {path.name for path in (ROOT / "modules").iterdir() if path.is_dir()}

# What is named all the same, and why.
DECLARED = {
    "src/amplifier_kit/types.py": {"delegate", "openai:tool_search_items"},  # the ecosystem's, in one place
    "src/amplifier_foundation/observability.py": {"hooks-logging"},  # likewise
    "src/amplifierd/profiles/documents/inheritance.py": {"context-simple"},  # the context of a profile that names none
    "src/amplifierd/plans/guards.py": {"hooks-approval", "hooks-redaction"},  # the guards that no bundle loosens
    "src/amplifierd/sessions/questions/level_gate.py": {"hooks-approval"},  # of a session with a level
    "src/amplifier_core/bring_up.py": {"loop-basic", "context-simple"},  # of a plan that has lost its own
    "src/amplifier_cli/commands/provider.py": {"loop-basic", "context-simple"},  # around a provider that is tried
}


def names_in(source: str) -> set[str]:
    """Return the texts in a file that name a module, a module's tool, or a vendor's metadata."""
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and _is_name(text)}


def _is_name(text: str) -> bool:
    return text in MODULE_IDS or text == "delegate" or text.startswith(("openai:", "anthropic:"))


@pytest.mark.parametrize("package", sorted(path.parent.name for path in (ROOT / "src").glob("*/__init__.py")))
def test_no_module_is_known_by_its_name(package: str) -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "src" / package).rglob("*.py")}

    found = {file: names for file, path in files.items() if (names := names_in(path.read_text(encoding="utf-8")))}

    assert found == {file: names for file, names in DECLARED.items() if file in files}


def test_names_are_seen() -> None:
    assert names_in('x = "tool-bash"; y = ["openai:state", "tool-none"]') == {"tool-bash", "openai:state"}
