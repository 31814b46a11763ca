"""What calls cost: prices from the configuration or from the `genai-prices` package, and the session's sum."""

import asyncio
import importlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

from amplifier_core import Usage
from amplifier_kit.config import LenientConfig
from amplifier_kit.mounting import contribute
from amplifier_kit.types import Config, Coordinator, JsonObject

logger = logging.getLogger(__name__)

_MILLION = Decimal(1_000_000)
_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_RATE_KEYS = ("input_per_m", "output_per_m", "cache_read_per_m", "cache_write_per_m")


class CostTally:
    """The sum of what a provider's calls cost, offered to the session in the channel `session.cost`."""

    def __init__(self) -> None:
        self._sum: Decimal | None = None

    def add(self, cost: Decimal | None) -> None:
        """Count a call, also one that failed after the vendor reported what it used."""
        if cost is not None:
            self._sum = cost if self._sum is None else self._sum + cost

    def contribution(self) -> dict[str, str] | None:
        """Return the sum so far, None when nothing had a price."""
        return None if self._sum is None else {"cost_usd": str(self._sum)}

    def contribute(self, coordinator: Coordinator, module_id: str) -> None:
        """Offer the sum under the module's id, where the coordinator has contribution channels."""
        contribute(coordinator, "session.cost", module_id, self.contribution)


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What a price is calculated from; `input_tokens` includes cache reads and writes."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @classmethod
    def of(cls, usage: Usage, *, has_writes_in_input: bool = False, cache_write_1h_tokens: int = 0) -> "TokenCounts":
        """Return the counts of a call; `has_writes_in_input` says whether the vendor counts cache writes as input."""
        reads, writes = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
        gross = usage.input_tokens if has_writes_in_input else usage.input_tokens + writes
        return cls(gross, usage.output_tokens, reads, writes, cache_write_1h_tokens)


def summed(usages: Sequence[Usage]) -> Usage:
    """Return what several exchanges used together; what one of them cost without a price makes the sum unknown."""
    if len(usages) == 1:
        return usages[0]
    total: dict[str, Any] = {}
    for usage in usages:
        for name, value in usage:
            if value is not None:
                total[name] = total[name] + value if name in total else value
    if any(usage.cost_usd is None for usage in usages):
        total["cost_usd"] = None
    return Usage.model_validate(total)


class Prices:
    """Prices of one vendor's models: the configured `rates` first, then those of `genai-prices`.

    `vendor` is what that package calls the vendor: `provider_id="anthropic"`, or for a compatible server
    `provider_api_url="https://…"`.
    """

    def __init__(self, module_id: str, rates: Mapping[str, Mapping[str, Decimal]], **vendor: str) -> None:
        self._module_id = module_id
        self._rates = rates
        self._vendor = vendor
        self._package: Any = None
        self._is_package_missing = False
        self._is_package_read = False
        self._unknown: set[str] = set()

    async def cost_of(self, model: str, counts: TokenCounts) -> Decimal | None:
        """Return what a call cost, None when no price is known."""
        rates = self._rates.get(model) or self._rates.get(_DATE.sub("", model))
        if rates is not None:
            return _by_rates(rates, counts)
        package = await self._load()
        if package is None or self._is_package_read:
            return None if package is None else self._by_package(package, model, counts)
        cost = await asyncio.to_thread(self._by_package, package, model, counts)  # its first price takes it a while
        self._is_package_read = True
        return cost

    async def _load(self) -> Any:
        if self._package is None and not self._is_package_missing:
            try:
                self._package = await asyncio.to_thread(importlib.import_module, "genai_prices")
            except ImportError:
                self._is_package_missing = True
                logger.warning("%s: costs are unknown, genai-prices is not installed", self._module_id)
        return self._package

    def _by_package(self, package: Any, model: str, counts: TokenCounts) -> Decimal | None:
        details = {
            "input_tokens": counts.input_tokens,
            "output_tokens": counts.output_tokens,
            "cache_read_tokens": counts.cache_read_tokens or None,
            "cache_write_tokens": counts.cache_write_tokens or None,
        }
        if counts.cache_write_1h_tokens:
            details["cache_write_1h_tokens"] = counts.cache_write_1h_tokens
        try:
            price = package.calc_price(package.Usage(**details), model, **self._vendor)
        except (LookupError, ValueError) as exc:
            if model not in self._unknown:
                self._unknown.add(model)
                logger.debug("%s: no price for %s: %s", self._module_id, model, exc)
            return None
        return Decimal(str(price.total_price))


def read_rates(config: LenientConfig) -> dict[str, dict[str, Decimal]]:
    """Read the key `rates`: `{model: {input_per_m, output_per_m, cache_read_per_m, cache_write_per_m}}`."""
    rates: dict[str, dict[str, Decimal]] = {}
    for model, given in config.mapping("rates", {}).items():
        try:
            rates[model] = {key: Decimal(str(given[key])) for key in _RATE_KEYS if given.get(key) is not None}
        except (AttributeError, TypeError, InvalidOperation):
            config.refuse(f"rates.{model}", given, f"a mapping of {', '.join(_RATE_KEYS)} to numbers", None)
    return rates


def _by_rates(rates: Mapping[str, Decimal], counts: TokenCounts) -> Decimal:
    """Return the price; a kind of token without a rate of its own costs as input, output tokens without one nothing."""
    input_rate = rates.get("input_per_m", Decimal(0))
    parts = (
        (counts.input_tokens - counts.cache_read_tokens - counts.cache_write_tokens, input_rate),
        (counts.output_tokens, rates.get("output_per_m", Decimal(0))),
        (counts.cache_read_tokens, rates.get("cache_read_per_m", input_rate)),
        (counts.cache_write_tokens, rates.get("cache_write_per_m", input_rate)),
    )
    return sum((tokens * rate for tokens, rate in parts), Decimal(0)) / _MILLION


# What a provider knows about its vendor's models: a table in a file, so that a new model is a changed row.
#
# `models.json` in the provider's package: `{"format_version": 1, "default_model": str, "rows": [{"match": regex,
# …}]}`.


_FORMAT_VERSION = 1


class ModelTable:
    """The rows of a package's `models.json`, read at first use."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._data: JsonObject = {}
        self._rows: list[tuple[re.Pattern[str], JsonObject]] = []

    @property
    def data(self) -> Config:
        """The whole file, for what a vendor needs beside the rows."""
        self._read()
        return self._data

    @property
    def default_model(self) -> str:
        return str(self.data["default_model"])

    def row(self, model: str) -> Config:
        """Return the first row whose pattern is found in the lower-cased id; the last one matches every id."""
        return next(row for pattern, row in self._read() if pattern.search(model.lower()))

    def _read(self) -> list[tuple[re.Pattern[str], JsonObject]]:
        if not self._rows:
            self._data = json.loads((files(self._package) / "models.json").read_text(encoding="utf-8"))
            version = self._data.get("format_version")
            if version != _FORMAT_VERSION:
                raise ValueError(f"{self._package}/models.json has format {version!r}, known is {_FORMAT_VERSION}")
            self._rows = [(re.compile(row["match"]), row) for row in self._data["rows"]]
        return self._rows
