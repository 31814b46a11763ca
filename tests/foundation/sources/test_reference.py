"""References as values: reading, printing, and what is refused."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import parse_uri
from amplifier_foundation.sources import (
    FileReference,
    GitReference,
    NameReference,
    Reference,
    UrlReference,
    ZipReference,
    parse_reference,
    reference_from,
)

_WORD = string.ascii_letters + string.digits + "._-"
_words = st.text(_WORD, min_size=1, max_size=8).filter(lambda text: not text.startswith("-") and ".." not in text)
_anything = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=8)
_segments = _anything.filter(lambda text: text not in (".", ".."))
_subpaths = st.none() | st.lists(_segments, min_size=1, max_size=3).map("/".join)
_hosts = st.sampled_from(["host", "host:8080", "user@host", "user:token@host", "[::1]:80"])
_paths = st.lists(_words, min_size=1, max_size=3).map("/".join)
_refs = st.none() | st.lists(_words, min_size=1, max_size=3).map("/".join)
_queries = st.none() | st.text(_WORD + "=&?@/%", min_size=1, max_size=8)


def _git(transport: str, host: str, path: str, ref: str | None, subpath: str | None) -> GitReference:
    return GitReference(f"{transport}://{'' if transport == 'file' else host}/{path}", ref, subpath)


def _url(scheme: str, host: str, path: str, query: str | None) -> str:
    return f"{scheme}://{host}/{path}{'' if query is None else f'?{query}'}"


_references: st.SearchStrategy[Reference] = st.one_of(
    st.builds(_git, st.sampled_from(["https", "http", "ssh", "file", "git"]), _hosts, _paths, _refs, _subpaths),
    st.builds(ZipReference, st.builds(_url, st.sampled_from(["https", "http"]), _hosts, _paths, _queries), _subpaths),
    st.builds(ZipReference, _paths.map(lambda path: f"file:///{path}"), _subpaths),
    st.builds(
        UrlReference, st.builds(_url, st.sampled_from(["https", "s3", "memory"]), _hosts, _paths, _queries), _subpaths
    ),
    st.builds(
        FileReference, st.tuples(st.sampled_from(["/", "./", "../", "~/"]), st.text(_WORD + "/ %#@:")).map("".join)
    ),
    st.builds(FileReference, st.text(_WORD + "/ %@:", min_size=1), _subpaths),
    st.builds(NameReference, _words.filter(lambda text: text[0].isalnum() and text[-1].isalnum()), _subpaths),
)


@given(_references)
def test_parsing_undoes_printing(reference: Reference) -> None:
    assert parse_reference(str(reference)) == reference


@given(_references)
def test_the_older_view_leads_to_the_same_value(reference: Reference) -> None:
    text = str(reference)

    if not text.startswith("~/"):  # which resolvers expand first
        assert reference_from(parse_uri(text)) == reference


@given(st.text(max_size=40) | st.text("git+zip:/#@?=&%.~ahtps-", max_size=25))
def test_any_text_is_a_reference_or_refused_with_its_reason(text: str) -> None:
    parse_uri(text)

    reference = _parsed(text)

    if isinstance(reference, RefResolutionError):
        assert (reference.ref, reference.reason in ("syntax", "unsafe-path")) == (text, True)
    else:
        assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("git+https://h/o/r", GitReference("https://h/o/r")),
        ("git+https://h/o/r@v1", GitReference("https://h/o/r", "v1")),
        ("git+https://h/o/r@feature/x#sub/dir/", GitReference("https://h/o/r", "feature/x", "sub/dir")),
        ("git+https://h/o/r@m#egg=x&subdirectory=a%20b", GitReference("https://h/o/r", "m", "a b")),
        ("git+https://h/o/r@m#egg=x", GitReference("https://h/o/r", "m")),
        ("git+ssh://git@h/o/r", GitReference("ssh://git@h/o/r")),
        ("git+ssh://git@h/o/r@main", GitReference("ssh://git@h/o/r", "main")),
        ("git+git@h:o/r@main", GitReference("ssh://git@h/o/r", "main")),
        ("git+git@h:o/r", GitReference("ssh://git@h/o/r")),
        ("git+https://h/a@b/r@v1", GitReference("https://h/a@b/r", "v1")),
        ("git+file:///srv/x@main#subdirectory=m", GitReference("file:///srv/x", "main", "m")),
        ("zip+https://h/x.zip?t=1#m", ZipReference("https://h/x.zip?t=1", "m")),
        ("zip+file:///a/x.zip", ZipReference("file:///a/x.zip")),
        ("https://h/p/agent.md", UrlReference("https://h/p/agent.md")),
        ("HTTPS://h/p", UrlReference("https://h/p")),
        ("https://h/p?", UrlReference("https://h/p")),
        ("s3://bucket/dir#x", UrlReference("s3://bucket/dir", "x")),
        ("/abs/dir", FileReference("/abs/dir")),
        ("file:///abs/dir#subdirectory=x", FileReference("/abs/dir", "x")),
        ("./agents/x#y.md", FileReference("./agents/x#y.md")),
        ("~/bundles", FileReference("~/bundles")),
        ("foundation", NameReference("foundation")),
        ("amplifier-module-tool-x/sub/dir", NameReference("amplifier-module-tool-x", "sub/dir")),
    ],
)
def test_each_form_has_its_value(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-rf",
        "two words",
        "namespace:path",
        "git+https://h",
        "git+https:///o/r",
        "git+ext::sh -c id",
        "git+ext://h/x",
        "git+ftp://h/o/r",
        "git+https://h/o/r@",
        "git+https://h/o/r@-x",
        "git+https://h/o/r@--upload-pack=touch",
        "git+https://h/o/r@a..b",
        "git+https://h/o/r@a^b",
        "git+https://h/o/r@a:b",
        "git+https://h/o/r@*",
        "git+https://h/o/r@a\nb",
        "git+--upload-pack=x://h/o/r",
        "git+ssh://-oProxyCommand=x/o/r",
        "git+ssh://git@-oProxyCommand=x/o/r",
        "git+-oProxyCommand=x@h:o/r",
        "git+https://h/o\n/r@main",
        "git+file://relative/x@main",
        "git+https://h/o/r@main#",
        "git+https://h/o/r@main#subdirectory=",
        "zip+ftp://h/x.zip",
        "https://",
        "https://h/a\0b",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(RefResolutionError) as caught:
        parse_reference(text)

    assert (caught.value.ref, caught.value.reason) == (text, "syntax")


@pytest.mark.parametrize("path", ["../x", "/etc", "a/../../b", "%2e%2e/x", "a/.."])
@pytest.mark.parametrize("base", ["git+https://h/o/r@main", "zip+https://h/x.zip", "https://h/x", "file:///srv"])
def test_a_subpath_that_leaves_its_tree_is_refused(base: str, path: str) -> None:
    with pytest.raises(RefResolutionError, match="Subpath not found") as caught:
        parse_reference(f"{base}#subdirectory={path}")

    assert caught.value.reason == "unsafe-path"


def test_references_are_values() -> None:
    one, same = parse_reference("git+https://h/o/r@v1"), parse_reference("git+https://h/o/r@v1")

    assert len({one, same}) == 1
    with pytest.raises(AttributeError):
        one.subpath = "x"  # type: ignore[misc]


def test_a_message_shows_no_password() -> None:
    with pytest.raises(RefResolutionError) as caught:
        parse_reference("git+https://user:secret@h/o/r@-x")

    assert "secret" not in str(caught.value)


def _parsed(text: str) -> Reference | RefResolutionError:
    try:
        return parse_reference(text)
    except RefResolutionError as error:
        return error
