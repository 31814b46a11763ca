"""Where a bundle's context files and agents are."""

from pathlib import Path

import pytest

from amplifier_foundation.bundle import Bundle, Origin


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_declared_context_file_is_found_even_if_it_is_not_there(tmp_path: Path) -> None:
    bundle = Bundle(name="b", context={"guide": Path("/missing.md")}, base_path=tmp_path)

    assert bundle.resolve_context_path("guide") == Path("/missing.md")


def test_an_undeclared_context_file_is_found_below_the_bundle_if_it_is_there(tmp_path: Path) -> None:
    file = write(tmp_path / "context/a.md")
    bundle = Bundle(name="b", base_path=tmp_path)

    assert bundle.resolve_context_path("context/a.md") == file
    assert bundle.resolve_context_path("/context/a.md") == file
    assert bundle.resolve_context_path("") == tmp_path
    assert bundle.resolve_context_path("context/b.md") is None
    assert bundle.resolve_context_path("x" * 5_000) is None
    assert Bundle(name="b").resolve_context_path("context/a.md") is None


def test_an_agent_is_found_by_its_namespace(tmp_path: Path) -> None:
    foreign, own = write(tmp_path / "f/agents/one.md"), write(tmp_path / "o/agents/two.md")
    bundle = Bundle(name="own", base_path=tmp_path / "o", source_base_paths={"far": tmp_path / "f"})

    assert bundle.resolve_agent_path("far:one") == foreign
    assert bundle.resolve_agent_path("own:two") == own
    assert bundle.resolve_agent_path("two") == own
    assert bundle.resolve_agent_path("two.md") == own
    assert bundle.resolve_agent_path("far:two") is None
    assert bundle.resolve_agent_path("unknown:one") is None


def test_a_namespace_without_the_agent_falls_back_to_the_bundles_own_directory(tmp_path: Path) -> None:
    own = write(tmp_path / "o/agents/one.md")
    bundle = Bundle(name="own", base_path=tmp_path / "o", source_base_paths={"own": tmp_path / "elsewhere"})

    assert bundle.resolve_agent_path("own:one") == own


def test_an_agent_of_an_included_bundle_is_found_without_namespace(tmp_path: Path) -> None:
    write(tmp_path / "first/agents/helper.md")
    declared = write(tmp_path / "second/agents/helper.md")
    bundle = Bundle(
        name="own",
        base_path=tmp_path / "o",
        source_base_paths={"first": tmp_path / "first", "second": tmp_path / "second"},
        origins={"agent:helper": [Origin("second", None)]},
    )

    assert bundle.resolve_agent_path("helper") == declared
    bundle.origins.clear()
    assert bundle.resolve_agent_path("helper") == tmp_path / "first/agents/helper.md"
    own = write(tmp_path / "o/agents/helper.md")
    assert bundle.resolve_agent_path("helper") == own


def test_pending_context_is_placed_once_its_namespace_is_known() -> None:
    bundle = Bundle(
        name="own",
        base_path=Path("/own"),
        source_base_paths={"far": Path("/far")},
        _pending_context={reference: reference for reference in ["far:a.md", "own:b.md", "later:c.md"]},
    )

    bundle.resolve_pending_context()

    assert bundle.context == {"far:a.md": Path("/far/a.md"), "own:b.md": Path("/own/b.md")}
    assert bundle._pending_context == {"later:c.md": "later:c.md"}
    bundle.source_base_paths["later"] = Path("/later")
    bundle.resolve_pending_context()
    bundle.resolve_pending_context()
    assert bundle.context["later:c.md"] == Path("/later/c.md")
    assert not bundle._pending_context


@pytest.mark.parametrize("instruction", ["do", None])
def test_the_system_instruction_is_the_instruction(instruction: str | None) -> None:
    assert Bundle(name="b", instruction=instruction).get_system_instruction() == instruction
