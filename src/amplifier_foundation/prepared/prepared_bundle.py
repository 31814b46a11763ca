"""A bundle whose modules are activated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import package_name
from amplifier_foundation.modules.declared_tools import declared_tools
from amplifier_foundation.modules.import_paths import ImportPaths
from amplifier_foundation.sources.local import find_package
from amplifier_system.tasks import Opening

from .child import Child, run_child
from .session_setup import open_session
from .system_prompt import SystemPrompt

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.spawn_utils import ProviderPreference


@dataclass
class PreparedBundle:
    """A bundle that is ready to run: its mount plan, where its modules are, and the bundle itself.

    Applications may change `mount_plan` in place and replace `resolver` before they create sessions. It can be copied
    and pickled; where it is unpickled, the first session puts the modules' folders on `sys.path` again.
    """

    mount_plan: dict[str, Any]
    resolver: Any
    bundle: Bundle
    bundle_package_paths: list[str] = field(default_factory=list)
    _import_paths: ImportPaths = field(default_factory=ImportPaths, repr=False, compare=False)

    @property
    def module_exports(self) -> dict[str, list[str]]:
        """The tools of each tool module that is here, by module id, as their source declares them.

        Known before a session loads any: what is missing when a module fails can be named. Modules whose source
        computes the names are not in it.
        """
        exports: dict[str, list[str]] = {}
        for entry in MountPlan(self.mount_plan).entries(section="tools"):
            known = self.resolver.get_module_source(entry.module_id)
            folder = Path(known) if known else find_package(package_name(entry.module_id))
            if folder is not None and (tools := declared_tools(folder)):
                exports[entry.module_id] = [tool.name for tool in tools]
        return exports

    def create_session(
        self,
        session_id: str | None = None,
        parent_id: str | None = None,
        approval_system: Any = None,
        display_system: Any = None,
        session_cwd: Path | None = None,
        is_resumed: bool = False,
    ) -> SessionOpening:
        """Create and initialize a session: `await` it, or `async with prepared.create_session() as session:`.

        `session_cwd` is the session's working directory; without it the bundle's directory, then the process's.
        """
        return SessionOpening(
            open_session(
                self,
                session_id=session_id,
                parent_id=parent_id,
                approval_system=approval_system,
                display_system=display_system,
                session_cwd=session_cwd,
                is_resumed=is_resumed,
            )
        )

    async def spawn(
        self,
        child_bundle: Bundle,
        instruction: str,
        *,
        compose: bool = True,
        parent_session: Any = None,
        session_id: str | None = None,
        orchestrator_config: dict[str, Any] | None = None,
        parent_messages: list[dict[str, Any]] | None = None,
        session_cwd: Path | None = None,
        provider_preferences: Sequence[ProviderPreference] | None = None,
        self_delegation_depth: int = 0,
    ) -> dict[str, Any]:
        """Run one instruction in a child session and return `output`, `session_id`, `status`, `turn_count`, `metadata`.

        With `compose` the child's bundle is laid over this one; otherwise it stands alone. The child is linked to its
        parent's cancellation, and what it costs is added to the parent's account. `parent_messages` become the child's
        history unless a `session_id` is given.
        """
        child = Child(
            compose=compose,
            parent_session=parent_session,
            session_id=session_id,
            orchestrator_config=orchestrator_config,
            messages=None if session_id else parent_messages,
            session_cwd=session_cwd,
            provider_preferences=provider_preferences,
            self_delegation_depth=self_delegation_depth,
        )
        return await run_child(self, child_bundle, instruction, child)

    def _create_system_prompt_factory(
        self, bundle: Bundle, session: Any, session_cwd: Path | None = None
    ) -> Callable[[], Awaitable[str]]:
        """Return the function that a context manager calls for the system prompt of every request."""
        return SystemPrompt(bundle, session, session_cwd or bundle.base_path or Path.cwd()).build


class SessionOpening(Opening["AmplifierSession"]):
    """What `create_session` returns.

    `session = await opening` gives the initialized session; `async with opening as session:` also cleans it up.
    """

    def __init__(self, opening: Coroutine[Any, Any, AmplifierSession]) -> None:
        super().__init__(opening, lambda session: session.cleanup())
