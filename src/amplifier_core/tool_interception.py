"""Calls of tools, seen before they run, whatever runs them: a loop, a hook, another tool.

A tool stays the object that its module mounted. Only its `execute` is replaced, on that object, as long as the session
has interceptors; one that takes no attribute is mounted behind a stand-in.
"""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, NamedTuple, Protocol

from .mounting import NotedDict

Proceed = Callable[[Any], Awaitable[Any]]


class ToolInterceptor(Protocol):
    """Sees a call of a tool, and runs it with `await proceed(tool_input)`, or answers in its place."""

    async def __call__(self, tool_name: str, tool: Any, tool_input: Any, proceed: Proceed) -> Any: ...


class ToolInterception:
    """The interceptors of one session, by the names they go by; a later one is asked before an earlier one."""

    def __init__(self) -> None:
        self.interceptors: dict[str, ToolInterceptor] = {}
        self._covered: list[_Covered] = []

    def cover(self, tool_name: str, tool: Any) -> Any:
        """Have calls of a tool intercepted; returns what is to be mounted: the tool itself, or what stands for it."""
        original = getattr(tool, "execute", None)
        if not callable(original) or getattr(original, "interception", None) is self:
            return tool
        execute = self._intercepted(tool_name, tool, original)
        own = getattr(tool, "__dict__", {}).get("execute", _ABSENT)
        try:
            object.__setattr__(tool, "execute", execute)
        except (AttributeError, TypeError):
            return _StandIn(tool, execute)
        if tool.execute is not execute:
            return _StandIn(tool, execute)
        self._covered.append(_Covered(tool, execute, own))
        return tool

    def end(self) -> None:
        """Give every tool its own `execute` back."""
        self.interceptors.clear()
        while self._covered:
            self._covered.pop().restore()

    def _intercepted(self, tool_name: str, tool: Any, original: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        @wraps(original, updated=())
        async def execute(*args: Any, **named: Any) -> Any:
            if len(args) == 1 and not named:  # as tools are called
                tool_input, proceed = args[0], original
            else:
                tool_input, proceed = args[0] if args else named.get("input"), _with_rest(original, args, named)
            if not self.interceptors:
                return await proceed(tool_input)
            *earlier, latest = self.interceptors.values()
            for interceptor in earlier:
                proceed = partial(interceptor, tool_name, tool, proceed=proceed)
            return await latest(tool_name, tool, tool_input, proceed)

        execute.interception = self  # type: ignore[attr-defined]  # how a tool that is covered already is recognized
        return execute


def is_covered(tool: Any) -> bool:
    """True if calls of a tool are intercepted."""
    return isinstance(getattr(getattr(tool, "execute", None), "interception", None), ToolInterception)


class MountedTools(NotedDict):
    """The mount point `tools`: what is mounted while there are interceptors is covered."""

    __slots__ = ("_interception",)

    def __init__(self) -> None:
        super().__init__()
        self._interception: ToolInterception | None = None

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value if self._interception is None else self._interception.cover(key, value))

    def intercept(self, name: str, interceptor: ToolInterceptor) -> "Interception":
        """Add an interceptor, in place of the one of that name; returns what takes it back."""
        if self._interception is None:
            self._interception = ToolInterception()
        interception = self._interception
        before = interception.interceptors.get(name)
        interception.interceptors[name] = interceptor
        for key, tool in self.items():
            dict.__setitem__(self, key, interception.cover(key, tool))
        return Interception(interception, name, interceptor, before)

    def end_interception(self) -> None:
        if self._interception is not None:
            self._interception.end()
            self._interception = None


class Interception(NamedTuple):
    """An interceptor that was added, and what it replaced."""

    interception: ToolInterception
    name: str
    interceptor: ToolInterceptor
    before: ToolInterceptor | None

    def undo(self) -> None:
        """Take it back, unless another one has taken its place since."""
        interceptors = self.interception.interceptors
        if interceptors.get(self.name) is not self.interceptor:
            return
        if self.before is None:
            del interceptors[self.name]
        else:
            interceptors[self.name] = self.before


_ABSENT: Any = object()


class _Covered(NamedTuple):
    tool: Any
    execute: Any
    own: Any

    def restore(self) -> None:
        if getattr(self.tool, "execute", None) is not self.execute:
            return  # replaced since, by another session for instance
        if self.own is _ABSENT:
            object.__delattr__(self.tool, "execute")
        else:
            object.__setattr__(self.tool, "execute", self.own)


class _StandIn:
    """A tool that takes no attribute, with another `execute`."""

    def __init__(self, tool: Any, execute: Callable[..., Awaitable[Any]]) -> None:
        self.__wrapped__, self.execute = tool, execute

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


def _with_rest(original: Callable[..., Awaitable[Any]], args: tuple[Any, ...], named: dict[str, Any]) -> Proceed:
    """Return what calls a tool with another input, and otherwise as it was called."""
    if args:
        return lambda tool_input: original(tool_input, *args[1:], **named)
    return lambda tool_input: original(**({**named, "input": tool_input} if "input" in named else named))
