"""Errors of model calls: one vocabulary, with what a retry needs to know."""

import copy
import pickle
from typing import Any

import pytest

from amplifier_core.llm_errors import (
    AbortError,
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    InvalidToolCallError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
    StreamError,
)

TREE: list[tuple[type[LLMError], type[Exception], bool]] = [
    (LLMError, Exception, False),
    (RateLimitError, LLMError, True),
    (AuthenticationError, LLMError, False),
    (ContextLengthError, LLMError, False),
    (ContentFilterError, LLMError, False),
    (InvalidRequestError, LLMError, False),
    (ProviderUnavailableError, LLMError, True),
    (LLMTimeoutError, LLMError, True),
    (NotFoundError, LLMError, False),
    (StreamError, LLMError, True),
    (AbortError, LLMError, False),
    (InvalidToolCallError, LLMError, False),
    (ConfigurationError, LLMError, False),
    (AccessDeniedError, AuthenticationError, False),
    (NetworkError, ProviderUnavailableError, True),
    (QuotaExceededError, RateLimitError, False),
]
FACTS: dict[str, Any] = {
    "provider": "acme",
    "model": "acme-1",
    "status_code": 529,
    "retryable": True,
    "retry_after": 2.5,
    "delay_multiplier": 10.0,
}
every_error = pytest.mark.parametrize("error_class", [row[0] for row in TREE])


@pytest.mark.parametrize(("error_class", "parent", "retryable"), TREE)
def test_an_error_has_its_place_in_the_tree_and_its_default(
    error_class: type[LLMError], parent: type[Exception], retryable: bool
) -> None:
    error = error_class("no luck")

    assert error_class.__bases__ == (parent,)
    assert error.retryable is retryable
    assert (error.provider, error.model, error.status_code, error.retry_after) == (None, None, None, None)
    assert error.delay_multiplier == 1.0


@every_error
def test_the_message_is_the_text_and_the_facts_are_attributes(error_class: type[LLMError]) -> None:
    error = error_class("no luck", **FACTS)

    assert str(error) == "no luck"
    assert {name: getattr(error, name) for name in FACTS} == FACTS


@every_error
@pytest.mark.parametrize("retryable", [True, False])
def test_whoever_raises_may_overrule_retryable(error_class: type[LLMError], retryable: bool) -> None:
    assert error_class("no luck", retryable=retryable).retryable is retryable


@every_error
def test_facts_are_given_by_keyword_only(error_class: type[LLMError]) -> None:
    with pytest.raises(TypeError):
        error_class("no luck", "acme")  # type: ignore[call-arg]


def test_an_unreadable_tool_call_is_kept() -> None:
    error = InvalidToolCallError("cannot read it", tool_name="bash", raw_arguments="{", provider="acme")

    assert (error.tool_name, error.raw_arguments, error.provider) == ("bash", "{", "acme")
    assert (InvalidToolCallError("x").tool_name, InvalidToolCallError("x").raw_arguments) == (None, None)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (LLMError("x"), "LLMError('x')"),
        (NotFoundError("x", model="m"), "NotFoundError('x', model='m')"),
        (RateLimitError("x"), "RateLimitError('x', retryable=True)"),
        (RateLimitError("x", retryable=False), "RateLimitError('x')"),
        (LLMError("x", retry_after=0.0), "LLMError('x', retry_after=0.0)"),
        (
            LLMError("x", **FACTS),
            "LLMError('x', provider='acme', model='acme-1', status_code=529, retryable=True, retry_after=2.5, "
            "delay_multiplier=10.0)",
        ),
    ],
)
def test_repr_shows_what_is_set(error: LLMError, shown: str) -> None:
    assert repr(error) == shown


@every_error
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deep", "pickle"],
)
def test_an_error_survives_copying_and_pickling(error_class: type[LLMError], duplicate: Any) -> None:
    error = error_class("no luck", **FACTS)
    if isinstance(error, InvalidToolCallError):
        error.tool_name = "bash"

    twin = duplicate(error)

    assert type(twin) is error_class
    assert str(twin) == "no luck"
    assert vars(twin) == vars(error)
