"""The older view of references: every text has an answer."""

from pathlib import Path

import pytest

from amplifier_foundation.paths import get_amplifier_home, normalize_path, resolution
from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource, named_path, parse_uri


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("git+https://h/o/r@v1#subdirectory=a/b", ("git+https", "h", "/o/r", "v1", "a/b")),
        ("git+https://h/o/r", ("git+https", "h", "/o/r", "main", "")),
        ("git+https://u:tok@h/o/r@feature/x", ("git+https", "u:tok@h", "/o/r", "feature/x", "")),
        ("git+https://h/o@x/r@v1", ("git+https", "h", "/o@x/r", "v1", "")),
        ("git+ssh://git@h/o/r", ("git+ssh", "git@h", "/o/r", "main", "")),
        ("git+git@h:o/r@v1#m", ("git+ssh", "git@h", "/o/r", "v1", "m")),
        ("git+https://h/o/r@v1#egg=x&subdirectory=a%20b", ("git+https", "h", "/o/r", "v1", "a b")),
        ("git+https://h/o/r@v1#a=b", ("git+https", "h", "/o/r", "v1", "")),
        ("zip+https://h/x@1.zip#m", ("zip+https", "h", "/x@1.zip", "", "m")),
        ("zip+file:///a/x.zip", ("zip+file", "", "/a/x.zip", "", "")),
        ("file://./rel", ("file", "", "./rel", "", "")),
        ("file:///abs/a%20b#x", ("file", "", "/abs/a%20b", "", "x")),
        ("/abs/dir#subdirectory=x", ("file", "", "/abs/dir#subdirectory=x", "", "")),
        ("./a", ("file", "", "./a", "", "")),
        ("../a", ("file", "", "../a", "", "")),
        ("https://h/p/a.md#s", ("https", "h", "/p/a.md", "", "s")),
        ("s3://bucket/key#s", ("s3", "bucket", "/key", "", "s")),
        ("pkg/sub/x", ("", "", "pkg", "", "sub/x")),
        ("name", ("", "", "name", "", "")),
        ("ns:path", ("", "", "ns:path", "", "")),
        ("", ("", "", "", "", "")),
    ],
)
def test_each_shape_has_its_parts(uri: str, parts: tuple[str, str, str, str, str]) -> None:
    assert parse_uri(uri) == ParsedURI(*parts)


def test_a_missing_ref_prints_main_and_is_known_to_be_missing() -> None:
    missing, written = parse_uri("git+https://h/o/r"), parse_uri("git+https://h/o/r@main")

    assert (missing.ref, missing.written_ref) == ("main", None)
    assert (written.ref, written.written_ref) == ("main", "main")
    assert missing == written
    assert ParsedURI("git+https", "h", "/o/r", "v1", "").written_ref == "v1"
    assert [parse_uri(uri).written_ref for uri in ("/a", "https://h/p", "name", "zip+file:///a.zip")] == [None] * 4


def test_a_query_is_kept_beside_the_path() -> None:
    parsed = parse_uri("https://h/p?a=1&b=2#x")

    assert (parsed.path, parsed.query, parsed.subpath) == ("/p", "a=1&b=2", "x")
    assert parsed == parse_uri("https://h/p#x")


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("git+https://h/r", "is_git"),
        ("git://h/r", "is_git"),
        ("/a", "is_file"),
        ("file:///a", "is_file"),
        ("http://h", "is_http"),
        ("https://h", "is_http"),
        ("zip+https://h/x", "is_zip"),
        ("name", "is_package"),
    ],
)
def test_a_uri_is_of_one_kind(uri: str, kind: str) -> None:
    parsed = parse_uri(uri)

    kinds = ("is_git", "is_file", "is_http", "is_zip", "is_package")
    assert [name for name in kinds if getattr(parsed, name)] == [kind]


def test_a_resolved_source_knows_whether_it_is_a_part(tmp_path: Path) -> None:
    assert ResolvedSource(tmp_path / "x", tmp_path).is_subdirectory
    assert not ResolvedSource(tmp_path, tmp_path).is_subdirectory


def test_the_home_is_read_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AMPLIFIER_HOME", raising=False)
    assert get_amplifier_home() == tmp_path.resolve() / ".amplifier"

    monkeypatch.setenv("AMPLIFIER_HOME", "~/elsewhere")
    assert get_amplifier_home() == tmp_path.resolve() / "elsewhere"


def test_paths_are_made_absolute_from_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert normalize_path("a/../b", tmp_path / "x") == tmp_path.resolve() / "x" / "b"
    assert normalize_path("a") == tmp_path.resolve() / "a"
    assert normalize_path("~/a", tmp_path / "x") == tmp_path.resolve() / "a"
    assert normalize_path(tmp_path / "y", tmp_path / "x") == tmp_path.resolve() / "y"


def test_the_home_is_found_beside_the_other_paths() -> None:
    assert resolution.get_amplifier_home is get_amplifier_home


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("git+https://host/org/repo@v1#subdirectory=agents/scout.md&x=1", "agents/scout.md"),
        ("git+https://host/org/repo@main/agents/scout.md", "main/agents/scout.md"),
        ("git+git@host:org/repo@v1", "/org/repo"),
        ("https://host/p/agent.md?x=1", "/p/agent.md"),
        ("./agents/scout.md#more/deep%20down", "more/deep down"),
        ("../context/", "../context"),
    ],
)
def test_content_is_named_after_the_path_inside_its_source_or_the_sources_own(uri: str, path: str) -> None:
    assert named_path(uri) == path
