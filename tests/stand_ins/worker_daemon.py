"""A process with workers, as the daemon is: it runs one turn and waits to be killed.

    python worker_daemon.py HOME SESSION_ID PROMPT MODULE_ROOT

It writes the pid of the worker, and which modules it has imported itself, as one line of JSON.
"""

import asyncio
import json
import sys

import amplifierd
from amplifierd.workers.live_sessions import TurnRequest
from amplifierd.workers.workers import Workers


async def main(home: str, session_id: str, prompt: str, root: str) -> None:
    opened = amplifierd.open_home(home, offline=True, overrides={"security": {"module_roots": [root]}})
    live = Workers(opened.sessions, opened.resolver, shipped_collection=opened.shipped_collection)
    await live.start()
    submitted = await live.submit(session_id, TurnRequest(prompt))
    (worker,) = [one.pid for one in live.workers() if one.sessions]
    imported = sorted(name for name in sys.modules if name.startswith("amplifier_module_"))
    sys.stdout.write(json.dumps({"worker": worker, "imported": imported}) + "\n")
    sys.stdout.flush()
    await submitted.result


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
