"""Mentions in a home."""

from pathlib import Path

import pytest

from amplifierd.sessions.conversation.mentions import ProfileMentionResolver, load_mentioned


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "build/contexts/docs/USAGE.md": "usage",
        "build/contexts/docs/sub/EXTRA.md": "extra, see @NEAR.md",
        "build/contexts/docs/sub/NEAR.md": "near",
        "build/contexts/secret.md": "secret",
        "collection/context/shared.md": "shared",
        "project/notes.md": "notes",
        "project/a b.md": "spaces",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path.resolve()


def resolver(root: Path, *, allow_home: bool = False) -> ProfileMentionResolver:
    return ProfileMentionResolver(
        contexts_dir=root / "build" / "contexts",
        collection_roots={"foundation": root / "collection"},
        working_dir=root / "project",
        allow_home=allow_home,
    )


@pytest.mark.parametrize(
    ("mention", "expected"),
    [
        ("@docs:USAGE.md", "build/contexts/docs/USAGE.md"),
        ("@docs:context/USAGE.md", "build/contexts/docs/USAGE.md"),
        ("@docs:sub/EXTRA.md.", "build/contexts/docs/sub/EXTRA.md"),
        ("@foundation:context/shared.md", "collection/context/shared.md"),
        ("@notes.md", "project/notes.md"),
        ("@./notes", "project/notes.md"),
        ("@docs:", "build/contexts/docs"),
    ],
)
def test_a_mention_leads_into_contexts_collections_and_the_working_directory(
    root: Path, mention: str, expected: str
) -> None:
    assert resolver(root).resolve(mention) == root / expected


@pytest.mark.parametrize(
    ("mention", "reason"),
    [
        ("@docs:../secret.md", "path_traversal_rejected"),
        ("@../build/contexts/secret.md", "path_traversal_rejected"),
        ("@foundation:../project/notes.md", "path_traversal_rejected"),
        ("@unknown:x.md", "bundle_not_registered"),
        ("@docs:nothing.md", "not_found"),
        ("@~/x.md", "not_found"),
        ("@..:secret.md", "not_found"),
    ],
)
async def test_a_mention_never_leads_out_of_its_root(root: Path, mention: str, reason: str) -> None:
    loaded = await load_mentioned(f"see {mention} now", resolver(root))

    assert loaded.messages == ()
    assert loaded.unresolved == ((mention, reason),)


def test_a_link_does_not_lead_out(root: Path) -> None:
    (root / "project" / "link.md").symlink_to(root / "build" / "contexts" / "secret.md")

    assert resolver(root).resolve("@link.md") is None


def test_an_absolute_path_is_not_the_working_directory(root: Path) -> None:
    assert resolver(root).resolve(f"@{root}/build/contexts/secret.md") is None
    assert resolver(root).resolve(f"@{root}/project/notes.md") == root / "project" / "notes.md"


def test_the_home_directory_is_read_only_when_allowed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "project"))

    assert resolver(root).resolve("@~/notes.md") is None
    assert resolver(root, allow_home=True).resolve("@~/notes.md") == root / "project" / "notes.md"


async def test_each_content_is_one_developer_message_that_names_its_mentions(root: Path) -> None:
    (root / "project" / "copy.md").write_text("notes", encoding="utf-8")

    loaded = await load_mentioned('@notes.md @copy.md @"a b.md"', resolver(root))

    first, second = loaded.messages
    work = root / "project"
    assert first["role"] == "developer"
    assert first["content"] == f"[Context from @notes.md → {work}/notes.md, @copy.md → {work}/copy.md]\n\nnotes"
    assert first["source_mentions"] == ["@notes.md", "@copy.md"]
    assert len(first["content_hash"]) == 64
    assert second["content"].endswith("\n\nspaces")


async def test_mentions_inside_of_a_file_count_from_that_file(root: Path) -> None:
    loaded = await load_mentioned("@docs:sub/EXTRA.md", resolver(root))

    assert [message["content"].rpartition("\n")[2] for message in loaded.messages] == ["extra, see @NEAR.md", "near"]


async def test_limits_are_kept(root: Path) -> None:
    loaded = await load_mentioned("@notes.md @docs:USAGE.md", resolver(root), max_files=1)
    large = await load_mentioned("@notes.md", resolver(root), max_file_bytes=2)

    assert [reason for _, reason in loaded.unresolved] == ["limit_reached"]
    assert [reason for _, reason in large.unresolved] == ["too_large"]


async def test_mentions_inside_of_a_file_are_credited_and_reported_like_others(root: Path) -> None:
    docs = root / "build" / "contexts" / "docs"
    (docs / "INDEX.md").write_text("@./USAGE.md @../secret.md @large.md", encoding="utf-8")
    (docs / "large.md").write_text("x" * 100, encoding="utf-8")

    loaded = await load_mentioned("@docs:INDEX.md", resolver(root), max_file_bytes=50)

    nested = loaded.messages[1]
    assert nested["content"] == f"[Context from @./USAGE.md → {docs}/USAGE.md]\n\nusage"
    assert nested["source_mentions"] == ["@./USAGE.md"]
    assert dict(loaded.unresolved) == {"@../secret.md": "path_traversal_rejected", "@large.md": "unknown"}
