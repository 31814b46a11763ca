"""What is done with a loaded session between two turns; each keeps the next turn waiting until it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifierd.sessions.events.announcements import change_events
from amplifierd.sessions.kernel_session import KernelSession
from amplifierd.sessions.session_setup import SessionSetup
from amplifierd.store.protocol import Message
from amplifierd.store.record import SessionRecord

from .compaction import DOCUMENT as COMPACTION
from .compaction import Compaction, KeptCompaction, compact
from .context_messages import DOCUMENT, for_other_agent
from .transcript import deletions, for_context

if TYPE_CHECKING:
    from amplifierd.sessions.runner import ExecutionRunner


async def append_message(runner: ExecutionRunner, message: Message) -> Message:
    """Add a message to transcript and context without running a turn."""
    async with runner.working():
        runner.transcript.turn = runner.turn
        line = await runner.transcript.add(message, lasting=True)
        await runner.kernel.add_to_context(for_context(line))
        await runner.change(message_count=runner.transcript.count)
        return line


async def compact_now(runner: ExecutionRunner) -> Compaction:
    """Leave older parts of the conversation out of what the model sees, from now on and when it is resumed."""
    async with runner.working():
        done = await compact(runner.kernel.context)
        if (last := runner.transcript.last_id) is not None and done.tokens[1] < done.tokens[0]:
            kept = KeptCompaction(last, max(done.tokens[0], 1))
            await runner.runtime.store.put_document(runner.hold, COMPACTION, kept.to_json())
        return done


async def rewrite(runner: ExecutionRunner, kept: list[Message], dropped: Sequence[Message], turn: int) -> SessionRecord:
    """Put a shorter transcript in place of the whole one; the context is built from it again."""
    async with runner.working():
        await runner.runtime.store.replace_messages(runner.hold, kept)
        runner.turn = turn
        runner.transcript.install(kept)
        await runner.kernel.rebuild(kept, turn)
        changed = {"message_count": len(kept), "turn_count": turn}
        runner.record = await runner.runtime.store.update(runner.hold, **changed)
        await runner.journal.write_all([*deletions(dropped), *change_events(runner.record, [*changed])])
        return runner.record


async def switch(
    runner: ExecutionRunner,
    setup: SessionSetup,
    plan: Mapping[str, Any],
    changes: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> SessionRecord:
    """Go on with another plan and the whole history. Modules that cannot be loaded leave everything as it was.

    Raises:
        RuntimeError: the orchestrator, the context or a required module of the other plan cannot be loaded.
    """
    async with runner.working(load=False):
        before, runner.setup = runner.setup, setup
        kernel = KernelSession(runner)
        try:
            await kernel.load(plan)
            known_so_far = await runner.runtime.store.read_document(runner.session_id, DOCUMENT)
            documents = {DOCUMENT: for_other_agent(known_so_far)}
            await runner.runtime.store.switch_plan(runner.hold, plan, documents, **changes)
        except BaseException:
            runner.setup = before
            await kernel.close()
            raise
        await runner.journal.write("session:profile_changed", facts)
        await runner.close_kernel()
        runner.record = await runner.runtime.store.read(runner.session_id)
        await runner.begin(kernel)
        return runner.record


async def move(runner: ExecutionRunner, working_dir: Path) -> SessionRecord:
    """Go on in another directory: the modules are loaded anew, with the whole history."""
    async with runner.working(load=False):
        await runner.change(working_dir=str(working_dir))
        places = replace(runner.setup.places, working_dir=working_dir)
        runner.setup = replace(runner.setup, places=places)
        await runner.reload()
        return runner.record
