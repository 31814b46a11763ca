"""What a person reads when a module fails: the words are part of the product."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession

Started = Callable[..., Awaitable[AmplifierSession]]

DECLINED = "Provider mount did not install a new provider instance"
SAYS_WHY = (
    'import logging; logging.getLogger(__name__ + ".settings").warning("%s", "no key: set ACME_KEY"); return None'
)


@pytest.mark.parametrize(
    ("mount", "error"),
    [
        ('raise OSError("no disk")', "no disk"),
        ('config["api_token"]', "KeyError('api_token')"),
        ('raise LookupError("")', "LookupError"),
        ('raise amplifier_core.llm_errors.AuthenticationError("bad key")', "bad key"),
        ("return None", DECLINED),
        (SAYS_WHY, f"{DECLINED}\n  no key: set ACME_KEY"),
        ('await coordinator.mount("providers", 7, name="x")', "does not implement Provider interface"),
    ],
)
async def test_a_load_failure_says_the_text_of_the_error_or_else_its_type(modules: Any, mount: str, error: str) -> None:
    bad = modules.write("provider", mount=mount)
    session = modules.session(modules.plan(providers=[bad.entry()]))

    (failure,) = await modules.failures_of(session)

    if error.startswith("does not"):
        assert failure["error"].count(error) == 1
    else:
        assert failure["error"] == error


async def test_without_a_provider_each_one_is_named_with_its_own_reason(modules: Any) -> None:
    bad = modules.write("provider", mount='raise OSError("no disk")')
    declining = modules.write("provider", mount=SAYS_WHY)
    session = modules.session(modules.plan(providers=[bad.entry(), declining.entry()]))
    await session.initialize()

    with pytest.raises(RuntimeError) as refusal:
        await session.execute("hello")

    assert str(refusal.value) == (
        "No providers mounted\n"
        f"  {bad.module_id}: no disk\n"
        f"  {declining.module_id}: {DECLINED}\n"
        "      no key: set ACME_KEY"
    )


async def test_a_plan_without_providers_has_nothing_to_add(modules: Any) -> None:
    session = modules.session(modules.plan(providers=[]))
    await session.initialize()

    with pytest.raises(RuntimeError, match=r"^No providers mounted$"):
        await session.execute("hello")


async def test_a_missing_key_ends_a_turn_in_its_own_words(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    session = await started(KeyError("api_token"))

    with pytest.raises(KeyError):
        await session.execute("hello")

    assert session.status.last_error == {"message": "'api_token'"}
    assert "Execution failed: 'api_token'" in caplog.messages


@pytest.mark.parametrize(("kind", "title"), [("orchestrator", "orchestrator"), ("context", "context manager")])
async def test_a_session_that_cannot_start_says_why_in_the_words_of_the_error(
    modules: Any, kind: str, title: str
) -> None:
    plan = modules.plan()
    plan["session"][kind] = modules.write(kind, mount='config["api_token"]').module_id
    session = modules.session(plan)

    with pytest.raises(RuntimeError) as caught:
        await session.initialize()

    assert str(caught.value) == f"Cannot initialize without {title}: 'api_token'"


async def test_what_a_module_logs_while_it_mounts_is_printed_as_ever(
    modules: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    provider = modules.write("provider", mount=SAYS_WHY)

    await modules.session(modules.plan(providers=[provider.entry()])).initialize()

    assert capsys.readouterr().err.count("no key: set ACME_KEY") >= 1
