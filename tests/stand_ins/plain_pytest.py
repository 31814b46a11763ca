"""Pytest in a process of its own, without plugins that are slow to load and not asked for there."""

_NOT_ASKED_FOR = ("anyio", "cacheprovider", "hypothesispytest", "schemathesis", "xdist")

OPTIONS = tuple(option for name in _NOT_ASKED_FOR for option in ("-p", f"no:{name}"))
