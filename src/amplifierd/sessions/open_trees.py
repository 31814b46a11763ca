"""The trees of sessions that this process works in: each is held through its root, whichever of its members is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from amplifier_core.display import DisplaySystem
from amplifier_system.tasks import run_to_end
from amplifierd.limits import Limits
from amplifierd.sessions.events.announcements import created_at
from amplifierd.sessions.events.tree_history import tree_history
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.layers.usage import Usage
from amplifierd.sessions.questions.approval import Approver
from amplifierd.sessions.questions.approvals import ApprovalQueue
from amplifierd.sessions.questions.lasting_approvals import LastingApprovals
from amplifierd.store.cursor import Cursor
from amplifierd.store.protocol import Hold, Holder, NewSession

from .runtime import Runtime
from .tree import SessionTree

APPROVALS = "approvals"


@dataclass
class _OpenTree:
    hold: Hold
    users: int = 0
    tree: SessionTree | None = None
    new: NewSession | None = None


class OpenTrees:
    """Holds trees while someone uses them, so that one process numbers a tree's events and counts its usage."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._store = runtime, runtime.store
        self._open: dict[str, _OpenTree] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def find(self, root_id: str) -> SessionTree | None:
        """Return what the open sessions of a tree share, None when none is open."""
        found = self._open.get(root_id)
        return found.tree if found is not None else None

    @asynccontextmanager
    async def held(self, root_id: str) -> AsyncIterator[Hold]:
        """Hold a tree while the block runs; gives the hold of its root.

        Raises:
            SessionHeldError: another process works in it.
        """
        hold = await self.enter(root_id)
        try:
            yield hold
        finally:
            await run_to_end(self.leave(root_id))

    async def enter(self, root_id: str, *, take_over: bool = False) -> Hold:
        """Hold a tree until `leave`; gives the hold of its root.

        Raises:
            SessionHeldError: another process works in it, and `take_over` is not set.
        """
        async with self._alone(root_id):
            found = self._open.get(root_id)
            if found is None:
                found = self._open[root_id] = _OpenTree(await self._acquire(root_id, take_over))
            found.users += 1
            return found.hold

    def begin(self, hold: Hold, new: NewSession) -> None:
        """Take note of a tree whose root was created just now."""
        self._open[hold.session_id] = _OpenTree(hold, users=1, new=new)

    async def leave(self, root_id: str) -> None:
        """Let one user go; with the last one the tree is free."""
        async with self._alone(root_id):
            found = self._open[root_id]
            found.users -= 1
            if not found.users:
                del self._open[root_id]
                await self._store.release(found.hold)

    async def tree(self, root_id: str, approver: Approver, display: DisplaySystem | None) -> SessionTree:
        """Return what the sessions of a held tree share, at first as the store has it.

        Raises:
            SettingsError: the home's list of lasting approvals is damaged.
        """
        async with self._alone(root_id):
            found = self._open[root_id]
            if found.tree is None:
                if found.new is not None:  # there is nothing to read yet
                    root, last, used = found.new.record, created_at(found.new), Usage()
                else:
                    last, used = await tree_history(self._store, root_id)
                    root = await self._store.read(root_id)
                budget = TreeBudget(Limits.read(root.limits), used)
                lasting = LastingApprovals(self._runtime.paths, root.working_dir)
                await asyncio.to_thread(lasting.read)  # a damaged list is an error now, not at the first question
                found.tree, found.new = self._tree(found.hold, last, budget, approver, display, lasting), None
                found.tree.permissions.chosen = root.permission_level
            return found.tree

    def _tree(
        self,
        hold: Hold,
        last: Cursor,
        budget: TreeBudget,
        approver: Approver,
        display: DisplaySystem | None,
        lasting: LastingApprovals,
    ) -> SessionTree:
        root_id, store = hold.session_id, self._store

        async def emit(event: str, data: dict[str, Any]) -> None:
            asking = tree.runners.get(str(data.get("session_id"))) or tree.runners.get(root_id)
            if asking is not None:
                await asking.journal.write(event, data)
                asking.status.tell()

        async def load() -> Any:
            return await store.read_document(root_id, APPROVALS)

        async def save(value: Any) -> None:
            await store.put_document(hold, APPROVALS, value)

        approvals = ApprovalQueue(root_id, emit=emit, load=load, save=save, approver=approver, lasting=lasting)
        events = self._runtime.announcements.tree(root_id, last.resumed(hold.epoch))
        tree = SessionTree(store, hold, events, budget, approvals, display=display)
        return tree

    async def _acquire(self, root_id: str, take_over: bool) -> Hold:
        before = await self._store.holder_of(root_id) if take_over else None
        hold = await self._store.acquire(root_id, self._runtime.holder, take_over=take_over)
        try:
            if before is not None:
                await self._take_children_over(root_id, before.holder)
        except BaseException:
            await run_to_end(self._store.release(hold))
            raise
        return hold

    async def _take_children_over(self, root_id: str, holder: Holder) -> None:
        """Let no child go on in the process that its root was taken from."""
        for below in await self._store.descendants(root_id):
            hold = await self._store.holder_of(below)
            if hold is not None and hold.holder == holder:
                await self._store.release(await self._store.acquire(below, self._runtime.holder, take_over=True))

    def _alone(self, root_id: str) -> asyncio.Lock:
        return self._locks.setdefault(root_id, asyncio.Lock())
