"""The form that an answer is asked to have."""

from dataclasses import dataclass

from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema
from amplifier_kit.types import JsonObject


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A schema that an answer has to follow."""

    name: str
    schema: JsonObject
    strict: bool

    def to_dict(self) -> JsonObject:
        return {"name": self.name, "schema": self.schema, "strict": self.strict}


def wanted_format(response_format: object) -> JsonSchema | str | None:
    """Return a response format: a schema, the word `json_object`, or None for plain text.

    A schema stands alone, or as the `schema` of a mapping that names it; what has a `type` is a schema itself.
    """
    if isinstance(response_format, ResponseFormatJson):
        return "json_object"
    if not isinstance(response_format, ResponseFormatJsonSchema):
        return None
    given = response_format.json_schema
    schema = given.get("schema")
    wrapper = given if isinstance(schema, dict) and "type" not in given else {"schema": given}
    strict = response_format.strict if response_format.strict is not None else wrapper.get("strict")
    return JsonSchema(str(wrapper.get("name") or "response"), wrapper["schema"], strict is True)
