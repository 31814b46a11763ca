"""A date that is none spoils neither a collection nor the home."""

from pathlib import Path
from typing import Any


async def test_an_entry_with_an_impossible_date_is_used_and_reported_with_its_line(
    home: Any, register: Any, repository: Any, new_repository: Any
) -> None:
    register(
        f"collections:\n  one:\n    source: {repository.source}\n    installed_at: 2026-02-30\n"
        f"  two: {new_repository('other').source}\n"
    )

    results = await home.collections.sync(["one", "two"])

    assert {name: result.status for name, result in results.items()} == {"one": "synced", "two": "synced"}
    (warning,) = home.collections.get("one").warnings
    assert (warning.severity, warning.line, warning.file) == ("warning", 4, home.paths.collections_file)
    assert "2026-02-30" in warning.message


async def test_the_file_of_such_an_entry_can_be_changed(home: Any, register: Any, repository: Any) -> None:
    register(f"collections:\n  one:\n    source: {repository.source}\n    installed_at: 2026-02-30\n")

    await home.collections.update("one", enabled=False)

    assert "installed_at: '2026-02-30'" in home.paths.collections_file.read_text()
    assert home.collections.get("one").enabled is False


async def test_a_profile_with_an_impossible_date_is_one_profile(home: Any, new_repository: Any, text: Any) -> None:
    files = {
        "profiles/a.md": text("a", extra="installed_at: 2026-02-30"),
        "profiles/b.md": text("b"),
        "profiles/c.md": text("c", extra="x: !!int no"),
    }
    await home.collections.add("team", new_repository("origin", files).source)

    assert [str(each) for each in home.collections.profile_ids() if each.collection == "team"] == ["team/a", "team/b"]
    (broken,) = (issue for issue in home.collections.get("team").warnings if issue.code == "invalid-yaml")
    assert (broken.file, broken.line) == (Path("profiles/c.md"), 8)
