"""No parameter that names something leads out of the home: not in a path, a query or a body, however it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_operations import PATHS, Operation, bodies
from world import Answer, World

NAMES = {
    *PATHS,
    *("session_id", "parent_session_id", "session", "identifier", "new_name", "profile_name", "profile", "path"),
    *(
        "before.profile_id",
        "after.profile_id",
        "bundle_name",
        "collection",
        "default_profile",
        "base_profile",
        "owner",
        "extends",
    ),
}
"""Parameters that name a thing of the daemon, or a place below one of its directories."""

PLACES = {
    *("source", "uri", "bundle_uri", "directory", "working_dir", "roots", "uds", "tls.certfile", "tls.keyfile"),
    *("security.module_roots", "security.allowed_sources", "store", "builds.url"),
    *("cluster.address", "cluster.ca_file", "cluster.shared_paths"),
}
"""Parameters that may name any place, because whoever may send them may use it."""

TEXTS = {
    *(
        "content",
        "prompt",
        "q",
        "name",
        "description",
        "instruction",
        "markdown",
        "orchestrator",
        "version",
        "model",
        "reason",
        "message",
    ),
    *("decision", "agent", "key", "data", "error_message", "tags", "tag", "context", "agents", "stop", "user", "host"),
    *(
        "provider",
        "effort",
        "filter",
        "after",
        "before",
        "since",
        "roles",
        "bundle",
        "event_type",
        "level",
        "sort",
        "trusted_proxies",
    ),
    *("auth.tokens", "security.allowed_hosts", "security.allowed_origins", "include", "render", "request_id"),
    "routing.matrix",
}
"""Parameters that are only compared or kept."""

FIELDS_THAT_NAME = {
    "name": {"POST /api/v1/tokens", "POST /api/v1/profiles", "POST /api/v1/bundles"},
    "model": {"POST /v1/chat/completions"},
}
"""Names that are a text in most bodies, and the operations in which they name something."""


@pytest.fixture(scope="module")
def hostile(outside: Path) -> dict[str, str]:
    """Values that lead out of the home, or try to, by what is special about them."""
    return {
        "up": "../outside/marker",
        "further up": f"{'../' * 6}outside/marker",
        "encoded": "..%2f..%2foutside%2fmarker",
        "encoded dots": "%2e%2e%2f%2e%2e%2foutside%2fmarker",
        "encoded twice": "%252e%252e%252foutside%252fmarker",
        "absolute": str(outside / "marker"),
        "below something": "foundation/../../../outside/marker",
        "nul": "marker\0.md",
        "backslash": "..\\..\\outside\\marker",
        "dots": "..",
        "long": "x" * 5000,
    }


def is_name(operation: Operation, field: str) -> bool:
    return operation.name in FIELDS_THAT_NAME[field] if field in FIELDS_THAT_NAME else field in NAMES


def with_field(body: dict[str, Any], field: str, value: str) -> dict[str, Any]:
    """Return a body in which a field, of a part where there is a dot, has a value; a list has it as its only member."""
    head, _, rest = field.partition(".")
    if rest:
        return {**body, head: with_field(dict(body.get(head) or {}), rest, value)}
    return {**body, head: [value] if isinstance(body.get(head), list) else value}


def attacks(world: World, hostile: dict[str, str]) -> Iterator[tuple[Operation, str, str, Answer, bool]]:
    """Send every hostile value in every parameter that names something or some place."""
    for operation in world.operations:
        for what, value in hostile.items():
            for field in operation.in_path:
                yield operation, field, what, world.request(operation, path={field: value}), True
                if what in ("up", "further up", "encoded", "encoded dots", "encoded twice"):
                    yield operation, field, f"{what}, raw", raw(world, operation, field, value), True
            for field in operation.in_query:
                if field in NAMES | PLACES:
                    answer = world.request(operation, query={field: value})
                    yield operation, field, what, answer, field in NAMES
            for field in operation.fields:
                named = is_name(operation, field)
                if named or field in PLACES:
                    body = with_field(bodies().get(operation.name, {}), field, value)
                    yield operation, field, what, world.request(operation, body=body), named


def raw(world: World, operation: Operation, field: str, value: str) -> Answer:
    """Send a value in a path as it is, so that its own slashes and percent signs count."""
    values = {**PATHS, "session_id": world.session_id}
    url = operation.path.format(
        **{name: quote(values[name], safe="") for name in operation.in_path if name != field} | {field: value}
    )
    return world.send(operation.method, url, body=bodies().get(operation.name))


def test_every_text_is_known_as_a_name_a_place_or_a_text(world: World) -> None:
    said = {field for each in world.operations for field in (*each.in_path, *each.in_query, *each.fields)}

    assert said - NAMES - PLACES - TEXTS == set()


def test_nothing_outside_is_read_or_written(world: World, hostile: dict[str, str], outside: Path) -> None:
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    beside = {path.name for path in outside.parent.iterdir()}
    wrong, count = list[str](), 0
    for operation, field, what, answer, is_named in attacks(world, hostile):
        count += 1
        is_refused = 400 <= answer.status < 500 or (not is_named and answer.status in (200, 201, 204, 502, 503))
        if not is_refused or "canary of the marker" in answer.text:
            wrong.append(f"{operation.name} {field} ({what}): {answer.status} {answer.text[:200]}")

    assert count > 1000
    assert not wrong, "\n".join(wrong)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert {path.name for path in outside.parent.iterdir()} == beside
