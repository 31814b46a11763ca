"""What providers of vendors share: errors, prices, model tables, the gate and the client."""

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import sys
import threading
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import LLMError, Usage, llm_errors
from amplifier_core.testing import EventRecorder, MockCoordinator
from amplifier_kit.client_slot import ClientSlot
from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.call import ConcurrencyGate
from amplifier_kit.providers.cost import CostTally, ModelTable, Prices, TokenCounts, read_rates
from amplifier_kit.providers.errors import ErrorTranslator, VendorFailure, hide_key
from amplifier_kit.providers.stream import ProviderEvents

# --- errors

HTML = {"Content-Type": "text/html; charset=utf-8"}


def error(status: int, message: str = "", **failure: Any) -> LLMError:
    body = failure.pop("body", {"error": {"message": message}} if message else None)
    translator = ErrorTranslator("acme", overflow_phrases=("n_ctx",))
    return translator.translate(VendorFailure(status, body=body, **failure), model="m1")


@pytest.mark.parametrize(
    ("found", "name", "retryable"),
    [
        (lambda: error(400, "Prompt is too long: 3 > 2"), "ContextLengthError", False),
        (lambda: error(400, "exceeds n_ctx"), "ContextLengthError", False),
        (lambda: error(400, body={"error": {"code": "context_length_exceeded"}}), "ContextLengthError", False),
        (lambda: error(400, "blocked by safety"), "ContentFilterError", False),
        (lambda: error(400, body={"code": "content_policy_violation"}), "ContentFilterError", False),
        (lambda: error(400, "bad field"), "InvalidRequestError", False),
        (lambda: error(422, "bad field"), "InvalidRequestError", False),
        (lambda: error(401), "AuthenticationError", False),
        (lambda: error(402), "QuotaExceededError", False),
        (lambda: error(429, body={"error": {"type": "insufficient_quota"}}), "QuotaExceededError", False),
        (lambda: error(403, text="<html>", headers=HTML), "ProviderUnavailableError", True),
        (lambda: error(403, text="Just a moment..."), "ProviderUnavailableError", True),
        (lambda: error(403, "cloudflare", headers=HTML), "AccessDeniedError", False),
        (lambda: error(404), "NotFoundError", False),
        (lambda: error(408), "LLMTimeoutError", False),
        (lambda: error(413), "ContextLengthError", False),
        (lambda: error(418), "LLMError", False),
        (lambda: error(429), "RateLimitError", True),
        (lambda: error(500), "ProviderUnavailableError", True),
        (lambda: error(200, "odd"), "ProviderUnavailableError", True),
    ],
)
def test_a_vendors_answer_has_its_class(found: Any, name: str, retryable: bool) -> None:
    translated = found()

    assert (type(translated).__name__, translated.retryable) == (name, retryable)
    assert (translated.provider, translated.model) == ("acme", "m1")


@pytest.mark.parametrize(
    "found", [lambda: error(529), lambda: error(200, body={"error": {"type": "overloaded_error"}})]
)
def test_an_overloaded_vendor_is_given_more_time(found: Any) -> None:
    translated = found()

    assert type(translated) is llm_errors.ProviderUnavailableError
    assert (translated.status_code, translated.delay_multiplier) == (529, 10.0)


def test_an_error_carries_status_wait_and_body() -> None:
    translated = error(503, body={"error": {"message": "ö"}}, headers={"Retry-After": "3"})

    assert (translated.status_code, translated.retry_after) == (503, 3.0)
    assert json.loads(str(translated)) == {"error": {"message": "ö"}}
    assert str(error(500)) == "HTTP 500: (no message)"


def test_credentials_in_addresses_are_never_told() -> None:
    translator, failed = ErrorTranslator("acme"), ConnectionError("failed")
    failed.__cause__ = OSError("refused http://me:secret@host/x")

    unreachable, unexpected = translator.unreachable(failed, model="m"), translator.unexpected(ValueError(), model="m")

    assert str(unreachable) == "failed (OSError: refused http://[REDACTED]@host/x)"
    assert type(unreachable) is llm_errors.NetworkError
    assert (str(unexpected), unexpected.retryable) == ("ValueError: (no message)", True)


def test_a_key_is_taken_out_of_an_error_and_what_led_to_it() -> None:
    failed = ConnectionError("key sk-0123456789 is wrong")
    failed.__cause__ = OSError("sent sk-0123456789")

    hide_key(failed, "sk-0123456789")

    assert (str(failed), str(failed.__cause__)) == ("key [REDACTED] is wrong", "sent [REDACTED]")


def test_what_is_too_short_to_be_a_key_is_left_in_the_words_it_is_part_of() -> None:
    failed = ConnectionError("this is a test")

    hide_key(failed, "test")

    assert str(failed) == "this is a test"


@pytest.mark.parametrize("credentials", ["me:p@ss", ":secret", "me:"], ids=["an at sign", "no user", "no password"])
def test_odd_credentials_are_not_told_either(credentials: str) -> None:
    told = str(ErrorTranslator("acme").unexpected(ValueError(f"http://{credentials}@host/x, a@b"), model="m"))

    assert told == "http://[REDACTED]@host/x, a@b"


# --- prices


def usage(**counts: Any) -> Usage:
    return Usage(**{"input_tokens": 1_000_000, "output_tokens": 500_000, "total_tokens": 1_500_000, **counts})


RATES = {"m1": {"input_per_m": "3", "output_per_m": 15, "cache_read_per_m": 0.3, "cache_write_per_m": "3.75"}}


@pytest.mark.parametrize(
    ("model", "counts", "expected"),
    [
        ("m1", TokenCounts.of(usage()), "10.5"),
        ("m1-2026-01-02", TokenCounts.of(usage()), "10.5"),
        ("m1-20260102", TokenCounts.of(usage()), "10.5"),
        ("m1", TokenCounts.of(usage(cache_read_tokens=1_000_000, output_tokens=0)), "0.3"),
        ("m1", TokenCounts.of(usage(cache_write_tokens=1_000_000, output_tokens=0)), "6.75"),
        (
            "m1",
            TokenCounts.of(usage(cache_write_tokens=1_000_000, output_tokens=0), has_writes_in_input=True),
            "3.75",
        ),
    ],
)
async def test_configured_rates_decide(model: str, counts: TokenCounts, expected: str) -> None:
    prices = Prices("provider-x", read_rates(LenientConfig("provider-x", {"rates": RATES})), provider_id="x")

    assert await prices.cost_of(model, counts) == Decimal(expected)


def test_rates_that_do_not_fit_are_reported_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    config = LenientConfig("provider-x", {"rates": {**RATES, "m2": 7, "m3": {"input_per_m": "dear"}}})

    assert set(read_rates(config)) == {"m1"}
    assert len(caplog.records) == 2


@pytest.fixture
def price_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that stands in for the real one: it knows one model, and says what it was asked."""
    source = """
class Usage:
    def __init__(self, **counts):
        self.counts = counts

class Price:
    total_price = None

def calc_price(usage, model_ref, **vendor):
    if model_ref != "known":
        raise LookupError(model_ref)
    if vendor != {"provider_id": "anthropic"}:
        raise ValueError(vendor)
    price = Price()
    price.total_price = sum(value or 0 for value in usage.counts.values())
    return price
"""
    (tmp_path / "genai_prices.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "genai_prices", raising=False)


@pytest.mark.usefixtures("price_package")
async def test_the_price_package_is_asked_with_cache_tokens_inside_the_input(caplog: pytest.LogCaptureFixture) -> None:
    prices = Prices("provider-x", {}, provider_id="anthropic")
    used = Usage(input_tokens=10, output_tokens=1, total_tokens=11, cache_read_tokens=2, cache_write_tokens=3)

    with caplog.at_level(logging.DEBUG):
        cost = await prices.cost_of("known", TokenCounts.of(used, cache_write_1h_tokens=100))
        unknown = [await prices.cost_of("new", TokenCounts.of(used)) for _ in range(2)]

    assert cost == Decimal((10 + 3) + 1 + 2 + 3 + 100)
    assert unknown == [None, None]
    assert len([record for record in caplog.records if "no price for new" in record.message]) == 1
    assert await Prices("provider-x", {}, provider_id="y").cost_of("known", TokenCounts.of(used)) is None
    sys.modules.pop("genai_prices")


@pytest.mark.usefixtures("price_package")
async def test_the_data_of_the_price_package_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    package = importlib.import_module("genai_prices")
    monkeypatch.setattr(package, "calc_price", lambda *_, **__: SimpleNamespace(total_price=threading.get_ident()))
    prices = Prices("provider-x", {}, provider_id="anthropic")

    first = await prices.cost_of("known", TokenCounts(1, 1))
    sys.modules.pop("genai_prices")

    assert first != Decimal(threading.get_ident())


async def test_without_the_price_package_costs_are_unknown_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    prices = Prices("provider-x", {}, provider_id="anthropic")

    assert [await prices.cost_of("m", TokenCounts.of(usage())) for _ in range(2)] == [None, None]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_the_sessions_cost_is_the_sum_of_what_had_a_price() -> None:
    tally, coordinator = CostTally(), MockCoordinator()
    tally.contribute(coordinator, "provider-x")
    before = await coordinator.collect_contributions("session.cost")
    for cost in (None, Decimal("0.10"), Decimal("0.20")):
        tally.add(cost)

    assert before == []
    assert await coordinator.collect_contributions("session.cost") == [{"cost_usd": "0.30"}]
    CostTally().contribute(object(), "provider-x")


# --- models


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelTable:
    (tmp_path / "acme_models").mkdir()
    (tmp_path / "acme_models/__init__.py").touch()
    data = {
        "format_version": 1,
        "default_model": "acme-2",
        "rows": [{"match": "^acme-1", "window": 1}, {"match": "acme", "window": 2}, {"match": "", "window": 3}],
        "betas": {"x": "y"},
    }
    (tmp_path / "acme_models/models.json").write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return ModelTable("acme_models")


def test_the_first_row_that_matches_describes_a_model(table: ModelTable) -> None:
    assert [table.row(model)["window"] for model in ("ACME-1.5", "my-acme-1", "other")] == [1, 2, 3]
    assert (table.default_model, table.data["betas"]) == ("acme-2", {"x": "y"})


# --- the gate


class Counter:
    """Runs attempts through gates and keeps the most that ran at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def attempt(self, gate: ConcurrencyGate, *, fails: bool = False) -> None:
        async with gate.place("m1"):
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            self.running -= 1
            if fails:
                raise ValueError("no")


async def test_instances_with_one_limit_share_its_places_and_nothing_leaks() -> None:
    recorder, counter = EventRecorder(), Counter()
    events = ProviderEvents(SimpleNamespace(hooks=recorder))
    gates = [ConcurrencyGate("acme-shared", 2, events) for _ in range(2)]

    work = [counter.attempt(gates[n % 2], fails=n == 3) for n in range(6)]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    cancelled = asyncio.create_task(counter.attempt(gates[0]))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)

    assert counter.most == 2
    assert [type(outcome).__name__ for outcome in outcomes].count("ValueError") == 1
    state = gates[0].state("m1")
    assert (state["active_requests"], state["waiting_requests"]) == (0, 0)
    told = [payload for event, payload in recorder.events if event == "provider:concurrency"]
    assert max(payload["active_requests"] for payload in told) == 2
    assert set(told[0]) == {
        "provider",
        "model",
        "active_requests",
        "waiting_requests",
        "max_concurrent",
        "process_id",
    }


@pytest.mark.parametrize(("limits", "most"), [((1, 2), 3), ((0, 0), 6)])
async def test_other_limits_have_places_of_their_own_and_none_means_no_limit(
    limits: tuple[int, int], most: int
) -> None:
    counter = Counter()
    gates = [ConcurrencyGate("acme-own", limit, ProviderEvents(None)) for limit in limits]

    await asyncio.gather(*(counter.attempt(gates[n % 2]) for n in range(6)))

    assert counter.most == most


# --- the client


class Client:
    def __init__(self, close_s: float = 0.0, error: Exception | None = None) -> None:
        self.closed, self._close_s, self._error = 0, close_s, error

    async def close(self) -> None:
        await asyncio.sleep(self._close_s)
        if self._error is not None:
            raise self._error
        self.closed += 1


async def test_a_client_is_built_when_needed_closed_once_and_built_afresh() -> None:
    built: list[Client] = []

    def build() -> Client:
        built.append(Client())
        return built[-1]

    slot = ClientSlot("provider-x", build, Client.close)
    await slot.close()
    unneeded = len(built)
    first = slot.get()
    same = slot.get() is first
    await slot.close()
    await slot.close()

    assert (unneeded, same, first.closed, slot.get() is first) == (0, True, 1, False)


@pytest.mark.parametrize("client", [Client(close_s=60), Client(error=OSError("no"))], ids=["hangs", "fails"])
async def test_a_client_that_does_not_close_is_abandoned_with_a_warning(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    slot = ClientSlot("provider-x", lambda: client, Client.close, timeout_s=0.01)
    slot.get()

    await slot.close()

    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_client_that_does_not_even_stop_closing_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    is_over = asyncio.Event()

    async def close(client: object) -> None:
        while not is_over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await is_over.wait()

    slot = ClientSlot("provider-x", object, close, timeout_s=0.01)
    slot.get()

    closing = asyncio.create_task(slot.close())
    done, _ = await asyncio.wait({closing}, timeout=30)
    is_over.set()

    assert done == {closing}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_cancelled_close_still_closes() -> None:
    client = Client()
    slot = ClientSlot("provider-x", lambda: client, Client.close)
    slot.put(client)
    closing = asyncio.create_task(slot.close())
    await asyncio.sleep(0)

    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    while not client.closed:  # noqa: ASYNC110 - the task that closes it is nobody's to wait for
        await asyncio.sleep(0)
    gc.collect()

    assert client.closed == 1
