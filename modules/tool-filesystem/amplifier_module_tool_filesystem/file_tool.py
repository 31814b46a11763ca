"""What the three tools have in common: input, worker thread, answers, approval."""

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_kit.concerns import Concern, refusal_of
from amplifier_kit.tools.effects import WRITE
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool, announce, in_worker
from amplifier_kit.tools.workspace import Workspace

from .settings import Settings

logger = logging.getLogger(__name__)


class FileTool(AnsweringTool):
    """A tool for one file; what it does there is `work`, in a worker thread."""

    name: ClassVar[str]
    effects: ClassVar[frozenset[str]]
    description: ClassVar[str]
    input_schema: ClassVar[dict[str, Any]]
    texts: ClassVar[Mapping[str, str]] = {"file_path": "file_path is required"}
    event: ClassVar[str]
    risk_level: ClassVar[str]
    os_error: ClassVar[str]  # how a message about an error of the operating system begins

    def __init__(
        self,
        config: Mapping[str, Any] | None,
        coordinator: Any = None,
        *,
        workspace: Workspace | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings.read(config)
        self.workspace = workspace or Workspace(self.settings, coordinator)

    @property
    def require_approval(self) -> bool:
        return self.settings.require_approval

    def get_metadata(self) -> dict[str, Any]:
        """Return what the approval hook wants to know."""
        return {"requires_approval": self.require_approval, "approval_hints": {"risk_level": self.risk_level}}

    def check(self, given: dict[str, Any]) -> None:
        """Raise `ToolFailure` for input that cannot be right whatever the file is."""

    def work(self, shown: Path, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        """Do the work; returns the output, and the number of bytes to announce, if any."""
        raise NotImplementedError

    def concerns_of(self, given: Mapping[str, Any]) -> tuple[Concern, ...]:
        """Return the running place that a call would write, which a person is asked about by name."""
        file_path = given.get("file_path")
        if WRITE not in self.effects or not isinstance(file_path, str) or not file_path:
            return ()
        try:
            return self.workspace.concerns_of(self.workspace.locate(file_path))
        except (ToolFailure, ValueError):  # it leads nowhere, and the call says so
            return ()

    def require_size(self, data: bytes) -> None:
        """Raise `ToolFailure` for more than may be written."""
        limit = self.settings.max_write_bytes
        if len(data) > limit:
            raise ToolFailure(f"The content has {len(data)} bytes, allowed are {limit}", "too_large")

    async def answer(self, given: Any) -> ToolResult:
        given = read_input(self.name, self.input_schema, given, texts=self.texts)
        self.check(given)
        logger.debug("%s %s", self.name, given["file_path"])
        await self._agree_to(self.concerns_of(given))
        output, count = await in_worker(lambda stop: self._work(given, stop))
        if count is not None:
            await announce(self.workspace.coordinator, self.event, {"path": output["file_path"], "bytes": count})
        return ToolResult(success=True, output=output)

    async def _agree_to(self, concerns: tuple[Concern, ...]) -> None:
        """Make sure that a person agreed to what is about to be written; raises `ToolFailure`."""
        for concern in concerns:
            if refusal := await refusal_of(self.workspace.coordinator, concern, self.name):
                raise ToolFailure(f"Access denied: {refusal}", "access_denied", rule="running_places")
            self.workspace.agreed.add(concern.subject)

    def _work(self, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        shown = self.workspace.locate(given["file_path"])
        try:
            return self.work(shown, given, stop)
        except OSError as exc:
            message = f"{self.os_error}: {exc.strerror or exc} ({shown})"
            raise ToolFailure(message, "io_error", type="OSError", errno=exc.errno) from exc
