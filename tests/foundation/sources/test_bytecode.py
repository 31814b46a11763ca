"""Bytecode in a source is never stored: what people read is what runs."""

import py_compile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from git_repository import Repository

from amplifier_foundation.exceptions import BundleLoadError
from amplifier_foundation.modules.activator import ModuleActivator
from amplifier_foundation.sources import Sources

MOUNT = "async def mount(coordinator, config=None):\n    return None\n"


@pytest.fixture
def compiled(tmp_path: Path) -> bytes:
    """Bytecode that runs whatever the source beside it says."""
    source = tmp_path / "hidden.py"
    source.write_text("HIDDEN = True\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    return Path(py_compile.compile(str(source), str(tmp_path / "hidden.pyc"), invalidation_mode=unchecked)).read_bytes()


@pytest.fixture
def files(compiled: bytes) -> dict[str, str | bytes]:
    return {
        "pkg/__init__.py": "HIDDEN = False\n",
        "pkg/__pycache__/__init__.cpython-311.pyc": compiled,
        "pkg/alone.pyc": compiled,
        "x.pyc/y.py": "",
    }


async def test_a_repository_is_checked_out_without_bytecode(
    new_repository: Callable[..., Repository], files: dict[str, str | bytes], sources: Sources
) -> None:
    clean = new_repository("clean", {"pkg/__init__.py": "HIDDEN = False\n"})
    resolved = await sources.resolve(new_repository("origin", files).source)

    assert [path.name for path in _files(resolved.path)] == ["__init__.py"]
    assert resolved.content_hash == (await sources.resolve(clean.source)).content_hash


async def test_an_archive_is_extracted_without_bytecode(
    tmp_path: Path, files: dict[str, str | bytes], sources: Sources
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)

    resolved = await sources.resolve(f"zip+{(tmp_path / 'a.zip').as_uri()}")

    assert [path.name for path in _files(resolved.path)] == ["__init__.py"]


async def test_a_directory_of_a_backend_is_downloaded_without_bytecode(
    files: dict[str, str | bytes], sources: Sources
) -> None:
    import fsspec  # type: ignore[import-untyped]

    memory = fsspec.filesystem("memory")
    for name, content in files.items():
        memory.pipe(f"/bytecode/{name}", content if isinstance(content, bytes) else content.encode())

    resolved = await sources.resolve("memory://bytecode")

    assert [path.name for path in _files(resolved.path)] == ["__init__.py"]


async def test_bytecode_that_carries_the_hash_of_its_source_is_hidden_code(tmp_path: Path, cache_dir: Path) -> None:
    package = tmp_path / "tool-x" / "amplifier_module_tool_x"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MOUNT)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(package / "__init__.py"), invalidation_mode=checked)  # the code in it could be any other

    with pytest.raises(BundleLoadError, match="bytecode that would run in place of its source"):
        await ModuleActivator(cache_dir).activate("tool-x", str(tmp_path / "tool-x"))


@pytest.mark.parametrize("name", ["__pycache__/__init__.cpython-311.pyc", "alone.pyc"])
async def test_a_folder_with_hidden_code_is_not_used_in_place(
    tmp_path: Path, cache_dir: Path, compiled: bytes, name: str
) -> None:
    package = tmp_path / "tool-x" / "amplifier_module_tool_x"
    (package / name).parent.mkdir(parents=True)
    (package / "__init__.py").write_text(MOUNT)
    (package / name).write_bytes(compiled)

    with pytest.raises(BundleLoadError, match="bytecode that would run in place of its source"):
        await ModuleActivator(cache_dir).activate("tool-x", str(tmp_path / "tool-x"))


async def test_what_python_keeps_in_a_folder_is_no_hidden_code(tmp_path: Path, cache_dir: Path) -> None:
    package = tmp_path / "tool-x" / "amplifier_module_tool_x"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MOUNT)
    py_compile.compile(str(package / "__init__.py"))
    py_compile.compile(str(package / "__init__.py"), str(package / "__init__.pyc"))

    assert await ModuleActivator(cache_dir).activate("tool-x", str(tmp_path / "tool-x")) == tmp_path / "tool-x"


def _files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file() and not path.name.startswith(".")]
