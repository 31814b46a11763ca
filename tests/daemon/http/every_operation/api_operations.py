"""The operations of the daemon as its OpenAPI document tells them, each with a request that is in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from real_server import plan

from amplifierd.server.auth.callers import SCOPES, Scope

API = "/api/v1"
OFFLINE = "foundation/offline"
PROFILE = f"---\nprofile: {{name: sample, version: 1.0.0, schema_version: 2, extends: {OFFLINE}}}\n---\nBe brief.\n"


@dataclass(frozen=True)
class Operation:
    """One method of one path. `in_query` are its texts there, `numbers` the rest, `fields` the texts of its body.

    `misfits` has, by the fields of its body, values that they cannot have, `nullable` those that may be null, and
    `required` those that it needs.
    """

    method: str
    path: str
    scope: Scope | None
    in_path: tuple[str, ...]
    in_query: tuple[str, ...]
    numbers: tuple[str, ...]
    fields: tuple[str, ...]
    statuses: frozenset[int]
    misfits: Mapping[str, Sequence[Any]]
    nullable: tuple[str, ...]
    required: tuple[str, ...]
    takes_body: bool
    takes_key: bool

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_public(self) -> bool:
        return self.scope is None

    def url(self, values: Mapping[str, str]) -> str:
        """Return the path with its parameters, each one segment whatever it holds."""
        return self.path.format(**{name: quote(values[name], safe="") for name in self.in_path})

    def lesser_scopes(self) -> tuple[Scope, ...]:
        return SCOPES[: SCOPES.index(self.scope)] if self.scope else ()


def operations_of(app: FastAPI) -> list[Operation]:
    """Return the operations of an application; the page's own are not for programs, and have tests of their own."""
    document = app.openapi()
    schemas = document["components"]["schemas"]
    return [
        _operation(method, path, facts, schemas)
        for path, methods in document["paths"].items()
        for method, facts in methods.items()
        if not path.startswith(("/app", "/auth"))
    ]


def _operation(method: str, path: str, facts: Mapping[str, Any], schemas: Mapping[str, Any]) -> Operation:
    parameters = facts.get("parameters", ())
    scopes = next(iter(facts.get("security", [{}])[0].values()), [None]) or ["read"]
    body = facts.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return Operation(
        method.upper(),
        path,
        scopes[0],
        tuple(each["name"] for each in parameters if each["in"] == "path"),
        tuple(each["name"] for each in parameters if each["in"] == "query" and _is_text(each["schema"])),
        tuple(each["name"] for each in parameters if each["in"] == "query" and not _is_text(each["schema"])),
        tuple(_texts(body, schemas)) if body else (),
        frozenset(map(int, facts["responses"])),
        _misfits(body, schemas) if body else {},
        _nullable(body, schemas) if body else (),
        _required(body, schemas) if body else (),
        body is not None,
        any(each["name"] == "Idempotency-Key" for each in parameters),
    )


def _texts(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of a body that are any text, those of its parts with a dot."""
    found: list[str] = []
    for choice in (schema, *schema.get("anyOf", ())):
        known = schemas[choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
        for name, value in known.get("properties", {}).items():
            if _is_text(value):
                found.append(name)
            found += [f"{name}.{inner}" for inner in _texts(value, schemas)]
    return found


def _misfits(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, list[Any]]:
    values = {"object": {"a": "surprise"}, "array": ["a surprise"], "string": "a surprise", "boolean": True}
    found = {}
    for name, allowed in _fields(body, schemas).items():
        if None not in allowed:
            other = next(value for kind, value in values.items() if kind not in allowed)
            found[name] = [other] if "null" in allowed else [other, None]
    return found


def _nullable(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, allowed in _fields(body, schemas).items() if "null" in allowed)


def _fields(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, set[str | None]]:
    """Return what the fields of a body may be."""
    return {name: _types(schema, schemas) for name, schema in _whole(body, schemas).get("properties", {}).items()}


def _required(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_whole(body, schemas).get("required", ()))


def _types(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> set[str | None]:
    """Return what a value may be; None stands for anything."""
    choices = schema.get("anyOf") or [schema]
    return {_whole(choice, schemas).get("type") for choice in choices}


def _whole(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema that another one only names; of a body that may be left out, that of the body."""
    named = next((choice for choice in (schema, *schema.get("anyOf", ())) if "$ref" in choice), None)
    whole: Mapping[str, Any] = schemas[named["$ref"].rpartition("/")[2]] if named else schema
    return whole


def _is_text(schema: Mapping[str, Any]) -> bool:
    choices = [schema, *schema.get("anyOf", ())]
    items = [choice["items"] for choice in choices if choice.get("type") == "array" and "items" in choice]
    return any(each.get("type") == "string" and "enum" not in each for each in (*choices, *items))


PATHS: Mapping[str, str] = {
    "model": OFFLINE,
    "profile_id": OFFLINE,
    "collection_id": "foundation",
    "module_id": "tool-bash",
    "name": "sample",
    "operation_id": "op_sample",
    "request_id": "sample",
    "approval_id": "sample",
    "member_id": "member_none",
    "position": "1",
}
"""What stands in a path, beside the id of a session."""

QUERIES: Mapping[str, Mapping[str, str]] = {
    f"GET {API}/sessions/search": {"q": "milk"},
    f"DELETE {API}/trust": {"directory": "/nowhere"},
    f"GET {API}/sessions/{{session_id}}/changes": {"turn": "1"},
}

_SESSION = f"{API}/sessions/{{session_id}}"


@cache
def bodies() -> Mapping[str, dict[str, Any]]:
    """Return, by the operation, a body that is in order."""
    mount_plan = plan("Sample.")
    return {
        "POST /v1/chat/completions": {"model": OFFLINE, "messages": [{"role": "user", "content": "Hello"}]},
        f"PATCH {API}/settings": {"log_level": "info"},
        f"PATCH {API}/settings/api-keys": {"api_keys": {"provider-openai": "sk-sample-key-0123456789"}},
        f"PATCH {API}/settings/agreements": {"agree": [{"module": "provider-sample", "hosts": ["http://sample"]}]},
        f"POST {API}/tokens": {"name": "sample"},
        f"POST {API}/collections": {"identifier": "sample", "source": "/nowhere/at/all"},
        f"PATCH {API}/collections/{{collection_id}}": {"auto_sync": False},
        f"POST {API}/profiles": {"markdown": PROFILE},
        f"POST {API}/profiles/validate": {"markdown": PROFILE},
        f"PUT {API}/profiles/active": {"profile_id": OFFLINE},
        f"POST {API}/profiles/{{profile_id}}/copy": {"new_name": "copied"},
        f"PATCH {API}/profiles/{{profile_id}}": {"description": "x"},
        f"PUT {API}/profiles/{{profile_id}}": {"markdown": PROFILE},
        f"POST {API}/render": {"markdown": "# Sample"},
        f"POST {API}/mount-plans/generate": {"profile_id": OFFLINE},
        f"POST {API}/mount-plans/convert": {"mount_plan": mount_plan, "form": "portable"},
        f"POST {API}/mount-plans/explain": {"profile_id": OFFLINE, "key": "session.orchestrator.module"},
        f"POST {API}/mount-plans/diff": {"before": {"profile_id": OFFLINE}, "after": {"profile_id": OFFLINE}},
        f"POST {API}/validate/mount-plan": {"mount_plan": mount_plan},
        f"POST {API}/validate/module": {"module_id": "tool-todo"},
        f"POST {API}/validate/bundle": {"source": "/nowhere/at/all"},
        f"POST {API}/bundles": {"uri": "/nowhere/at/all"},
        f"POST {API}/trust": {"directory": "/nowhere/at/all"},
        f"POST {API}/sessions": {"mount_plan": mount_plan},
        f"POST {API}/sessions/cleanup": {"dry_run": True},
        f"POST {API}/sessions/import": {"data": "bm8gYXJjaGl2ZQ=="},
        f"PATCH {_SESSION}": {"name": "x"},
        f"POST {_SESSION}/approvals/{{request_id}}": {"decision": "allow"},
        f"POST {_SESSION}/execute": {"prompt": "x"},
        f"POST {_SESSION}/execute/stream": {"prompt": "x"},
        f"POST {_SESSION}/steer": {"content": "x"},
        f"POST {_SESSION}/cancel": {},
        f"POST {_SESSION}/messages": {"content": "x"},
        f"POST {_SESSION}/truncate": {"turn": 0},
        f"POST {_SESSION}/change-profile": {"profile_name": OFFLINE},
        f"POST {_SESSION}/change-agent": {"effort": "high"},
        f"POST {_SESSION}/clone": {},
        f"POST {_SESSION}/fork": {},
        f"POST {_SESSION}/undo": {"turn": 1},
        f"POST {_SESSION}/mode": {"name": None},
        f"POST {_SESSION}/replay": {},
    }
