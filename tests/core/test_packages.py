"""Where a module's code is: ids, types, packages in folders, imports from paths, private copies."""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amplifier_core.exceptions import ModuleValidationError
from amplifier_core.packages import (
    find_code,
    find_package,
    folder_name,
    import_module_from_path,
    is_module_id,
    module_id_of,
    module_type_in,
    module_type_of,
    package_name,
    private_copy,
    provider_module_id,
    provider_name,
    type_from_id,
)


@pytest.fixture(autouse=True)
def _imports_undone() -> Iterator[None]:
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    sys.modules.update(modules)


def write_package(directory: Path, **files: str) -> Path:
    """Write a package; each file is given by its name without the suffix."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {"__init__": "", **files}.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def write_entry_points(folder: Path, **entry_points: str) -> None:
    lines = [f'"{name.replace("_", "-")}" = "{target}"' for name, target in entry_points.items()]
    folder.mkdir(parents=True, exist_ok=True)
    table = '[project.entry-points."amplifier.modules"]'
    (folder / "pyproject.toml").write_text("\n".join([table, *lines]))


@pytest.mark.parametrize("module_id", ["tool-bash", "x", "a.b", "tool bash"])
def test_an_ordinary_name_can_be_a_module_id(module_id: str) -> None:
    assert is_module_id(module_id)


@pytest.mark.parametrize("module_id", ["", ".", "..", "a/b", "a\\b", "a\0b", None, 3, ["tool"]])
def test_a_name_that_could_leave_its_folder_is_no_module_id(module_id: object) -> None:
    assert not is_module_id(module_id)


def test_an_id_has_one_package_name_and_one_folder_name() -> None:
    assert (package_name("tool-web-search"), folder_name("tool-bash")) == (
        "amplifier_module_tool_web_search",
        "amplifier-module-tool-bash",
    )


@pytest.mark.parametrize(
    ("module_id", "module_type"),
    [
        ("my-orchestrator", "orchestrator"),
        ("orchestrating", "orchestrator"),
        ("loop-basic", "orchestrator"),
        ("provider-mock", "provider"),
        ("tool-bash", "tool"),
        ("hooks-logging", "hook"),
        ("context-simple", "context"),
        ("tool-provider", "provider"),
        ("loop-tool", "orchestrator"),
        ("LOOP-Basic", "orchestrator"),
        ("something", "tool"),
    ],
)
def test_the_first_known_word_in_an_id_says_its_type(module_id: str, module_type: str) -> None:
    assert type_from_id(module_id) == module_type


def imported_type(package: Path, module_id: str) -> str:
    return module_type_of(import_module_from_path(package), module_id)


def read_type(package: Path, module_id: str) -> str:
    file = package / "__init__.py"
    return module_type_in(ast.parse(file.read_text()), module_id, file)


either_way = pytest.mark.parametrize("type_of", [imported_type, read_type])
TypeOf = Callable[[Path, str], str]


@either_way
@pytest.mark.parametrize("declared", ["orchestrator", "provider", "tool", "hook", "context", "resolver"])
@pytest.mark.parametrize("name", ["__amplifier_module_type__", "__amplifier_module_type__: str"])
def test_a_declared_type_beats_the_id(tmp_path: Path, type_of: TypeOf, declared: str, name: str) -> None:
    package = write_package(tmp_path / "declaring", __init__=f"{name} = {declared!r}")

    assert type_of(package, "loop-basic") == declared


@either_way
def test_the_last_declaration_counts(tmp_path: Path, type_of: TypeOf) -> None:
    name = "__amplifier_module_type__"
    lines = (f"{name} = 'tool'", f"{name} = 'hook'", f"{name}: str")
    package = write_package(tmp_path / "declaring", __init__="\n".join(lines))

    assert type_of(package, "loop-basic") == "hook"


@either_way
@pytest.mark.parametrize("declared", ["None", "''", "0"])
def test_an_empty_declaration_leaves_the_type_to_the_id(tmp_path: Path, type_of: TypeOf, declared: str) -> None:
    package = write_package(tmp_path / "declaring", __init__=f"__amplifier_module_type__ = {declared}")

    assert type_of(package, "loop-basic") == "orchestrator"


@either_way
@pytest.mark.parametrize(("declared", "shown"), [("'agent'", "agent"), ("['tool']", "['tool']"), ("7", "7")])
def test_an_unknown_declared_type_is_refused_with_the_known_ones(
    tmp_path: Path, type_of: TypeOf, declared: str, shown: str
) -> None:
    package = write_package(tmp_path / "declaring", __init__=f"__amplifier_module_type__ = {declared}")

    with pytest.raises(ModuleValidationError) as refusal:
        type_of(package, "tool-x")

    assert refusal.value.reason_code == "invalid_module_metadata"
    assert str(refusal.value).startswith(
        f"Module 'tool-x' has unknown type '{shown}'. Valid types: "
        "['orchestrator', 'provider', 'tool', 'hook', 'context', 'resolver']"
    )
    assert str(package / "__init__.py") in str(refusal.value)


def test_a_declaration_that_only_an_import_can_tell_is_left_to_the_id(tmp_path: Path) -> None:
    package = write_package(tmp_path / "declaring", __init__="__amplifier_module_type__ = 'ho' + 'ok'.strip()")

    assert (imported_type(package, "loop-basic"), read_type(package, "loop-basic")) == ("hook", "orchestrator")


@pytest.mark.parametrize("name", ["acme", "provider-acme"])
def test_a_provider_goes_by_its_module_id_and_by_its_name(name: str) -> None:
    assert (provider_name(name), provider_module_id(name)) == ("acme", "provider-acme")


def test_the_package_named_after_the_id_comes_first(tmp_path: Path) -> None:
    write_package(tmp_path)
    write_package(tmp_path / "amplifier_module_a")
    write_package(tmp_path / "other")
    write_entry_points(tmp_path, tool_x="other:mount")
    named = write_package(tmp_path / "amplifier_module_tool_x")

    assert find_package(tmp_path, "tool-x") == named


def test_the_package_of_the_entry_point_named_like_the_id_comes_second(tmp_path: Path) -> None:
    write_package(tmp_path)
    write_package(tmp_path / "amplifier_module_a")
    declared = write_package(tmp_path / "my_tool")
    write_entry_points(tmp_path, my_tool="my_tool:mount", another="amplifier_module_a:mount")

    assert find_package(tmp_path, "my-tool") == declared


def test_the_only_entry_point_counts_whatever_its_name(tmp_path: Path) -> None:
    write_package(tmp_path)
    declared = write_package(tmp_path / "my_tool")
    write_entry_points(tmp_path, something_else="my_tool:mount")

    assert find_package(tmp_path, "tool-x") == declared


def test_the_folder_itself_comes_third(tmp_path: Path) -> None:
    write_package(tmp_path)
    write_package(tmp_path / "amplifier_module_a")
    write_entry_points(tmp_path, one="missing_one:mount", two="missing_two:mount")

    assert find_package(tmp_path, "tool-x") == tmp_path


def test_the_first_subdirectory_with_the_prefix_comes_last(tmp_path: Path) -> None:
    (tmp_path / "amplifier_module_a").mkdir()
    write_package(tmp_path / "amplifier_module_c")
    expected = write_package(tmp_path / "amplifier_module_b")

    assert find_package(tmp_path, "tool-x") == expected


@pytest.mark.parametrize(
    "pyproject", ["not toml [", "project = 3", '[project]\nentry-points = "x"', "\ud800", '[project]\nname = "x"']
)
def test_a_broken_pyproject_counts_as_absent(tmp_path: Path, pyproject: str) -> None:
    write_package(tmp_path)
    (tmp_path / "pyproject.toml").write_bytes(pyproject.encode("utf-8", "surrogatepass"))

    assert find_package(tmp_path, "tool-x") == tmp_path


@pytest.mark.parametrize("target", ["../outside:mount", "/etc:mount", ":mount", "", "a b:mount"])
def test_an_entry_point_cannot_lead_out_of_the_folder(tmp_path: Path, target: str) -> None:
    write_package(tmp_path / "outside")
    write_entry_points(tmp_path / "inside", tool_x=target)

    assert find_package(tmp_path / "inside", "tool-x") is None


def test_a_folder_without_a_package_has_none(tmp_path: Path) -> None:
    (tmp_path / "amplifier_module_tool_x").mkdir()
    (tmp_path / "module.py").write_text("async def mount(coordinator, config): ...")

    assert find_package(tmp_path, "tool-x") is None


def test_a_missing_folder_has_no_package(tmp_path: Path) -> None:
    assert find_package(tmp_path / "missing", "tool-x") is None


@pytest.mark.parametrize(
    ("directory", "module_id"),
    [
        ("amplifier-module-tool-bash", "tool-bash"),
        ("amplifier_module_tool_web_search", "tool-web-search"),
        ("tool-bash", "tool-bash"),
        ("my_tool", "my_tool"),
    ],
)
def test_without_an_entry_point_the_directory_names_the_module(tmp_path: Path, directory: str, module_id: str) -> None:
    (tmp_path / directory).mkdir()

    assert module_id_of(tmp_path / directory) == module_id


def test_the_only_entry_point_names_the_module(tmp_path: Path) -> None:
    write_entry_points(tmp_path / "checkout", loop_mine="mine:mount")

    assert module_id_of(tmp_path / "checkout") == "loop-mine"


def test_of_two_entry_points_neither_names_the_module(tmp_path: Path) -> None:
    write_entry_points(tmp_path / "amplifier-module-tool-two", a="a:mount", b="b:mount")

    assert module_id_of(tmp_path / "amplifier-module-tool-two") == "tool-two"


def test_the_current_directory_has_an_id_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amplifier-module-tool-here").mkdir()
    monkeypatch.chdir(tmp_path / "amplifier-module-tool-here")

    assert module_id_of(Path()) == "tool-here"


def test_a_linked_folder_is_named_by_the_link(tmp_path: Path) -> None:
    (tmp_path / "9f3c").mkdir()
    link = tmp_path / "amplifier-module-tool-linked"
    link.symlink_to(tmp_path / "9f3c")

    assert module_id_of(link) == "tool-linked"


def test_a_package_is_imported_under_its_directory_name(tmp_path: Path) -> None:
    package = write_package(tmp_path / "imported_one", __init__="from . import part", part="VALUE = 3")
    before = list(sys.path)

    module = import_module_from_path(package)

    assert (module.__name__, module.part.VALUE, module is sys.modules["imported_one"]) == ("imported_one", 3, True)
    assert sys.path == before


def test_a_file_is_imported_under_its_stem(tmp_path: Path) -> None:
    (tmp_path / "single_file.py").write_text("VALUE = 4")

    assert import_module_from_path(str(tmp_path / "single_file.py")) is sys.modules["single_file"]


def test_importing_the_same_file_again_gives_the_same_module(tmp_path: Path) -> None:
    package = write_package(tmp_path / "imported_one")

    assert import_module_from_path(package) is import_module_from_path(package)


def test_the_same_file_through_a_link_is_the_same_module(tmp_path: Path) -> None:
    package = write_package(tmp_path / "real" / "imported_one")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert import_module_from_path(package) is import_module_from_path(tmp_path / "link" / "imported_one")


def test_a_second_package_of_the_same_name_is_refused(tmp_path: Path) -> None:
    first, second = write_package(tmp_path / "one" / "twin"), write_package(tmp_path / "two" / "twin")
    import_module_from_path(first)

    with pytest.raises(ImportError) as refusal:
        import_module_from_path(second)

    assert str(refusal.value) == (
        f"Refusing to import 'twin' from {second / '__init__.py'}: it is already loaded from {first / '__init__.py'}"
    )


def test_a_cached_submodule_of_another_package_is_refused(tmp_path: Path) -> None:
    first = write_package(tmp_path / "one" / "twin", __init__="from . import part", part="")
    second = write_package(tmp_path / "two" / "twin", part="")
    import_module_from_path(first)
    del sys.modules["twin"]

    with pytest.raises(ImportError) as refusal:
        import_module_from_path(second)

    assert str(refusal.value) == (
        f"Refusing to import 'twin' from {second / '__init__.py'}: "
        f"cached submodule 'twin.part' is from {first / 'part.py'}"
    )


def test_a_cached_submodule_of_the_same_package_is_kept_also_through_a_link(tmp_path: Path) -> None:
    package = write_package(tmp_path / "real" / "twin", __init__="from . import part", part="")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    part = import_module_from_path(package).part
    del sys.modules["twin"]

    assert import_module_from_path(tmp_path / "link" / "twin").part is part


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("from . import part\nraise RuntimeError('no')", RuntimeError),
        ("from . import part\nimport not_there_at_all", ModuleNotFoundError),
        ("from . import part\ndef (", SyntaxError),
        ("from . import part\nimport sys\nsys.exit(3)", SystemExit),
    ],
)
def test_a_failed_import_leaves_nothing_behind(tmp_path: Path, text: str, error: type[BaseException]) -> None:
    package = write_package(tmp_path / "failing", __init__=text, part="")
    path, modules = list(sys.path), set(sys.modules)

    with pytest.raises(error):
        import_module_from_path(package)

    assert (sys.path, set(sys.modules)) == (path, modules)


@pytest.mark.parametrize("name", ["bare_directory", "notes.txt", "missing.py"])
def test_what_is_no_module_is_refused_and_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / "bare_directory").mkdir()
    (tmp_path / "notes.txt").write_text("plain text")
    modules = set(sys.modules)

    with pytest.raises(ImportError):
        import_module_from_path(tmp_path / name)

    assert set(sys.modules) == modules


def test_a_package_that_shares_its_name_with_an_installed_one_wins_while_it_is_imported(tmp_path: Path) -> None:
    package = write_package(tmp_path / "wave", __init__="MINE = True")
    sys.modules.pop("wave", None)

    assert import_module_from_path(package).MINE


def test_a_private_copy_has_module_level_state_of_its_own(tmp_path: Path) -> None:
    package = write_package(tmp_path / "counting", __init__="from . import state", state="calls = []")
    original = import_module_from_path(package)

    with private_copy(package) as copy:
        copy.state.calls.append("copied")

    assert (original.state.calls, copy.state.calls) == ([], ["copied"])


def test_afterwards_the_process_sees_the_modules_it_saw_before(tmp_path: Path) -> None:
    package = write_package(tmp_path / "counting", __init__="from . import state", state="")
    original = import_module_from_path(package)

    with private_copy(package) as copy:
        assert sys.modules["counting"] is copy

    assert sys.modules["counting"] is original
    assert sys.modules["counting.state"] is original.state


def test_a_private_copy_of_a_package_nobody_imported_leaves_nothing_behind(tmp_path: Path) -> None:
    package = write_package(tmp_path / "counting", __init__="from . import state", state="", late="")
    path, modules = list(sys.path), set(sys.modules)

    with private_copy(package):
        __import__("counting.late")

    assert (sys.path, set(sys.modules)) == (path, modules)


def test_a_private_copy_finds_itself_by_relative_and_by_absolute_imports(tmp_path: Path) -> None:
    package = write_package(
        tmp_path / "selfish",
        __init__="from . import part as relative\nimport selfish.part as absolute\n",
        part="def late():\n    from selfish import other\n    from . import other as same\n    return other is same\n",
        other="",
    )
    original = import_module_from_path(package)

    with private_copy(package) as copy:
        assert copy.relative is copy.absolute
        assert copy.relative is not original.relative
        assert copy.relative.late()


def test_a_private_copy_that_cannot_be_imported_leaves_the_original_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_package(
        tmp_path / "flaky", __init__="import os\nif 'FLAKY' in os.environ: raise ValueError('flaky')"
    )
    original = import_module_from_path(package)
    monkeypatch.setenv("FLAKY", "1")

    with pytest.raises(ValueError, match="flaky"), private_copy(package):
        pass

    assert sys.modules["flaky"] is original


@pytest.mark.parametrize(
    ("file", "asked", "found"),
    [
        ("amplifier_module_tool_x/__init__.py", ".", "amplifier_module_tool_x"),
        ("src/amplifier_module_tool_x/__init__.py", ".", "src/amplifier_module_tool_x"),
        ("amplifier_module_tool_x.py", ".", "amplifier_module_tool_x.py"),
        ("amplifier_module_tool_x/__init__.py", "amplifier_module_tool_x", "amplifier_module_tool_x"),
        ("src/other/tool/__init__.py", ".", "src/other"),
        ("amplifier_module_tool_y/__init__.py", ".", None),
    ],
)
def test_the_code_of_a_module_is_what_its_id_or_its_entry_point_names(
    tmp_path: Path, file: str, asked: str, found: str | None
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[project.entry-points."amplifier.modules"]\ntool-x = "other.tool:mount"\n'
    )

    assert find_code(tmp_path / asked, "tool-x") == (tmp_path / found if found else None)
