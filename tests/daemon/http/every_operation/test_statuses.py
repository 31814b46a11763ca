"""Every operation is seen to answer with every status that it documents, by a daemon with real workers.

What all operations answer alike, because the guard in front of them does, is tried with each. The rest is a table of
requests; a new operation, or a new status of one, needs a row there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_operations import API, OFFLINE, PROFILE, Operation, bodies
from real_server import plan

from amplifierd.http.models import USUAL

from .conftest import Answer, World

UNKNOWN = {
    **{"session_id": "none", "profile_id": "no/such", "model": "no/such", "collection_id": "none"},
    **{"module_id": "tool-none", "name": "none", "operation_id": "op_none", "request_id": "none", "member_id": "none"},
}
S = f"{API}/sessions/{{session_id}}"
WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "new.md", "content": "hello"}}]}
SLOW = {"text": "Late.", "latency_ms": 60_000}
MISSING = "/nowhere/at/all"
NO_REPOSITORY = "git+file:///nowhere/at/all@main"

ELSEWHERE = {
    f"POST {S}/execute": {499: "a prompt that is taken out of the queue", 504: "timeout_seconds"},
    f"POST {S}/approvals/{{request_id}}": {410: "an approval that nobody answered in time"},
    f"DELETE {API}/operations/{{operation_id}}": {200: "work that is cancelled while it runs"},
    f"GET {API}/metrics": {404: "a daemon whose metrics are switched off"},
    f"POST {API}/cluster/members/{{member_id}}/drain": {202: "a cluster", 502: "a member that does not answer"},
    f"POST {API}/cluster/members/{{member_id}}/fence": {200: "a cluster"},
}
"""Statuses that need more than a request: tests/daemon/http/sessions, test_operations and test_system_endpoints; for a
cluster tests/end_to_end/test_cluster.py."""

BY_CIRCUMSTANCES = {
    **dict.fromkeys((502, 504), "a source that does not answer, or not in time"),
    404: "a source that is there and no bundle in it when it is looked at again",
}
"""Statuses that only circumstances outside of the daemon bring about, in the operations named below."""

ONLY_BY_CIRCUMSTANCES = {
    f"POST {API}/collections": {504},
    f"POST {API}/collections/sync": {502, 504},
    f"POST {API}/collections/{{collection_id}}/sync": {504},
    f"POST {API}/bundles": {404, 504},
    f"POST {S}/execute/stream": {502},
}

Request = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def by_name(world: World) -> dict[str, Operation]:
    return {each.name: each for each in world.operations}


def test_what_the_guard_refuses_it_refuses_for_every_operation(world: World) -> None:
    refusals: dict[str, tuple[int, Callable[[Operation], Answer]]] = {
        "two tokens": (400, lambda each: world.request(each, authorization="Bearer other")),
        "a large body": (413, lambda each: world.request(each, body=None, Content_Length=str(11 << 20))),
        "no JSON": (415, lambda each: world.request(each, body=b"x", Content_Type="text/plain")),
        "large headers": (431, lambda each: world.request(each, X_Long="x" * 40_000)),
    }
    wrong = [
        f"{each.name}: {what}: {answer.status} {answer.text[:100]}"
        for each in world.operations
        for what, (status, send) in refusals.items()
        if (answer := send(each)).status != status
    ]

    assert not wrong, "\n".join(wrong)


def test_what_cannot_be_understood_is_refused_by_every_operation(world: World) -> None:
    wrong = []
    for each in world.operations:
        if each.name in bodies() and not each.path.startswith("/v1/"):  # OpenAI ignores what it does not know
            answer = world.request(each, body={**bodies()[each.name], "surprise": 1})
            if (answer.status, answer.code) != (422, "extra-field"):
                wrong.append(f"{each.name}: {answer.text[:200]}")
        if each.method == "GET" and "limit" in each.numbers:
            answer = world.request(each, query={"limit": "0"})
            if answer.status != 422:
                wrong.append(f"{each.name}?limit=0: {answer.text[:200]}")

    assert not wrong, "\n".join(wrong)


def test_every_documented_status_is_seen(world: World, by_name: dict[str, Operation]) -> None:
    seen: dict[str, set[int]] = defaultdict(set)
    undocumented = []
    for name, parts in chain(common(world), particular(world)):
        answer = world.request(by_name[name], **parts)
        seen[name].add(answer.status)
        if answer.status not in by_name[name].statuses:
            undocumented.append(f"{name} {parts}: {answer.status} {answer.text[:200]}")

    missing, stale = [], []
    for name, each in by_name.items():
        excused = ONLY_BY_CIRCUMSTANCES.get(name, set())
        missing += [
            f"{name}: {status}"
            for status in each.statuses - set(USUAL) - seen[name] - excused - {*ELSEWHERE.get(name, ())}
        ]
        stale += [f"{name}: {status}" for status in excused & seen[name]]
    assert not undocumented, "\n".join(undocumented)
    assert not missing, "\n".join(missing)
    assert not stale, "\n".join(stale)
    assert {status for statuses in ONLY_BY_CIRCUMSTANCES.values() for status in statuses} <= BY_CIRCUMSTANCES.keys()


def common(world: World) -> Iterator[Request]:
    """Yield what is asked of many operations alike: something unknown, a key twice, not to wait."""
    for each in world.operations:
        for name in each.in_path:
            if name in UNKNOWN:
                yield each.name, {"path": {name: UNKNOWN[name]}}
        if each.takes_key:
            key = {"Idempotency_Key": f"of {each.name}".replace(" ", "-").replace("{", "").replace("}", "")}
            yield "POST /api/v1/profiles/validate", {"body": {"markdown": "first"}, **key}
            yield each.name, key
        if "wait" in each.numbers:
            yield each.name, {"query": {"wait": "false"}}
        if "profile" in each.in_query:
            yield each.name, {"query": {"profile": "no/such"}}


def particular(world: World) -> Iterator[Request]:
    """Yield a request for every other status: first the sessions, then the library, then the daemon itself."""
    yield from of_sessions(world)
    yield from of_the_library(world)
    yield from of_the_daemon(world)


def of_sessions(world: World) -> Iterator[Request]:
    spoken = world.session("One.", "Two.")
    for prompt in ("first", "second"):
        yield f"POST {S}/execute", at(spoken, body={"prompt": prompt})
    reading = [each for each in world.operations if each.method == "GET" and each.in_path == ("session_id",)]
    for each in reading:
        yield each.name, at(spoken)
    for each in ("GET /api/v1/sessions", "GET /api/v1/approvals", "GET /api/v1/events"):
        yield each, {}
    yield "GET /api/v1/sessions/search", {"query": {"q": "first"}}
    requests = world.get(f"/sessions/{spoken}/requests")["requests"]
    yield f"GET {S}/requests/{{request_id}}", at(spoken, request_id=requests[0]["request_id"])
    for below in ("fork", "clone", "replay"):
        yield f"POST {S}/{below}", at(spoken)
    changed = world.session("Done.", working_dir=str(world.folder("changed")))
    yield f"POST {S}/execute", at(changed)
    yield f"GET {S}/changes", at(changed)
    yield f"POST {S}/undo", at(spoken, body={"turn": 2, "what": "conversation"})
    yield f"POST {S}/truncate", at(spoken, body={"turn": 1})
    yield f"POST {S}/messages", at(spoken)
    yield f"DELETE {S}/messages/last", at(spoken)
    yield f"POST {S}/change-agent", at(spoken)
    yield f"POST {S}/compact", at(spoken)
    yield f"POST {S}/change-profile", at(spoken)
    for below in ("lock", "newest-build"):
        yield f"GET {S}/{below}", at(spoken)
    with newer(world.server.home.paths.profiles / OFFLINE / "profile.lock"):
        yield f"GET {S}/newest-build", at(spoken)
    yield f"POST {S}/execute/stream", at(world.session("Done."))
    yield f"POST {S}/execute", at(world.session({"error": {"type": "AuthenticationError", "message": "no"}}))
    yield "POST /api/v1/sessions", {}
    yield "POST /api/v1/sessions", {"body": {"profile_name": "no/such"}}
    yield "POST /api/v1/sessions/cleanup", {}
    yield "POST /api/v1/sessions/import", {"body": {"data": world.exported(spoken)}}
    yield from of_states(world, spoken)
    yield from of_running_turns(world)
    for below in ("POST {}/restore", "DELETE {}"):
        yield f"DELETE {S}", at(spoken)
        yield f"GET {API}/sessions/trash", {}
        yield below.format(f"{API}/sessions/trash/{{session_id}}"), at(spoken)


def of_states(world: World, spoken: str) -> Iterator[Request]:
    """Yield requests to sessions that were not started, have ended, wait for an answer, or lack their plan."""
    waiting = world.session(start=False)
    yield f"POST {S}/start", at(waiting)
    yield f"PATCH {S}", at(waiting, body={"status": "completed"})
    yield f"PATCH {S}", at(waiting, body={"status": "completed"})
    yield f"POST {S}/start", at(waiting)
    yield f"POST {S}/execute", at(waiting)
    yield f"POST {S}/resume", at(waiting)
    yield f"POST {S}/cancel", at(waiting)
    asking = world.session(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    yield f"POST {S}/execute/stream", at(asking)
    pending = world.awaited(lambda: world.get(f"/sessions/{asking}/approvals")["pending"])
    answered = at(asking, request_id=pending[0]["request_id"])
    yield f"POST {S}/approvals/{{request_id}}", answered
    yield f"POST {S}/approvals/{{request_id}}", answered
    broken = world.session()
    (world.server.home.paths.sessions / broken / "mount_plan.json").unlink()
    for below in ("mount-plan", "config", "modules", "tools", "hooks", "capabilities", "agents", "explain"):
        yield f"GET {S}/{below}", at(broken)


def of_running_turns(world: World) -> Iterator[Request]:
    """Yield requests to a session while it works."""
    busy = world.session(SLOW, SLOW)
    yield f"POST {S}/execute/stream", at(busy)
    world.awaited(lambda: world.get(f"/sessions/{busy}")["activity"] == "executing")
    world.awaited(lambda: world.get(f"/sessions/{busy}/requests")["total"])
    yield f"DELETE {S}", at(busy)
    yield f"DELETE {S}/messages/last", at(busy)
    yield f"GET {S}/changes", at(busy)
    yield f"POST {S}/steer", at(busy)
    yield "POST /v1/chat/completions", {"X_Amplifier_Session": busy}
    yield f"POST {S}/execute/stream", at(busy, body={"prompt": "later", "queue": True})
    yield f"DELETE {S}/queue/{{position}}", at(busy)
    yield f"DELETE {S}/queue/{{position}}", at(busy)
    yield f"POST {S}/cancel", at(busy, body={"immediate": True})


def of_the_library(world: World) -> Iterator[Request]:
    other = world.folder("other")
    (other / "profiles").mkdir()
    (other / "profiles/offline.md").write_text(PROFILE.replace("name: sample", "name: offline"))
    yield "POST /api/v1/collections", {"body": {"identifier": "other", "source": str(other), "compile": False}}
    yield "POST /api/v1/collections", {"body": {"identifier": "none", "source": f"git+file://{MISSING}@main"}}
    for each in world.operations:  # two collections have a profile of this name now
        if "profile_id" in each.in_path:
            yield each.name, {"path": {"profile_id": "offline"}}
        if "profile" in each.in_query:
            yield each.name, {"query": {"profile": "offline"}}
            yield each.name, {"query": {"profile": OFFLINE}}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "offline"}}
    ours = {"path": {"collection_id": "other"}}
    for method in ("GET", "PATCH"):
        yield f"{method} {API}/collections/{{collection_id}}", ours
    yield "POST /api/v1/sessions", {"body": {"profile_name": "other/offline", "session_id": "of-other"}}
    yield f"DELETE {API}/collections/{{collection_id}}", ours
    yield f"DELETE {S}", at("of-other")
    with newer(world.server.home.paths.collections_lock):
        for method in ("GET", "PATCH"):
            yield f"{method} {API}/collections/{{collection_id}}", ours
    yield f"PATCH {API}/collections/{{collection_id}}", {**ours, "body": {"source": MISSING}}
    for below in ("/sync", "/{collection_id}/sync"):
        yield f"POST {API}/collections{below}", {**ours, "body": {"auto_compile": False}}
    (other / "profiles/offline.md").unlink()
    (other / "profiles").rmdir()
    other.rmdir()
    yield f"POST {API}/collections/{{collection_id}}/sync", {**ours, "body": {"auto_compile": False}}
    asked = {"path": {"profile_id": "other/offline"}, "query": {"check_remote": "true"}}
    yield f"GET {API}/profiles/{{profile_id}}/status", asked
    yield f"GET {API}/collections/{{collection_id}}", ours
    yield f"DELETE {API}/collections/{{collection_id}}", ours
    yield from of_profiles(world)
    yield from of_unreachable_sources(world)
    yield from of_plans_and_modules(world)


def of_profiles(world: World) -> Iterator[Request]:
    for name in ("GET {}", "GET {}/status", "POST {}/compile", "GET {}/lock", "POST {}/copy"):
        yield name.format(f"{API}/profiles/{{profile_id}}"), {}
    own = {"path": {"profile_id": "local/copied"}}
    for name in ("GET /api/v1/profiles", "POST /api/v1/profiles", "POST /api/v1/profiles/validate"):
        yield name, {}
    yield f"PUT {API}/profiles/{{profile_id}}", {"path": {"profile_id": "local/sample"}}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "local/copied"}}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "no/such"}}
    yield "GET /api/v1/profiles/active", {}
    world.server.home.paths.active_profile_file.write_text("local/gone\n")
    yield "GET /api/v1/profiles/active", {}
    yield "PUT /api/v1/profiles/active", {"body": {"profile_id": "local/copied"}}
    yield f"DELETE {API}/profiles/{{profile_id}}", own
    yield "DELETE /api/v1/profiles/active", {}
    yield f"PATCH {API}/profiles/{{profile_id}}", own
    yield f"PATCH {API}/profiles/{{profile_id}}", {**own, "body": {"extends": "other/gone"}}
    yield f"DELETE {API}/profiles/{{profile_id}}", own
    missing = PROFILE.replace("Be brief.", "").replace(
        "}\n---", f"}}\ntools: [{{module: tool-gone, source: 'file://{MISSING}'}}]\n---"
    )
    yield "POST /api/v1/profiles", {"body": {"markdown": missing.replace("name: sample", "name: lacking")}}
    yield f"POST {API}/profiles/{{profile_id}}/compile", {"path": {"profile_id": "local/lacking"}}


def of_unreachable_sources(world: World) -> Iterator[Request]:
    """Yield requests for what is in a repository that is not there."""
    known = world.session("Done.")
    yield f"POST {S}/execute", at(known)
    far = {"path": {"profile_id": "local/far"}}
    source = f"tools: [{{module: tool-far, source: '{NO_REPOSITORY}'}}]"
    markdown = PROFILE.replace("name: sample", "name: far").replace("}\n---", f"}}\n{source}\n---")
    yield "POST /api/v1/profiles", {"body": {"markdown": markdown}}
    yield f"POST {API}/profiles/{{profile_id}}/compile", far
    yield f"POST {API}/mount-plans/generate", {"body": {"profile_id": "local/far"}}
    yield f"POST {S}/change-profile", at(known, body={"profile_name": "local/far"})
    patience = {"compile": {"timeout_seconds": 0.001}}
    yield "PATCH /api/v1/settings", {"body": patience}
    yield f"POST {API}/profiles/{{profile_id}}/compile", far
    yield f"POST {API}/mount-plans/generate", {"body": {"profile_id": "local/far"}}
    yield "PATCH /api/v1/settings", {"body": {"compile": {"timeout_seconds": None}}}
    yield "POST /api/v1/sessions", {"body": {"bundle_uri": NO_REPOSITORY}}
    yield f"POST {S}/replay", at(known, body={"bundle_uri": NO_REPOSITORY})
    yield "POST /api/v1/validate/module", {"body": {"module_id": "tool-far", "source": NO_REPOSITORY}}


def of_plans_and_modules(world: World) -> Iterator[Request]:
    for name in ("generate", "convert", "explain", "diff"):
        known = bodies()[f"POST {API}/mount-plans/{name}"]
        unknown = {"before": {"profile_id": "no/such"}} if name == "diff" else {"profile_id": "no/such"}
        yield f"POST {API}/mount-plans/{name}", {}
        yield f"POST {API}/mount-plans/{name}", {"body": {**known, **unknown}}
    yield "POST /api/v1/validate/mount-plan", {}
    yield "POST /api/v1/validate/module", {}
    yield "POST /api/v1/validate/module", {"body": {"module_id": "tool-none"}}
    bundle = world.folder("bundle") / "bundle.md"
    bundle.write_text("---\nbundle: {name: small, version: 1.0.0}\n---\nBe kind.\n")
    (bundle.parent / "lacking.md").write_text(
        "---\nbundle: {name: lacking, version: 1.0.0}\nincludes: [unregistered]\n---\n"
    )
    for source in (
        str(bundle),
        str(bundle.parent / "lacking.md"),
        MISSING,
        "unregistered",
        f"file://{MISSING}",
        NO_REPOSITORY,
    ):
        yield "POST /api/v1/validate/bundle", {"body": {"source": source}}
        yield "POST /api/v1/bundles", {"body": {"uri": source}}
    yield f"DELETE {API}/bundles/{{name}}", {"path": {"name": "small"}}
    whole = bundle.parent / "whole.md"
    whole.write_text(f"---\nbundle: {{name: whole, version: 1.0.0}}\n{yaml.safe_dump(plan())}---\nBe kind.\n")
    yield "POST /api/v1/bundles", {"body": {"uri": str(whole)}}
    yield "POST /api/v1/sessions", {"body": {"bundle_name": "whole"}}
    yield f"DELETE {API}/bundles/{{name}}", {"path": {"name": "whole"}}
    yield f"GET {API}/modules/{{module_id}}", {}
    for path in ("bundles", "modules", "collections", "cache/status", "modules/tools", "modules/hooks", "cluster"):
        yield f"GET {API}/{path}", {}
    for plural in ("orchestrators", "contexts", "providers"):
        yield f"GET {API}/modules/{plural}", {}
    for name in ("verify", "prune"):
        yield f"POST {API}/cache/{name}", {}


def of_the_daemon(world: World) -> Iterator[Request]:
    yield "GET /", {"Accept": "text/html"}
    for path in ("/", "/health", "/ready", "/docs", "/v1/models", "/v1/models/{model}"):
        yield f"GET {path}", {}
    yield "POST /v1/chat/completions", {}
    asked = bodies()["POST /v1/chat/completions"]
    yield "POST /v1/chat/completions", {"body": {**asked, "model": "no/such"}}
    errors = ("AuthenticationError", "LLMTimeoutError", "AbortError")
    script = [{"when": {"contains": name}, "error": {"type": name, "message": "no"}} for name in errors]
    providers = json.dumps([{"module": "provider-mock", "config": {"script": script}}])
    failing = PROFILE.replace("name: sample", "name: failing").replace("}\n---", f"}}\nproviders: {providers}\n---")
    yield "POST /api/v1/profiles", {"body": {"markdown": failing}}
    for name in errors:
        said = [{"role": "user", "content": name}]
        yield "POST /v1/chat/completions", {"body": {**asked, "model": "local/failing", "messages": said}}
    plain = ("status", "info", "logs", "workers", "settings", "auth/me", "tokens", "operations", "trust")
    for path in (*plain, "directories/list", "metrics"):
        yield f"GET {API}/{path}", {}
    yield f"GET {API}/directories/list", {"query": {"path": "nowhere"}}
    for name in ("PATCH /api/v1/settings", "PATCH /api/v1/settings/api-keys", "POST /api/v1/auth/ticket"):
        yield name, {}
    yield "POST /api/v1/render", {}
    for _ in range(2):
        yield "POST /api/v1/tokens", {}
    yield f"DELETE {API}/tokens/{{name}}", {}
    trusted = str(world.folder("trusted"))
    yield "POST /api/v1/trust", {"body": {"directory": trusted}}
    for _ in range(2):
        yield "DELETE /api/v1/trust", {"query": {"directory": trusted}}
    finished = world.get("/operations")["operations"][0]["id"]
    yield f"GET {API}/operations/{{operation_id}}", {"path": {"operation_id": finished}}
    yield f"DELETE {API}/operations/{{operation_id}}", {"path": {"operation_id": finished}}


@contextmanager
def newer(file: Path) -> Iterator[None]:
    """Have a file that a newer version wrote, as long as the block runs."""
    before = file.read_bytes()
    file.write_text('{"format_version": 99}')
    yield
    file.write_bytes(before)


def at(session_id: str, *, body: Any = None, **path: str) -> dict[str, Any]:
    """Return the parts of a request about a session."""
    return {"path": {"session_id": session_id, **path}, **({} if body is None else {"body": body})}
