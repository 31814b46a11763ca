"""Routes that are made when they are first asked for: a daemon has two hundred, and is to be ready soon."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path

_making = threading.RLock()  # the description of all routes is made in a thread


class LateRoute(APIRoute):
    """A route that knows what it takes to find it. FastAPI makes the rest when something else of it is asked for."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._options: dict[str, Any] | None = options
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}

    def __getattr__(self, name: str) -> Any:
        with _making:
            options, self._options = self._options, None
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
        return self.__getattribute__(name)
