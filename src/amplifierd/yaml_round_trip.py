"""YAML that is read and written again as a person wrote it: comments, order and quotes stay."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.scalarstring import PlainScalarString

_NEVER_WRAP = 4096


class _Constructor(RoundTripConstructor):
    """Keeps what looks like a date and is none as the text it is."""

    def construct_yaml_timestamp(self, node: Any, values: Any = None) -> Any:
        try:
            return super().construct_yaml_timestamp(node, values)
        except ValueError:
            return PlainScalarString(node.value)


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", _Constructor.construct_yaml_timestamp)


def round_trip() -> YAML:
    """Return a reader and writer."""
    yaml = YAML()
    yaml.Constructor = _Constructor
    yaml.preserve_quotes = True
    yaml.width = _NEVER_WRAP
    return yaml
