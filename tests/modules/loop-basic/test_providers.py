"""loop-basic: which provider is asked, and who is asked when it fails."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_loop_basic import BasicOrchestrator
from turns import Stage, answer, calling, echo, texts_of

from amplifier_core import (
    AuthenticationError,
    HookResult,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    ProviderUnavailableError,
    RateLimitError,
)
from amplifier_core.testing import MockProvider


class Provider(MockProvider):
    """A provider with settings of its own."""

    def __init__(self, *responses: Any, priority: Any = None, config: Any = None) -> None:
        super().__init__(responses or ["done"])
        if priority is not None:
            self.priority = priority
        self.config = config


async def asked(providers: dict[str, Any], config: dict[str, Any] | None = None) -> list[str]:
    """Return the names of the providers that a turn asks, in order."""
    stage = Stage([]).record("provider:request")
    stage.providers = providers
    await stage.run(BasicOrchestrator(config))
    return [data["provider"] for data in stage.payloads("provider:request")]


class TestSelection:
    @pytest.mark.parametrize("wanted", ["provider-two", "two"])
    @pytest.mark.parametrize("mounted_as", ["provider-two", "two"])
    async def test_the_configured_one_is_found_with_and_without_its_prefix(self, wanted: str, mounted_as: str) -> None:
        providers = {"one": Provider(priority=1), mounted_as: Provider(priority=2)}

        assert await asked(providers, {"default_provider": wanted}) == [mounted_as]

    async def test_the_exact_name_comes_before_the_prefixed_one(self) -> None:
        providers = {"provider-two": Provider(), "two": Provider()}

        assert await asked(providers, {"default_provider": "two"}) == ["two"]

    async def test_an_unknown_name_is_warned_about(self, caplog: pytest.LogCaptureFixture) -> None:
        assert await asked({"one": Provider()}, {"default_provider": "three"}) == ["one"]

        (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert "'three'" in warning

    @pytest.mark.parametrize(
        ("first", "second", "chosen"),
        [
            (Provider(priority=20), Provider(priority=10), "second"),
            (Provider(config={"priority": 20}), Provider(config={"priority": 10}), "second"),
            (Provider(priority=5, config={"priority": 50}), Provider(priority=10), "first"),
            (Provider(), Provider(priority=99), "second"),
            (Provider(), Provider(priority=101), "first"),
            (Provider(priority="1"), Provider(priority=99), "second"),
            (Provider(priority=True), Provider(priority=99), "second"),
            (Provider(priority=float("nan")), Provider(priority=99), "second"),
            (Provider(config="none"), Provider(priority=99.5), "second"),
            (Provider(priority=7), Provider(priority=7), "first"),
        ],
    )
    async def test_the_lowest_priority_number_is_asked_first(self, first: Any, second: Any, chosen: str) -> None:
        assert await asked({"first": first, "second": second}) == [chosen]


class TestFailover:
    @pytest.mark.parametrize(
        "error",
        [
            ProviderUnavailableError("down"),
            ProviderUnavailableError("down", retryable=False),
            NetworkError("no route"),
            LLMTimeoutError("too slow"),
            TimeoutError("too slow"),
            RateLimitError("too many"),
            LLMError("flaky", retryable=True),
        ],
        ids=repr,
    )
    async def test_an_error_that_another_provider_may_not_have_is_passed_on(self, error: Exception) -> None:
        stage = Stage([error]).record("provider:request", "provider:error")
        stage.providers["other"] = Provider("from the other")

        assert await stage.run(BasicOrchestrator({"provider_failover": True})) == "from the other"

        assert [(name, data["provider"]) for name, data in stage.events] == [
            ("provider:request", "mock"),
            ("provider:error", "mock"),
            ("provider:request", "other"),
        ]
        assert len({data["iteration"] for data in stage.payloads("provider:request")}) == 1

    @pytest.mark.parametrize("error", [AuthenticationError("wrong key"), ValueError("broken")], ids=repr)
    async def test_any_other_error_is_raised(self, error: Exception) -> None:
        stage = Stage([error])
        stage.providers["other"] = Provider()

        with pytest.raises(type(error)):
            await stage.run(BasicOrchestrator({"provider_failover": True}))

    async def test_it_has_to_be_switched_on(self) -> None:
        stage = Stage([RateLimitError("too many")])
        stage.providers["other"] = Provider()

        with pytest.raises(RateLimitError):
            await stage.run(BasicOrchestrator())

    async def test_when_all_fail_the_last_error_is_raised(self) -> None:
        stage = Stage([RateLimitError("first")]).record("provider:error")
        stage.providers["other"] = Provider(RateLimitError("second"))

        with pytest.raises(RateLimitError, match="second"):
            await stage.run(BasicOrchestrator({"provider_failover": True}))

        assert len(stage.payloads("provider:error")) == 2

    async def test_the_replacement_stays_for_the_turn_and_the_next_turn_starts_over(self) -> None:
        stage = Stage([RateLimitError("busy"), "back again"], [echo()]).record("provider:request")
        stage.providers["other"] = Provider(calling(("c1", "echo")), "done")
        orchestrator = BasicOrchestrator({"provider_failover": True})

        assert [await stage.run(orchestrator), await stage.run(orchestrator)] == ["done", "back again"]

        names = [data["provider"] for data in stage.payloads("provider:request")]
        assert names == ["mock", "other", "other", "mock"]

    async def test_what_hooks_queued_goes_to_the_replacement(self) -> None:
        stage = Stage([RateLimitError("busy")])
        stage.providers["other"] = other = Provider()
        note = HookResult(action="inject_context", context_injection="note", ephemeral=True)
        stage.on("prompt:submit", note)

        await stage.run(BasicOrchestrator({"provider_failover": True}))

        assert texts_of(other.requests[0]) == ["Hello", "note"]

    async def test_the_messages_are_fetched_for_the_replacement(self) -> None:
        seen: list[Any] = []

        class Context:
            async def add_message(self, message: Any) -> None: ...

            async def get_messages_for_request(self, token_budget: Any = None, provider: Any = None) -> Any:
                seen.append(provider)
                return [{"role": "user", "content": "Hello"}]

        stage = Stage([RateLimitError("busy")], context=Context())
        stage.providers["other"] = other = Provider()

        await stage.run(BasicOrchestrator({"provider_failover": True}))

        assert seen == [stage.provider, other]

    async def test_a_replacement_that_cannot_complete_is_named(self) -> None:
        stage = Stage([RateLimitError("busy")])
        stage.providers["half"] = SimpleNamespace()

        with pytest.raises(RuntimeError, match="'half'"):
            await stage.run(BasicOrchestrator({"provider_failover": True}))

    async def test_a_summary_may_come_from_the_replacement(self) -> None:
        stage = Stage([calling(("c1", "echo")), RateLimitError("busy")], [echo()])
        stage.providers["other"] = Provider(answer("a summary"))

        text = await stage.run(BasicOrchestrator({"provider_failover": True, "max_iterations": 1}))

        assert text == "a summary"
