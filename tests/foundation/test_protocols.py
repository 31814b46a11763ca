"""The seams of the foundation: whatever has the methods fits."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation import (
    BaseMentionResolver,
    CacheProviderProtocol,
    MentionResolverProtocol,
    SimpleCache,
    SimpleSourceResolver,
    SourceHandlerProtocol,
    SourceHandlerWithStatusProtocol,
    SourceResolverProtocol,
)
from amplifier_foundation.sources import FileSourceHandler, GitSourceHandler


@pytest.mark.parametrize(
    ("kind", "protocol", "fits"),
    [
        (SimpleSourceResolver, SourceResolverProtocol, True),
        (FileSourceHandler, SourceHandlerProtocol, True),
        (FileSourceHandler, SourceHandlerWithStatusProtocol, False),
        (GitSourceHandler, SourceHandlerWithStatusProtocol, True),
        (BaseMentionResolver, MentionResolverProtocol, True),
        (SimpleCache, CacheProviderProtocol, True),
        (Path, CacheProviderProtocol, False),
    ],
)
def test_an_implementation_is_known_by_its_methods(kind: type[Any], protocol: type[Any], fits: bool) -> None:
    assert isinstance(kind(), protocol) is fits
