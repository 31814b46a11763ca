"""What a provider knows about its vendor's models: a table in a file, so that a new model is a changed row.

`models.json` in the provider's package: `{"format_version": 1, "default_model": str, "rows": [{"match": regex, …}]}`.
"""

import json
import re
from importlib.resources import files

from amplifier_kit.types import Config, JsonObject

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
