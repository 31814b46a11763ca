"""The configuration that the providers of all vendors share."""

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from amplifier_core.models import ConfigField
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.config import LenientConfig

from .call import read_raw
from .cost import read_rates
from .errors import read_retry_config

# How long a vendor may take: to accept a connection, until its answer begins, and between two pieces of it.
#
# The whole attempt has a limit of its own, `timeout`, which holds whatever the server does.


_NOT_CONNECTED = frozenset({"ConnectTimeout", "PoolTimeout"})  # as the HTTP libraries below the vendors' clients say it


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds for the parts of an attempt."""

    connect_s: float
    first_byte_s: float
    silence_s: float

    @classmethod
    def read(cls, config: LenientConfig, *, first_byte_s: float, silence_s: float) -> "TimeLimits":
        """Read the keys `connect_timeout`, `first_byte_timeout` and `silence_timeout`; the rest are defaults."""
        return cls(
            connect_s=config.number("connect_timeout", 5.0, above=0),
            first_byte_s=config.number("first_byte_timeout", first_byte_s, above=0),
            silence_s=config.number("silence_timeout", silence_s, above=0),
        )

    def for_client(self, sdk: Any, whole_s: float | None, *, streams: bool = True) -> Any:
        """Return the limits as a vendor's client takes them.

        An answer that is not streamed begins when it is complete: only the whole attempt limits that.
        """
        return sdk.Timeout(whole_s, connect=self.connect_s, read=self.first_byte_s if streams else whole_s)

    def begin_silence(self, response: Any) -> None:
        """Let an answer that has begun be read with the limit for silence instead of that for its first byte."""
        extensions = getattr(getattr(response, "request", None), "extensions", None) or {}
        if isinstance(limits := extensions.get("timeout"), dict):  # looked at when the body begins to be read
            limits["read"] = self.silence_s

    def exceeded(self, kinds: Collection[str], *, has_answered: bool) -> str:
        """Return which limit an exception of these classes is about, with its seconds and its key."""
        if _NOT_CONNECTED.intersection(kinds):
            return f"no connection within {self.connect_s:g} seconds (connect_timeout)"
        if has_answered:
            return f"the stream was silent for {self.silence_s:g} seconds (silence_timeout)"
        return f"no answer had begun after {self.first_byte_s:g} seconds (first_byte_timeout)"


@dataclass(frozen=True, slots=True)
class Vendor:
    """What a vendor is called and where it is: the module, the variables that hold key and address, the defaults.

    `first_byte_s` and `silence_s` are how long its servers may be silent before and while they answer.
    """

    module_id: str
    key_variable: str
    url_variable: str
    default_url: str
    default_model: str
    first_byte_s: float = 120.0
    silence_s: float = 120.0

    def without_defaults(self) -> "Vendor":
        """Return what is left for a provider of another name, which is for another server and has a key of its own."""
        return replace(self, key_variable="", url_variable="", default_url="")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSettings:
    """The shared keys, read and checked; what does not fit is reported and replaced by the default."""

    vendor: Vendor
    api_key: str | None = field(repr=False)
    base_url: str
    default_model: str
    timeout_s: float
    limits: TimeLimits
    close_timeout_s: float
    priority: int
    raw: bool
    use_streaming: bool
    retry: RetryConfig
    overloaded_delay_multiplier: float
    max_concurrent_requests: int
    rates: dict[str, dict[str, Decimal]]

    @property
    def server(self) -> str:
        """The address as it may be shown: without credentials, query and fragment; empty if it is not one."""
        try:
            url = urlsplit(self.base_url)
            port = f":{url.port}" if url.port else ""
        except ValueError:
            return ""
        is_usable = url.scheme in ("http", "https") and url.hostname
        return f"{url.scheme}://{url.hostname}{port}{url.path.rstrip('/')}" if is_usable else ""

    @property
    def host(self) -> str:
        """The name of the server, without port and credentials; empty when the address names none."""
        return urlsplit(self.server).hostname or ""

    @property
    def needs_key(self) -> bool:
        """True if the server answers only those who have a key."""
        return True

    def problem_with(self, key: str | None) -> str:
        """Return what keeps a call with this key from being made, empty when nothing does."""
        if not self.base_url:
            return "its configuration names no server; set base_url, or have the provider bring its client"
        if not self.server:
            return f"base_url is not an http or https address; write it like {self.vendor.default_url}"
        if key is None and self.needs_key:
            variable = f"{self.vendor.key_variable}, or " if self.vendor.key_variable else ""
            return f"no API key; set {variable}api_key in its configuration"
        return ""


def read_shared(config: LenientConfig, vendor: Vendor, *, api_key: str | None) -> dict[str, Any]:
    """Read the fields of `VendorSettings`; `api_key` wins over the key of that name, and both over the environment."""
    return {
        "vendor": vendor,
        "api_key": api_key or _read_key(config) or os.environ.get(vendor.key_variable) or None,
        "base_url": config.text("base_url", os.environ.get(vendor.url_variable) or vendor.default_url),
        "default_model": config.text("default_model", vendor.default_model, aliases=("model",)),
        "timeout_s": config.number("timeout", 600.0, above=0),
        "limits": TimeLimits.read(config, first_byte_s=vendor.first_byte_s, silence_s=vendor.silence_s),
        "close_timeout_s": config.number("close_timeout", 5.0, above=0),
        "priority": config.integer("priority", 100),
        "raw": read_raw(config),
        "use_streaming": config.boolean("use_streaming", default=True),
        "retry": read_retry_config(config),
        "overloaded_delay_multiplier": config.number("overloaded_delay_multiplier", 10.0, above=0),
        "max_concurrent_requests": config.integer("max_concurrent_requests", 5, minimum=0),
        "rates": read_rates(config),
    }


def access_fields(vendor: Vendor, name: str) -> list[ConfigField]:
    """Return what an application asks a person first: the key, and the address of the server."""
    return [
        ConfigField(
            id="api_key",
            display_name="API key",
            prompt=f"Enter your {name} API key",
            field_type="secret",
            env_var=vendor.key_variable,
        ),
        ConfigField(
            id="base_url",
            display_name="Server",
            prompt=f"Address of {name} or of a compatible server",
            env_var=vendor.url_variable,
            required=False,
            default=vendor.default_url,
        ),
    ]


def _read_key(config: LenientConfig) -> str | None:
    """Return the configured key; one that is not text is not even named in the report."""
    key = config.raw("api_key")
    if key is not None and not isinstance(key, str):
        return config.refuse("api_key", f"a {type(key).__name__}", "a string", None)
    return key
