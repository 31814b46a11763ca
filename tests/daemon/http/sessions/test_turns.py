"""Turns over HTTP: run, watched, repeated, queued, steered and cancelled."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from real_server import RealServer, plan, read_events
from session_requests import SLOW, code, create, execute, submit, watch_until


def test_the_events_of_a_turn_are_its_answer_when_they_are_asked_for(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.")
    headers = {"Accept": "text/event-stream"}

    with admin.stream("POST", f"/sessions/{session_id}/execute", json={"prompt": "What?"}, headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache, no-transform"
        events = [*read_events(response)]

    names = [event.event for event in events]
    assert (names[0], names[-1], names.count("execution:done")) == ("user_message:saved", "execution:done", 1)
    numbers = [number for event in events if (number := event.data["sequence"]) is not None]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    assert {event.data["correlation_id"] for event in events} == {f"prompt_{session_id}_1"}


def test_a_turn_that_is_submitted_can_be_watched_from_its_first_event(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.")

    accepted = submit(admin, session_id)
    names = [event.event for event in watch_until(admin, accepted["events_url"], "execution:done")]

    assert accepted["status"] == "accepted"
    assert [name for name in names if name.endswith("message:saved")] == ["user_message:saved"]


def test_who_stops_waiting_loses_nothing(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"text": "In the end.", "latency_ms": 500})
    body = {"json": {"prompt": "Go on."}, "headers": {"Accept": "text/event-stream"}}
    with admin.stream("POST", f"/sessions/{session_id}/execute", **body) as response:
        next(read_events(response))

    done = watch_until(admin, f"/sessions/{session_id}/stream?after=0", "execution:done")[-1]

    assert done.data["data"]["response"] == "In the end."


def test_a_key_runs_a_turn_once(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "One.", "Two.")
    key = {"Idempotency-Key": f"key-{session_id}"}
    path, body = f"/sessions/{session_id}/execute", {"prompt": "Count."}

    first = admin.post(path, json=body, headers=key)
    again = admin.post(path, json=body, headers=key)

    assert (first.json()["response"], again.json()) == ("One.", first.json())
    assert code(admin.post(path, json={"prompt": "Other."}, headers=key)) == (409, "idempotency-conflict")
    assert admin.get(f"/sessions/{session_id}").json()["turn_count"] == 1
    streaming = {**key, "Idempotency-Key": f"stream-{session_id}", "Accept": "text/event-stream"}
    with admin.stream("POST", path, json=body, headers=streaming) as response:
        assert [*read_events(response)][-1].event == "execution:done"
    repeated = admin.post(path, json=body, headers=streaming)
    assert (repeated.status_code, repeated.json()["status"]) == (202, "accepted")
    assert admin.get(f"/sessions/{session_id}/turns").json()["total"] == 2


def test_a_failed_turn_is_answered_with_its_problem(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"error": {"type": "AuthenticationError", "message": "no such key"}}, "Here.")

    assert code(execute(admin, session_id)) == (502, "provider-auth")

    assert admin.get(f"/sessions/{session_id}").json()["last_error"]["code"] == "provider-auth"
    assert execute(admin, session_id).json()["response"] == "Here."


def test_a_running_turn_is_queued_behind_steered_and_cancelled(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, SLOW, SLOW)
    path = f"/sessions/{session_id}"
    assert code(admin.post(f"{path}/steer", json={"content": "Hurry."})) == (409, "nothing-to-steer")
    assert admin.post(f"{path}/cancel", json={}).json()["state"] == "none"
    watch_until(admin, submit(admin, session_id, "First.")["events_url"], "provider:request")

    assert code(execute(admin, session_id)) == (409, "execution-in-progress")
    assert code(admin.delete(path)) == (409, "execution-in-progress")
    assert code(admin.post(f"{path}/messages", json={"content": "x"})) == (409, "execution-in-progress")
    assert submit(admin, session_id, "Second.", queue=True)["status"] == "queued"
    assert admin.get(f"{path}/queue").json() == {"queue": ["Second."], "held": 0, "total": 1}
    assert admin.get(path).json()["activity"] == "executing"
    assert admin.delete(f"{path}/queue/1").json() == {"prompt": "Second."}
    assert admin.delete(f"{path}/queue/1").status_code == 409
    steered = admin.post(f"{path}/steer", json={"content": "Hurry."})
    assert (steered.status_code, steered.json()["delivered"]) == (202, True)
    cancelled = admin.post(f"{path}/cancel", json={"immediate": True}).json()
    assert cancelled["state"] == "immediate"
    done = watch_until(admin, f"{path}/stream?after=0", "execution:done")[-1]
    assert done.data["data"]["status"] == "cancelled"
    assert admin.get(f"{path}/cancel").json()["is_cancelled"] in (True, False)


def test_whoever_waits_for_a_prompt_that_is_taken_out_of_the_queue_is_told_its_end(
    admin: httpx2.Client, work: Path
) -> None:
    session_id = create(admin, work, SLOW)
    path = f"/sessions/{session_id}"
    watch_until(admin, submit(admin, session_id, "First.")["events_url"], "provider:request")
    later = submit(admin, session_id, "Later.", queue=True)
    watched = {"json": {"prompt": "Watched.", "queue": True}, "headers": {"Accept": "text/event-stream"}}

    with admin.stream("POST", f"{path}/execute", **watched) as response:
        for _ in range(2):
            admin.delete(f"{path}/queue/1").raise_for_status()
        (end,) = read_events(response)

    assert (end.id, end.event, end.data["data"]["status"]) == (None, "execution:done", "cancelled")
    again = watch_until(admin, later["events_url"], "execution:done")[-1]
    assert again.data["correlation_id"] == later["correlation_id"]
    admin.post(f"{path}/cancel", json={"immediate": True})


def test_a_profile_is_switched_when_the_running_turn_has_ended(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"text": "Of the plan.", "latency_ms": 1000})
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")

    switched = admin.post(f"/sessions/{session_id}/change-profile", json={"profile_name": "foundation/offline"})

    assert switched.status_code == 200, switched.text
    assert switched.json()["profile_name"] == "foundation/offline"
    said = [message["content"] for message in admin.get(f"/sessions/{session_id}/messages").json()["messages"]]
    assert said[0] == "Go on."
    assert "Of the plan." in str(said[1])
    assert execute(admin, session_id).status_code == 200
    missing = admin.post(f"/sessions/{session_id}/change-profile", json={"profile_name": "local/nowhere"})
    assert code(missing) == (404, "profile-not-found")


def test_another_model_and_provider_are_asked_from_then_on(admin: httpx2.Client, work: Path) -> None:
    agent = plan({"text": "Of {{model}}.", "latency_ms": 500})
    second = {"module": "provider-mock", "instance_id": "second", "config": {"script": ["From the second."]}}
    session_id = create(admin, work, mount_plan={**agent, "providers": [*agent["providers"], second]})
    path = f"/sessions/{session_id}/change-agent"
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")

    changed = admin.post(path, json={"model": "other", "effort": "high", "max_iterations": 7})

    assert changed.status_code == 200, changed.text
    stored = admin.get(f"/sessions/{session_id}/mount-plan").json()
    assert stored["providers"][0]["config"]["default_model"] == "other"
    loop = stored["session"]["orchestrator"]["config"]
    assert (loop["reasoning_effort"], loop["max_iterations"]) == ("high", 7)
    assert len(admin.get(f"/sessions/{session_id}/messages").json()["messages"]) == 2
    assert admin.post(path, json={"provider": "mock/second"}).status_code == 200
    assert execute(admin, session_id).json()["response"] == "From the second."
    told = admin.get(f"/sessions/{session_id}/events", params={"event_type": "session:profile_changed"}).json()
    assert told["events"][0]["data"]["model"] == "other"
    assert code(admin.post(path, json={"provider": "nowhere"})) == (400, "invalid-request")
    assert code(admin.post(path, json={})) == (400, "invalid-request")
    assert code(admin.post(path, json={"temperature": 1})) == (422, "extra-field")
    admin.patch(f"/sessions/{session_id}", json={"status": "completed"})
    assert code(admin.post(path, json={"model": "late"})) == (409, "session-state-conflict")


def test_turns_and_their_tokens_are_counted(server: RealServer, spoken: str) -> None:
    shown = server.daemon.metrics.text().decode()

    (turns,) = re.findall(r'amplifierd_turns_total\{status="completed"\} (.+)', shown)
    (tokens,) = re.findall(r'amplifierd_tokens_total\{kind="output"\} (.+)', shown)
    assert float(turns) >= 2
    assert float(tokens) > 0
