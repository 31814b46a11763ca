"""What a tool takes and what it answers when it cannot do its work."""

from collections.abc import Mapping

from amplifier_core import ToolResult
from amplifier_kit.types import JsonObject

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class ToolFailure(Exception):
    """Ends a tool's work with an answer that the model can act on; `code` is stable, `details` go into the error."""

    def __init__(self, message: str, code: str, **details: object) -> None:
        super().__init__(message)
        self.message, self.code, self.details = message, code, details

    def result(self) -> ToolResult:
        return failure(self.message, self.code, **self.details)


def failure(message: str, code: str, **details: object) -> ToolResult:
    """Return a failed result."""
    return ToolResult(success=False, output=message, error={"message": message, "code": code, **details})


def os_failure(message: str, error: OSError, code: str = "io_error") -> ToolFailure:
    """Return the failure for an operating system error."""
    return ToolFailure(message, code, type=type(error).__name__, errno=error.errno)


def read_input(
    tool_name: str, schema: JsonObject, given: object, *, texts: Mapping[str, str] | None = None
) -> JsonObject:
    """Return a tool's input with its defaults filled in, as its schema has it; raises `ToolFailure`.

    Keys the schema does not name are ignored, an explicit null counts as absent. `texts` names the strings that must
    not be empty, each with what is said when it is empty or missing.
    """
    texts = texts or {}
    if not isinstance(given, dict):
        raise ToolFailure(f"{tool_name}: the input must be an object, got {type(given).__name__}", "invalid_input")
    values: JsonObject = {}
    for name, rule in schema.get("properties", {}).items():
        value = given.get(name)
        if name in texts and value in (None, ""):
            raise ToolFailure(texts[name], "invalid_input")
        if value is None:
            if name in schema.get("required", ()):
                raise ToolFailure(f"{tool_name}: {name!r} is required", "invalid_input")
            if "default" in rule:
                values[name] = rule["default"]
            continue
        problem = _problem(rule, value)
        if problem:
            raise ToolFailure(f"{tool_name}: {name!r} {problem}", "invalid_input")
        values[name] = value
    return values


def _problem(rule: JsonObject, value: object) -> str:
    """Return what is wrong with a value, nothing when it fits."""
    kinds = rule.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if kinds and not any(_is(kind, value) for kind in kinds):
        return f"must be of type {' or '.join(kinds)}, got {type(value).__name__}"
    if "enum" in rule and value not in rule["enum"]:
        return f"must be one of {', '.join(map(str, rule['enum']))}, got {value!r}"
    if "minimum" in rule and value < rule["minimum"]:
        return f"must be at least {rule['minimum']}, got {value}"
    if "maximum" in rule and value > rule["maximum"]:
        return f"must be at most {rule['maximum']}, got {value}"
    items = rule.get("items")
    if isinstance(items, dict) and isinstance(value, list):
        return next((f"[{index}] {found}" for index, item in enumerate(value) if (found := _problem(items, item))), "")
    return ""


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))
