"""Which files of a collection are profiles, and what they are called."""

from collections.abc import Callable
from pathlib import Path

import pytest
from other_user import as_another_user, place_of_another_user

from amplifierd.profiles.collections.extraction import Discovery, discover, hash_texts


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Discovery]:
    """Write files and return what a collection named `team` finds in them."""

    def find(files: dict[str, str]) -> Discovery:
        for name, content in files.items():
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return discover(tmp_path / "root", "team", boundary=tmp_path / "root")

    return find


def paths(found: Discovery) -> dict[str, str]:
    return {name: document.path.as_posix() for name, document in found.profiles.items()}


def codes(found: Discovery) -> list[tuple[str, str]]:
    return [(issue.code, str(issue.file)) for issue in found.issues]


def test_a_profile_without_a_name_is_called_after_its_place(
    find: Callable[..., Discovery], text: Callable[..., str]
) -> None:
    found = find(
        {
            "profile.md": text(),
            "base/profile.md": text(),
            "profiles/deep/profile.md": text(),
            "profiles/flat.md": text(),
            "top.md": text(),
        }
    )

    assert paths(found) == {
        "team": "profile.md",
        "base": "base/profile.md",
        "deep": "profiles/deep/profile.md",
        "flat": "profiles/flat.md",
        "top": "top.md",
    }
    assert found.issues == ()


def test_the_name_in_the_file_outranks_its_place(find: Callable[..., Discovery], text: Callable[..., str]) -> None:
    found = find({"profiles/file-name.md": text("real-name")})

    assert paths(found) == {"real-name": "profiles/file-name.md"}


def test_the_first_definition_of_a_name_wins_and_later_ones_are_reported(
    find: Callable[..., Discovery], text: Callable[..., str]
) -> None:
    found = find(
        {
            "b/profile.md": text("same"),
            "a.md": text("same"),
            "profiles/a.md": text("same"),
            "profiles/z/profile.md": text("same"),
        }
    )

    assert paths(found) == {"same": "b/profile.md"}
    assert codes(found) == [
        ("duplicate-profile", "profiles/z/profile.md"),
        ("duplicate-profile", "profiles/a.md"),
        ("duplicate-profile", "a.md"),
    ]


def test_readmes_hidden_paths_and_other_markdown_are_passed_over(
    find: Callable[..., Discovery], text: Callable[..., str]
) -> None:
    found = find(
        {
            "README.md": text("readme"),
            "profiles/readme.md": text("readme"),
            ".hidden/profile.md": text("hidden"),
            "profiles/.draft.md": text("draft"),
            "CONTRIBUTING.md": "# How to help\n",
            "agent.md": "---\nname: helper\ntools: bash\n---\nYou help.\n",
            "profiles/notes.md": "Notes.\n",
            "deep/er/profile.md": text("deeper"),
            "profiles/text.txt": text("text"),
        }
    )

    assert (paths(found), found.issues) == ({}, ())


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x/profile.md", "No header.\n", "no-frontmatter"),
        ("x/profile.md", "---\nname: x\n---\n", "profile-section-missing"),
        ("profiles/x.md", "---\nprofile:\n  name: x\n", "unclosed-frontmatter"),
        ("profiles/x.md", "---\nprofile: [\n---\n", "invalid-yaml"),
        ("profiles/x.md", "---\n- x\n---\n", "frontmatter-not-mapping"),
        ("profiles/x.md", "---\nprofile:\n  name: x\n  schema_version: 2\n---\n", "version-missing"),
        ("profiles/x.md", '---\nprofile: {name: ../x, version: "1", schema_version: 2}\n---\n', "name-invalid"),
        ("profiles/X Y.md", '---\nprofile: {version: "1", schema_version: 2}\n---\n', "name-invalid"),
        ("profiles/x.md", '---\nprofile: {version: "1", schema_version: 1}\n---\n', "schema-version-unsupported"),
        ("profiles/x.md", '---\nprofile: {version: "1", schema_version: 2}\ntools: bash\n---\n', "wrong-type"),
    ],
)
def test_a_malformed_header_is_reported_and_does_not_stop_the_others(
    find: Callable[..., Discovery], text: Callable[..., str], name: str, content: str, code: str
) -> None:
    found = find({name: content, "profiles/good.md": text()})

    assert paths(found) == {"good": "profiles/good.md"}
    assert codes(found) == [(code, name)]


def test_a_profile_that_is_only_incomplete_is_taken(find: Callable[..., Discovery]) -> None:
    found = find({"parent.md": '---\nprofile: {version: "1", schema_version: 2}\n---\n'})

    assert paths(found) == {"parent": "parent.md"}


def test_a_link_out_of_the_collection_is_reported_and_not_read(
    tmp_path: Path, find: Callable[..., Discovery], text: Callable[..., str]
) -> None:
    (tmp_path / "secret.md").write_text(text("secret"))
    find({"good.md": text()})
    (tmp_path / "root" / "stolen.md").symlink_to(tmp_path / "secret.md")

    found = discover(tmp_path / "root", "team", boundary=tmp_path / "root")

    assert (list(found.profiles), codes(found)) == (["good"], [("unsafe-path", "stolen.md")])


def test_files_that_are_not_text_are_reported(tmp_path: Path, find: Callable[..., Discovery]) -> None:
    find({"profiles/x.md": ""})
    (tmp_path / "root" / "profiles" / "bytes.md").write_bytes(b"---\n\xff\xfe\n---\n")

    found = discover(tmp_path / "root", "team", boundary=tmp_path / "root")

    assert codes(found) == [("unreadable", "profiles/bytes.md")]


def test_windows_line_ends_and_a_byte_order_mark_are_read(
    find: Callable[..., Discovery], text: Callable[..., str]
) -> None:
    found = find({"profiles/a.md": "\ufeff" + text("a").replace("\n", "\r\n")})

    assert (paths(found), found.issues) == ({"a": "profiles/a.md"}, ())


def test_a_file_that_may_not_be_read_is_reported_and_the_others_count(text: Callable[..., str]) -> None:
    with place_of_another_user() as root:
        for stem in ("base", "closed"):
            (root / f"{stem}.md").write_text(text())
        assert {*discover(root, "team", boundary=root).profiles} == {"base", "closed"}
        before = hash_texts(root)
        (root / "closed.md").chmod(0)

        with as_another_user():
            found, after = discover(root, "team", boundary=root), hash_texts(root)

    assert ({*found.profiles}, codes(found)) == ({"base"}, [("unreadable", "closed.md")])
    assert found.broken == {"closed": "closed.md"}
    assert after != before
