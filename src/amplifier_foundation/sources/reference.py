"""References to content, one frozen type for each kind; `parse_reference` reads them and `str()` writes them again.

    GitReference    git+https://host/org/repo@v1#subdirectory=modules/tool-x    a commit of a repository
    ZipReference    zip+https://host/x.zip#subdirectory=m                       an archive, extracted
    UrlReference    https://host/p/agent.md, s3://bucket/dir                    a download
    FileReference   /abs/dir, ./rel, ~/x, file:///abs/dir                       used in place
    NameReference   foundation, amplifier-module-tool-x                         a registered bundle or installed package

A value that could not be printed and read back is refused when it is made.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from amplifier_foundation.exceptions import RefResolutionError, RefResolutionReason
from amplifier_foundation.paths.resolution import ParsedURI, SplitURI, path_in_fragment, split_uri
from amplifier_system.urls import shown

GIT_TRANSPORTS = ("https", "http", "ssh", "file", "git")
ZIP_TRANSPORTS = ("https", "http", "file")

_PATH_STARTS = ("/", "./", "../", "~/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PORT = re.compile(r"\d*")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_NEVER_IN_A_REF = re.compile(r"[\x00-\x1f\x7f~^:?*\[\\@#]|\.\.|//|^[-/]|/$")
_EXAMPLE = "git+https://host/org/repo@v1#subdirectory=modules/tool-x"


@dataclass(frozen=True, slots=True)
class GitReference:
    """`git+<url>[@<ref>][#subdirectory=<path>]`: a tree of a repository, or one directory or file of it.

    `ref` is a branch, tag or commit, None for the remote's default branch. In the older form `<ref>/<path>` it holds
    both until the remote was asked which part is the ref.
    """

    url: str
    ref: str | None = None
    subpath: str | None = None

    def __post_init__(self) -> None:
        transport, _, location = self.url.partition("://")
        host, _, path = location.partition("/")
        _require(transport in GIT_TRANSPORTS, self, f"git cannot use {transport!r}, only {', '.join(GIT_TRANSPORTS)}")
        _require("#" not in self.url and not _CONTROL.search(self.url), self, "the URL has a character it cannot have")
        _require("@" not in path or self.ref is not None, self, "an '@' in a repository's path needs a ref after it")
        _require(path.strip("/") != "", self, f"no repository is named, write {_EXAMPLE!r}")
        _require(not any(part.startswith("-") for part in host.split("@")), self, "a host cannot start with '-'")
        if transport == "file":
            _require(host in ("", "localhost"), self, "git+file:// needs an absolute path, as in git+file:///srv/repo")
        else:
            _require(host.rpartition("@")[2] != "", self, f"no host is named, write {_EXAMPLE!r}")
            _check_authority(self, host, self.url)
        if self.ref is not None:
            usable = self.ref != "" and not _NEVER_IN_A_REF.search(self.ref)
            _require(usable, self, f"{self.ref!r} cannot be a branch, tag or commit")
        _check_subpath(self, self.subpath)

    def __str__(self) -> str:
        return f"git+{self.url}{f'@{self.ref}' if self.ref else ''}{_fragment(self.subpath)}"

    @property
    def transport(self) -> str:
        return self.url.partition("://")[0]

    @property
    def repository(self) -> str:
        """The URL as repositories are compared: without credentials, a trailing `/` and `.git`."""
        transport, _, location = self.url.partition("://")
        host, slash, path = location.partition("/")
        user, at, name = host.rpartition("@")
        path = path.rstrip("/").removesuffix(".git").rstrip("/")
        return shown(f"{transport}://{user}{at}{name.lower()}{slash}{path}")


@dataclass(frozen=True, slots=True)
class ZipReference:
    """`zip+<url>[#subdirectory=<path>]`: the tree in an archive, or one directory or file of it."""

    url: str
    subpath: str | None = None

    def __post_init__(self) -> None:
        parts = _check_url(self, f"zip+{self.url}")
        transport = parts.scheme.removeprefix("zip+")
        _require(transport in ZIP_TRANSPORTS, self, f"an archive cannot come by {transport!r}")
        _require(parts.path.strip("/") != "", self, "no archive is named")
        _check_subpath(self, self.subpath)

    def __str__(self) -> str:
        return f"zip+{self.url}{_fragment(self.subpath)}"


@dataclass(frozen=True, slots=True)
class UrlReference:
    """`<scheme>://…[#subdirectory=<path>]`: a file by http(s), a file or directory by any installed fsspec backend."""

    url: str
    subpath: str | None = None

    def __post_init__(self) -> None:
        parts = _check_url(self, self.url)
        other = parts.scheme in ("", "file", "git") or parts.scheme.startswith(("git+", "zip+"))
        _require(not other, self, "it is not the URL of a download")
        _check_subpath(self, self.subpath)

    def __str__(self) -> str:
        return f"{self.url}{_fragment(self.subpath)}"

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]


@dataclass(frozen=True, slots=True)
class FileReference:
    """A path of this machine, as written: relative ones count from the file that holds the reference.

    Whether a `#` belongs to the name of a plain path only the file system knows; until it was asked it stays in `path`.
    """

    path: str
    subpath: str | None = None

    def __post_init__(self) -> None:
        _require(self.path != "" and "\0" not in self.path, self, "no path is named")
        splittable = "#" in self.path and not self._is_plain
        _require(not splittable, self, "only a plain path like './a#b' can have a '#' in it")
        _check_subpath(self, self.subpath)

    @property
    def _is_plain(self) -> bool:
        return self.subpath is None and self.path.startswith(_PATH_STARTS)

    def __str__(self) -> str:
        return self.path if self._is_plain else f"file://{self.path}{_fragment(self.subpath)}"


@dataclass(frozen=True, slots=True)
class NameReference:
    """`<name>[/<path>]`: a registered bundle or an installed package, never a path of this machine."""

    name: str
    subpath: str | None = None

    def __post_init__(self) -> None:
        _require(_NAME.fullmatch(self.name) is not None, self, "a name has letters, digits, '.', '_' and '-' only")
        _check_subpath(self, self.subpath)

    def __str__(self) -> str:
        return f"{self.name}/{self.subpath}" if self.subpath else self.name


Reference = GitReference | ZipReference | UrlReference | FileReference | NameReference


@lru_cache(maxsize=1024)
def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises:
        RefResolutionError: with reason `syntax`, or `unsafe-path` for a path that leaves its tree.
    """
    if text.startswith("~/"):
        return FileReference(text)
    parts = split_uri(text)
    try:
        return _from_parts(parts, path_in_fragment(parts.fragment))
    except RefResolutionError as error:
        raise RefResolutionError(f"{error.message}: {shown(text)!r}", text, error.reason, hint=error.hint) from None


def reference_from(parsed: ParsedURI) -> Reference:
    """Return the strict form of what `parse_uri` took apart."""
    subpath = parsed.subpath or None
    if parsed.is_file:
        return FileReference(parsed.path, _normalised(subpath))
    if not parsed.scheme:
        return NameReference(parsed.path, subpath)
    parts = SplitURI(parsed.scheme, parsed.host, parsed.path, parsed.written_ref or None, parsed.query or None)
    return _from_parts(parts, subpath)


def is_commit(ref: str | None) -> bool:
    """True if a ref is a full commit hash, which never means anything else."""
    return ref is not None and _COMMIT.fullmatch(ref) is not None


def checked_subpath(subpath: str | None, ref: str) -> str | None:
    """Return the normal form of a path inside a source.

    Raises:
        RefResolutionError: it is empty, absolute or leads upwards.
    """
    normalised = _normalised(subpath)
    _check_subpath(ref, normalised)
    return normalised


def _from_parts(parts: SplitURI, subpath: str | None) -> Reference:
    scheme, host, path, ref, query, _ = parts
    question = f"?{query}" if query is not None else ""
    if scheme == "":
        name, _, rest = path.partition("/")
        if not _NAME.fullmatch(name):
            raise RefResolutionError(f"No handler for URI: {path}", path, "syntax", hint=_how_to_write(path))
        return NameReference(name, _normalised(rest.rstrip("/")) if rest else None)
    if scheme == "file":
        return FileReference(path, _normalised(subpath))
    if scheme == "git" or scheme.startswith("git+"):
        return GitReference(f"{scheme.removeprefix('git+')}://{host}{path}", ref, _normalised(subpath))
    if scheme.startswith("zip+"):
        return ZipReference(f"{scheme.removeprefix('zip+')}://{host}{path}{question}", _normalised(subpath))
    return UrlReference(f"{scheme}://{host}{path}{question}", _normalised(subpath))


def _how_to_write(path: str) -> str:
    if ":" in path:
        return "a namespace:path belongs in an include or a mention; a source is a URL, a path or a name"
    return f"a path starts with './', '../', '/' or '~/'; a repository is written {_EXAMPLE!r}"


def _normalised(subpath: str | None) -> str | None:
    """Drop what does not matter in a path (`./`, `//`, a trailing `/`); what is wrong with it stays."""
    if not subpath or subpath.startswith("/"):
        return subpath
    return str(PurePosixPath(subpath)) if subpath.strip("./") else subpath


def _fragment(subpath: str | None) -> str:
    return f"#subdirectory={quote(subpath)}" if subpath else ""


def _check_url(reference: Reference, url: str) -> SplitURI:
    parts = split_uri(url)
    question = f"?{parts.query}" if parts.query is not None else ""
    rebuilt = f"{parts.scheme}://{parts.host}{parts.path}{question}"
    well_formed = parts.ref is None and rebuilt == url and not _CONTROL.search(url) and _is_encodable(url)
    _require(well_formed, reference, "it is not a URL")
    if parts.scheme.removeprefix("zip+") in ("http", "https"):
        _require(parts.host.rpartition("@")[2] != "", reference, "no host is named")
        _check_authority(reference, parts.host, url)
    return parts


def _check_authority(reference: Reference, authority: str, url: str) -> None:
    """Refuse credentials that other programs would read in another way than we do."""
    userinfo, _, host = authority.rpartition("@")
    port = "" if host.endswith("]") else host.rpartition("]")[2].partition(":")[2]
    plain = _PORT.fullmatch(port) is not None and "?" not in authority
    plain = plain and (":" not in userinfo or _host_of(shown(url)) == host)
    _require(plain, reference, "a '/', '@', '#' or '?' in a password is written %2F, %40, %23, %3F; a port is a number")
    _require(not _CONTROL.search(unquote(userinfo)), reference, "the credentials have a character they cannot have")


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2]


def _check_subpath(reference: Reference | str, subpath: str | None) -> None:
    if subpath is None:
        return
    wrong: RefResolutionReason = "unsafe-path" if subpath.startswith("/") or ".." in subpath.split("/") else "syntax"
    usable = subpath not in ("", ".") and wrong == "syntax" and subpath == _normalised(subpath)
    usable = usable and "\0" not in subpath and _is_encodable(subpath)
    _require(usable, reference, f"Subpath not found: {subpath!r} is not a path inside the source", wrong)


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _require(condition: bool, reference: Reference | str, problem: str, reason: RefResolutionReason = "syntax") -> None:
    if not condition:
        ref = reference if isinstance(reference, str) else repr(reference)
        raise RefResolutionError(problem, ref, reason)
