"""Messages that reach a turn while it runs; the kit has them for every loop."""

from amplifier_kit.loops.settings import DEFAULT_MAXSIZE, SteeringQueue, SteeringQueueFull

__all__ = ["DEFAULT_MAXSIZE", "SteeringQueue", "SteeringQueueFull"]
