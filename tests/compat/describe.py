"""Print, as one JSON line, the public contract of whichever `amplifier_core` this interpreter has.

It runs under our interpreter and under the reference kernel's, and uses nothing but what both of them offer.
"""

import dataclasses
import datetime
import importlib
import inspect
import json
import sys
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import amplifier_core

SUBMODULES = (
    "approval", "cancellation", "capabilities", "cli", "content_models", "coordinator", "correlation", "display",
    "events", "hooks", "interfaces", "llm_errors", "loader", "message_models", "models", "module_sources", "session",
    "testing", "utils", "utils.retry", "utils.truncate", "validation", "validation.base", "validation.context",
    "validation.hook", "validation.mount_plan", "validation.orchestrator", "validation.provider", "validation.tool",
)  # fmt: skip


def submodule(name: str) -> ModuleType:
    return importlib.import_module(f"amplifier_core.{name}")


def defined(home: ModuleType, base: type = object) -> dict[str, Any]:
    """Find the public classes below `base` that a file itself defines."""
    return {
        name: value
        for name, value in vars(home).items()
        if inspect.isclass(value) and issubclass(value, base)
        if value.__module__ == home.__name__ and not name.startswith("_")
    }


def names(home: ModuleType) -> dict[str, list[str]]:
    """Tell what a file offers, and what can be imported from it."""
    functions = [
        name for name, value in inspect.getmembers(home, inspect.isfunction) if value.__module__ == home.__name__
    ]
    offered = getattr(home, "__all__", [*defined(home), *(name for name in functions if not name.startswith("_"))])
    return {"offered": sorted(offered), "importable": sorted({*offered, *vars(home)})}


def default(value: object) -> str:
    """Show a default so that equal ones look alike; of a moment in time only that it is one."""
    return type(value).__name__ if isinstance(value, datetime.datetime) else repr(value)


def model(cls: type[BaseModel]) -> dict[str, object]:
    fields = {
        name: "required" if field.is_required() else default(field.get_default(call_default_factory=True))
        for name, field in cls.model_fields.items()
    }
    return {"fields": fields, "extra": cls.model_config.get("extra", "ignore")}


def record(cls: Any) -> list[tuple[str, str]]:
    return [
        (field.name, "required" if field.default is dataclasses.MISSING else default(field.default))
        for field in dataclasses.fields(cls)
    ]


def protocol(cls: type) -> dict[str, list[str] | str]:
    return {
        name: list(inspect.signature(member).parameters) if inspect.isfunction(member) else type(member).__name__
        for name, member in vars(cls).items()
        if not name.startswith("_") or name == "__call__"
    }


def error(cls: type[Exception]) -> dict[str, object]:
    instance = cls("it failed")
    return {
        "parent": cls.__mro__[1].__name__,
        "attributes": vars(instance),
        "str": str(instance),
        "repr": repr(instance),
    }


def constants(home: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(home).items() if name.isupper() and not name.startswith("_")}


def describe() -> dict[str, object]:
    interfaces = submodule("interfaces")
    return {
        "version": amplifier_core.__version__,
        "exports": sorted(amplifier_core.__all__),
        "submodules": {name: names(submodule(name)) for name in SUBMODULES},
        "models": {
            f"{home}.{name}": model(cls)
            for home in ("models", "message_models", "interfaces")
            for name, cls in defined(submodule(home), BaseModel).items()
        },
        "records": {
            name: record(cls)
            for name, cls in defined(submodule("content_models")).items()
            if dataclasses.is_dataclass(cls)
        },
        "protocols": {
            name: protocol(cls) for name, cls in defined(interfaces).items() if not issubclass(cls, BaseModel)
        },
        "events": constants(submodule("events")),
        "capabilities": constants(submodule("capabilities")),
        "errors": {name: error(cls) for name, cls in defined(submodule("llm_errors"), Exception).items()},
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe()) + "\n")
    sys.stdout.flush()  # the reference kernel may crash while its interpreter ends
