"""Bundle files: formats, and files that mean no good."""

import os
from pathlib import Path
from types import ModuleType

import pytest

import amplifier_foundation.bundle
from amplifier_foundation.bundle.bundle_file import read_bundle
from amplifier_foundation.exceptions import BundleLoadError, BundleValidationError


def file(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_markdown_has_its_instruction_in_the_body(tmp_path: Path) -> None:
    bundle = read_bundle(file(tmp_path, "x.md", "---\nbundle:\n  name: x\n---\n\n  Do it.\n\n"))

    assert (bundle.name, bundle.instruction, bundle.base_path) == ("x", "Do it.", tmp_path)


def test_markdown_without_front_matter_is_all_instruction(tmp_path: Path) -> None:
    bundle = read_bundle(file(tmp_path, "x.md", "Do it.\n"))

    assert (bundle.name, bundle.instruction) == ("", "Do it.")


def test_a_blank_body_is_no_instruction(tmp_path: Path) -> None:
    assert read_bundle(file(tmp_path, "x.md", "---\nbundle: {name: x}\n---\n \n\n")).instruction is None


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_yaml_has_no_instruction(tmp_path: Path, suffix: str) -> None:
    bundle = read_bundle(file(tmp_path, f"x.{suffix}", "bundle: {name: x}\ninstruction: no\n"))

    assert (bundle.name, bundle.instruction, bundle.base_path) == ("x", None, tmp_path)


@pytest.mark.parametrize("name", ["x.yaml", "x.md"])
@pytest.mark.parametrize("content", ["", "\ufeff", "\n"])
def test_an_empty_file_is_an_empty_bundle(tmp_path: Path, name: str, content: str) -> None:
    bundle = read_bundle(file(tmp_path, name, content))

    assert (bundle.name, bundle.instruction, bundle.tools) == ("", None, [])


def test_a_directory_means_its_markdown_file_before_its_yaml_file(tmp_path: Path) -> None:
    file(tmp_path, "bundle.yaml", "bundle: {name: from-yaml}")
    assert read_bundle(tmp_path).name == "from-yaml"

    file(tmp_path, "bundle.md", "---\nbundle: {name: from-markdown}\n---\n")
    assert read_bundle(tmp_path).name == "from-markdown"


def test_a_directory_without_bundle_file_is_no_bundle(tmp_path: Path) -> None:
    file(tmp_path, "bundle.yml", "bundle: {name: x}")

    with pytest.raises(BundleLoadError, match=r"missing bundle\.md or bundle\.yaml"):
        read_bundle(tmp_path)


def test_another_suffix_is_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(BundleLoadError, match="Unknown bundle format"):
        read_bundle(file(tmp_path, "x.json", "{}"))


@pytest.mark.parametrize("name", ["x.md", "x.yaml"])
def test_byte_order_marks_and_windows_line_ends_are_fine(tmp_path: Path, name: str) -> None:
    text = "bundle:\r\n  name: x\r\n"
    content = f"---\r\n{text}---\r\nDo it.\r\n" if name == "x.md" else text

    bundle = read_bundle(file(tmp_path, name, f"\ufeff{content}"))

    assert bundle.name == "x"
    assert bundle.instruction == ("Do it." if name == "x.md" else None)


def test_an_impossible_date_is_text_and_spoils_nothing(tmp_path: Path) -> None:
    bundle = read_bundle(file(tmp_path, "x.yaml", "bundle: {name: x}\nsession: {metadata: {when: 2024-13-45}}\n"))

    assert bundle.session["metadata"] == {"when": "2024-13-45"}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bundle: [", "YAML"),
        ("bundle: {name: x}\n---\nbundle: {name: y}\n", "YAML"),
        (BOMB, "YAML"),
        ("a: &a {b: *a}", "YAML"),
        ("[" * 5_000, "YAML"),
        ("x: !!python/object/apply:os.system ['true']", "YAML"),
        ("- a\n- b\n", "root must be a mapping"),
        ("just text", "root must be a mapping"),
        ("bundle: text", "bundle must be a mapping"),
        ("context: text", "context must be a mapping"),
        ("bundle: {name: 5}", "bundle.name must be a string"),
    ],
    ids=[
        "syntax",
        "documents",
        "bomb",
        "recursion",
        "depth",
        "code",
        "list",
        "text",
        "bundle",
        "context",
        "name",
    ],
)
def test_an_unusable_file_is_reported_with_its_name_and_key(tmp_path: Path, text: str, part: str) -> None:
    path = file(tmp_path, "hostile.yaml", text)

    with pytest.raises(BundleLoadError) as error:
        read_bundle(path)

    assert str(path) in str(error.value)
    assert part in str(error.value)


def test_unusable_front_matter_is_reported_with_its_file(tmp_path: Path) -> None:
    path = file(tmp_path, "hostile.md", "---\nbundle: [\n---\nbody")

    with pytest.raises(BundleLoadError, match=r"hostile\.md is not valid YAML"):
        read_bundle(path)


def test_malformed_modules_are_reported_with_bundle_and_file(tmp_path: Path) -> None:
    path = file(tmp_path, "x.yaml", "bundle: {name: named}\ntools: {module: t}\n")

    with pytest.raises(BundleValidationError, match="malformed tools") as error:
        read_bundle(path)

    assert "named" in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleLoadError, match=r"latin\.md is not UTF-8"):
        read_bundle(file(tmp_path, "latin.md", b"---\nbundle: {name: caf\xe9}\n---\n"))


def test_fifty_megabytes_of_front_matter_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = file(tmp_path, "huge.md", "---\nbundle: {name: x}\n")
    with path.open("r+b") as huge:
        huge.truncate(50 * 1024 * 1024)  # a hole in the file: no disk is used

    with pytest.raises(BundleLoadError, match=r"huge\.md has .* bytes"):
        read_bundle(path)


def test_front_matter_too_large_for_yaml_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "large.md", "---\nx: " + "y" * (9 * 1024 * 1024) + "\n---\n")

    with pytest.raises(BundleLoadError, match=r"large\.md"):
        read_bundle(path)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")

    with pytest.raises(BundleLoadError, match="not a regular file"):
        read_bundle(tmp_path / "pipe.md")


def test_a_file_that_is_gone_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BundleLoadError, match=r"gone\.md cannot be read"):
        read_bundle(tmp_path / "gone.md")


def test_the_package_has_its_names_and_no_others() -> None:
    package: ModuleType = amplifier_foundation.bundle

    assert package.FOUNDATION_OBSERVABILITY_EVENTS == ("session:config", "mentions:resolved")
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


def test_lines_end_in_one_way_however_the_file_was_saved(tmp_path: Path) -> None:
    bundle = read_bundle(file(tmp_path, "x.md", "---\r\nbundle: {name: x}\r\n---\r\nOne\r\n\r\nTwo\r\n"))

    assert bundle.instruction == "One\n\nTwo"
