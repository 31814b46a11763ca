"""The form that an answer is asked to have, in every spelling."""

from typing import Any

import pytest

from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema, ResponseFormatText
from amplifier_kit.providers.options import JsonSchema, wanted_format

SCHEMA = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        (ResponseFormatText(), None),
        (ResponseFormatJson(), "json_object"),
        (ResponseFormatJsonSchema(json_schema=SCHEMA), JsonSchema("response", SCHEMA, False)),
        (ResponseFormatJsonSchema(json_schema=SCHEMA, strict=True), JsonSchema("response", SCHEMA, True)),
        (
            ResponseFormatJsonSchema(json_schema={"name": "answer", "schema": SCHEMA, "strict": True}),
            JsonSchema("answer", SCHEMA, True),
        ),
        (
            ResponseFormatJsonSchema(json_schema={**SCHEMA, "schema": {"a": 1}}),
            JsonSchema("response", {**SCHEMA, "schema": {"a": 1}}, False),
        ),
    ],
)
def test_a_format_is_read_in_each_of_its_forms(given: Any, wanted: JsonSchema | str | None) -> None:
    assert wanted_format(given) == wanted
