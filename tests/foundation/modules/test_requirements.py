"""What a folder requires, and when the host clearly has it."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from amplifier_foundation.modules.requirements import is_clearly_met, name_of, normalise, read_requirements

numbers = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
clauses = st.builds(
    lambda operator, version, star: f"{operator}{version}{star if operator in ('==', '!=') else ''}",
    st.sampled_from(["==", "!=", "<=", ">=", "<", ">", "~="]),
    numbers,
    st.sampled_from(["", ".*"]),
)


@given(st.lists(clauses, max_size=3), numbers)
def test_a_requirement_is_clearly_met_exactly_when_the_standard_says_so(parts: list[str], version: str) -> None:
    if any(part.startswith("~=") and "." not in part for part in parts):
        return
    specifier = ",".join(parts)

    assert is_clearly_met(f"thing{specifier}", version) == (version in SpecifierSet(specifier))


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        ("thing[extra]>=1", "2.0"),
        ("thing>=1; python_version < '4'", "2.0"),
        ("thing @ https://host/thing.whl", "2.0"),
        ("thing>=1", "2.0rc1"),
        ("thing>=1rc1", "2.0"),
        ("thing===2.0", "2.0"),
    ],
)
def test_what_is_not_plain_to_see_is_left_to_the_installer(requirement: str, version: str) -> None:
    assert not is_clearly_met(requirement, version)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Foo_Bar  >= 1 , < 2", "foo-bar>=1,<2"),
        ("foo.bar[x, y]", "foo-bar[x,y]"),
        ("Foo ; python_version<'3.9'", "foo; python_version<'3.9'"),
        ("Foo @ git+https://host/a@v1 ; extra == 'x'", "foo @ git+https://host/a@v1; extra == 'x'"),
    ],
)
def test_a_requirement_has_one_normal_form(written: str, expected: str) -> None:
    assert normalise(written) == expected
    assert normalise(expected) == expected
    assert name_of(written) == name_of(expected)


def test_the_project_comes_before_the_requirements_file(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("other\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["one>=1", "One >= 1"]\n')

    assert read_requirements(tmp_path) == ("one>=1",)


def test_a_requirements_file_may_have_comments_and_include_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pyproject.toml").write_text('[build-system]\nrequires = ["hatchling"]\n')
    (tmp_path / "requirements.txt").write_text("# all\none>=1 # why\n-r more.txt\n--no-deps\n./local\ntwo \\\n >= 2\n")
    (tmp_path / "more.txt").write_text("three\n-r requirements.txt\n")

    with caplog.at_level(logging.WARNING):
        assert read_requirements(tmp_path) == ("one>=1", "three", "two>=2")
    assert "--no-deps" in caplog.text
    assert "./local" in caplog.text


@pytest.mark.parametrize("transport", ["rust", "wasm", "grpc"])
def test_a_module_that_is_not_python_requires_nothing(tmp_path: Path, transport: str) -> None:
    (tmp_path / "amplifier.toml").write_text(f'[module]\ntransport = "{transport}"\n')
    (tmp_path / "requirements.txt").write_text("one\n")

    assert read_requirements(tmp_path) == ()


def test_an_unreadable_file_is_warned_about_and_counts_as_absent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "amplifier.toml").write_text("[module\n")
    (tmp_path / "requirements.txt").write_text("one\n")

    with caplog.at_level(logging.WARNING):
        assert read_requirements(tmp_path) == ("one",)
    assert "amplifier.toml" in caplog.text
