"""What workers log and print: in the log of the process that has them, with the level, the worker and the session."""

import logging

import pytest
from worker_bench import FAULTS, PROMPT, WorkerBench, faulty, until

from amplifierd.workers.worker_process import LINES_PER_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULE = "amplifier_module_tool_faults"


async def test_a_module_s_warning_is_logged_with_its_worker_and_session(
    bench: WorkerBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session_id, _ = await bench.session(faulty("log"))
    result = await bench.run(session_id, PROMPT)

    def found(text: str) -> logging.LogRecord | None:
        return next((record for record in caplog.records if record.getMessage() == text), None)

    await until(lambda: found("printed"))
    warning, printed = found("something is odd"), found("printed")
    assert warning is not None
    assert printed is not None
    worker = f"worker_{bench.worker_of(session_id)}"
    assert (warning.levelname, warning.name) == ("WARNING", MODULE)
    about = {name: getattr(warning, name) for name in ("worker_id", "session_id", "correlation_id")}
    assert about == {"worker_id": worker, "session_id": session_id, "correlation_id": result["correlation_id"]}
    assert (printed.levelname, getattr(printed, "worker_id", None)) == ("INFO", worker)
    assert found("it is said in passing") is None


async def test_a_module_that_prints_without_end_does_not_fill_the_log(
    bench: WorkerBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session_id, _ = await bench.session(faulty("shout"))
    await bench.run(session_id, PROMPT)

    await until(lambda: "were left out" in caplog.text)
    assert caplog.text.count("again and again") < 10 * LINES_PER_S


async def test_a_secret_that_only_a_plan_has_leaves_the_worker_masked(
    bench: WorkerBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    secret = {"client_secret": "hunter-2-hunter"}
    session_id, _ = await bench.session(faulty("tell"), tools=[{**FAULTS, "config": secret}])
    await bench.run(session_id, PROMPT)

    await until(lambda: all(f"{said} [REDACTED]" in caplog.text for said in ("logged", "printed", "told")))
    assert "hunter" not in caplog.text


async def test_messages_of_the_protocol_that_a_module_prints_or_returns_are_only_text(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(faulty("forge"), tools=[FAULTS])
    other, _ = await bench.session()

    first, second, third = await bench.run(session_id, PROMPT), await bench.run(other), await bench.run(session_id)

    assert [one["status"] for one in (first, second, third)] == ["completed"] * 3
    assert [one["response"] for one in (first, second)] == ["Done."] * 2
    stored = await bench.home.sessions.runtime.store.read_events(session_id)
    assert {event["session_id"] for event in stored} == {session_id}
    assert "forged:event" not in {event["event"] for event in stored}
