"""What happens once, not ten times: emitting without failing, and awaiting what may be awaitable."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWNER = "src/amplifier_core/boundary.py"

# Where a registry that fails decides something: a tool that its guards could not see does not run.
DECIDES = "src/amplifier_kit/loops/hook_points.py"


def sources() -> dict[str, str]:
    """Return the files of the packages and modules, by their path in the repository."""
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("modules/**/*.py")]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def quiet_emits(text: str) -> Iterator[int]:
    """Yield the lines of blocks that emit an event and forgive every error."""
    for node in ast.walk(ast.parse(text)) if "emit" in text else ():
        if isinstance(node, ast.Try | ast.With) and _forgives(node):
            awaited = [one.value for part in node.body for one in ast.walk(part) if isinstance(one, ast.Await)]
            if any(_called(one) == "emit" for one in awaited):
                yield node.lineno


def _forgives(block: ast.Try | ast.With) -> bool:
    if isinstance(block, ast.Try):
        return any(_is_broad(handler) for handler in block.handlers)
    return any(_called(item.context_expr) in ("Boundary", "TaskBoundary", "suppress") for item in block.items)


def conditional_awaits(text: str) -> Iterator[int]:
    """Yield the lines that await a value if it is awaitable."""
    questions = ("isawaitable", "iscoroutine")
    for node in ast.walk(ast.parse(text)) if any(question in text for question in questions) else ():
        if isinstance(node, ast.If | ast.IfExp) and _called(node.test) in questions:
            parts = node.body if isinstance(node, ast.If) else [node.body]
            if any(isinstance(one, ast.Await) for part in parts for one in ast.walk(part)):
                yield node.lineno


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")


def _called(node: ast.expr) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
    return None


def test_emitting_without_failing_is_written_once() -> None:
    assert {path for path, text in sources().items() if [*quiet_emits(text)]} <= {OWNER, DECIDES}


def test_awaiting_what_may_be_awaitable_is_written_once() -> None:
    assert {path for path, text in sources().items() if [*conditional_awaits(text)]} == {OWNER}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("async def f(h):\n    try:\n        await h.emit('a', {})\n    except Exception:\n        pass", True),
        ("async def f(emit):\n    try:\n        await emit('a', {})\n    except BaseException:\n        pass", True),
        ("async def f(h):\n    with Boundary(logger, '%s'):\n        await h.emit('a', {})", True),
        ("async def f(h):\n    with suppress(Exception):\n        await h.emit('a', {})", True),
        ("async def f(h):\n    try:\n        await h.emit('a', {})\n    except TypeError:\n        pass", False),
        ("async def f(h):\n    await h.emit('a', {})", False),
    ],
)
def test_a_quiet_emit_is_recognised(text: str, is_found: bool) -> None:
    assert bool([*quiet_emits(text)]) == is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("async def f(v):\n    return await v if inspect.isawaitable(v) else v", True),
        ("async def f(v):\n    if iscoroutine(v):\n        v = await v", True),
        ("async def f(v):\n    if iscoroutine(v):\n        v.close()", False),
    ],
)
def test_a_conditional_await_is_recognised(text: str, is_found: bool) -> None:
    assert bool([*conditional_awaits(text)]) == is_found


# Files of the kernel that catch everything themselves, and how often: where a `with` block would cost a turn too much,
# where an error is logged and raised again, and where nothing is left to report it with.
CATCHES_EVERYTHING = {
    "amplifier_core/boundary.py": 1,
    "amplifier_core/exceptions.py": 1,
    "amplifier_core/handler_call.py": 4,
    "amplifier_core/loader.py": 2,
    "amplifier_core/session.py": 1,
    "amplifier_core/utils/serialize.py": 1,
    "amplifier_core/validation/behavioral/base.py": 1,
}


def test_the_kernel_contains_errors_of_others_through_the_boundary() -> None:
    src = ROOT / "src"
    trees = {
        str(file.relative_to(src)): ast.parse(file.read_text("utf-8")) for file in src.glob("amplifier_core/**/*.py")
    }
    handlers = {
        path: [one for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler)] for path, tree in trees.items()
    }
    found = {path: sum(map(_is_broad, caught)) for path, caught in handlers.items()}

    assert {path: count for path, count in found.items() if count > CATCHES_EVERYTHING.get(path, 0)} == {}
