"""Sources: one grammar for references, one cache, one way to content wherever it lives.

`parse_reference` reads a reference into a frozen value, `Sources.resolve` makes it a path of this machine. The older
faces, `SimpleSourceResolver` and its handlers, use the same layer.
"""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .file import FileSourceHandler
    from .fsspec import FsspecSourceHandler
    from .git import GitCloneTimeoutError, GitSourceHandler
    from .http import HttpSourceHandler
    from .protocol import (
        SourceHandlerProtocol,
        SourceHandlerWithStatusProtocol,
        SourceResolverProtocol,
        SourceStatus,
    )
    from .pruning import CachedSource, PruneResult, list_cached, prune
    from .reference import (
        FileReference,
        GitReference,
        NameReference,
        Reference,
        UrlReference,
        ZipReference,
        is_commit,
        parse_reference,
        reference_from,
    )
    from .resolved import Limits, Progress, ProgressEvent, ResolvedRef, hash_content
    from .resolver import SimpleSourceResolver
    from .source_layer import Sources, resolve
    from .zip import ZipSourceHandler

__all__ = [
    "CachedSource",
    "FileReference",
    "FileSourceHandler",
    "FsspecSourceHandler",
    "GitCloneTimeoutError",
    "GitReference",
    "GitSourceHandler",
    "HttpSourceHandler",
    "Limits",
    "NameReference",
    "Progress",
    "ProgressEvent",
    "PruneResult",
    "Reference",
    "ResolvedRef",
    "SimpleSourceResolver",
    "SourceHandlerProtocol",
    "SourceHandlerWithStatusProtocol",
    "SourceResolverProtocol",
    "SourceStatus",
    "Sources",
    "UrlReference",
    "ZipReference",
    "ZipSourceHandler",
    "hash_content",
    "is_commit",
    "list_cached",
    "parse_reference",
    "prune",
    "reference_from",
    "resolve",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".file": ("FileSourceHandler",),
        ".fsspec": ("FsspecSourceHandler",),
        ".git": ("GitCloneTimeoutError", "GitSourceHandler"),
        ".http": ("HttpSourceHandler",),
        ".protocol": (
            "SourceHandlerProtocol",
            "SourceHandlerWithStatusProtocol",
            "SourceResolverProtocol",
            "SourceStatus",
        ),
        ".pruning": ("CachedSource", "PruneResult", "list_cached", "prune"),
        ".reference": (
            "FileReference",
            "GitReference",
            "NameReference",
            "Reference",
            "UrlReference",
            "ZipReference",
            "is_commit",
            "parse_reference",
            "reference_from",
        ),
        ".resolved": ("Limits", "Progress", "ProgressEvent", "ResolvedRef", "hash_content"),
        ".resolver": ("SimpleSourceResolver",),
        ".source_layer": ("Sources", "resolve"),
        ".zip": ("ZipSourceHandler",),
    },
)
