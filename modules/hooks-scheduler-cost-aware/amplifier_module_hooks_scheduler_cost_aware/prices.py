"""What tools and agents cost, how long they take, and which of several is the best bargain."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.scheduling import Choice

DEFAULT_TOOL_COSTS: Mapping[str, float] = {
    "web_search": 5,
    "code_analysis": 10,
    "file_write": 1,
    "file_read": 0.5,
    "bash": 2,
}
_DEFAULT_LATENCY_S = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs and latencies by name; the weights add up to 1."""

    costs: Mapping[str, Decimal]
    default_cost: Decimal
    latencies_s: Mapping[str, float]
    cost_weight: float
    latency_weight: float

    @classmethod
    def read(cls, config: ModuleConfig) -> "Prices":
        cost_weight = config.number("cost_weight", 0.6, minimum=0)
        latency_weight = config.number("latency_weight", 0.4, minimum=0)
        total = cost_weight + latency_weight
        costs = _numbers(config.module_id, "tool_costs", config.mapping("tool_costs", DEFAULT_TOOL_COSTS))
        return cls(
            costs={name: Decimal(str(cost)) for name, cost in costs.items()},
            default_cost=Decimal(str(config.number("default_tool_cost", 1.0, minimum=0))),
            latencies_s=_numbers(config.module_id, "tool_latencies", config.mapping("tool_latencies", {})),
            cost_weight=cost_weight / total if total else 0.5,
            latency_weight=latency_weight / total if total else 0.5,
        )

    def cost(self, name: str) -> Decimal:
        return self.costs.get(name, self.default_cost)

    def latency_s(self, name: str) -> float:
        return self.latencies_s.get(name, _DEFAULT_LATENCY_S)

    def cheaper_than(
        self, name: str, available: Sequence[str], *, budget: Decimal, is_usable: Callable[[str], bool]
    ) -> str | None:
        """Return the cheapest usable tool that costs less than `name` and fits the budget, the first among equals."""
        limit = self.cost(name)
        fitting = (
            other for other in available if self.cost(other) < limit and self.cost(other) <= budget and is_usable(other)
        )
        return min(fitting, key=self.cost, default=None)

    def best(self, available: Sequence[str]) -> Choice:
        """Return the option with the best score, the first among equals."""
        dearest = float(max(map(self.cost, available)))
        slowest = max(map(self.latency_s, available))

        def score(name: str) -> float:
            saved = 1 - float(self.cost(name)) / dearest if dearest else 1.0
            gained = 1 - self.latency_s(name) / slowest if slowest else 1.0
            return round(self.cost_weight * saved + self.latency_weight * gained, 4)

        option = max(available, key=score)
        metadata = {
            "cost_weight": self.cost_weight,
            "latency_weight": self.latency_weight,
            "costs": {name: float(self.cost(name)) for name in available},
        }
        rationale = f"{option} costs {float(self.cost(option))} and takes about {self.latency_s(option)} s"
        return Choice(option, score(option), rationale, metadata)


def _numbers(module_id: str, key: str, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values as numbers that are not negative; raises `ValueError` for any that is not."""
    nested = ModuleConfig(f"{module_id} {key}", values)
    numbers = {name: nested.number(name, None, minimum=0) for name in values}
    return {name: number for name, number in numbers.items() if number is not None}
