"""One rule broken at one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong (`code`, `message`), where (`location` is a key path, `file`, `line`), and how to fix it."""

    code: str
    message: str
    location: str = ""
    file: Path | None = None
    line: int | None = None
    fix: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else str(self.file or "")
        where = ": ".join(part for part in (place, self.location) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.fix})" if self.fix else text

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "file": str(self.file) if self.file else None}


def errors(issues: Iterable[Issue]) -> list[Issue]:
    return [issue for issue in issues if issue.severity == "error"]
