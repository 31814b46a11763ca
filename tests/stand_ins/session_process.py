"""A process that holds a session and runs the prompts that it is given, line by line.

    python session_process.py FOLDER SESSION_ID create|resume|take-over

It writes what happens as lines of JSON: `held`, or the error that kept it from holding the session, then every event,
and for each prompt its result.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from crashing_sessions import open_home, plan

from amplifierd.exceptions import SessionError


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts, default=str) + "\n")
    sys.stdout.flush()


def tell_event(event: dict[str, Any]) -> bool:
    tell(event=event["event"], session_id=event["session_id"], sequence=event["sequence"])
    return False


async def main(folder: Path, session_id: str, how: str) -> None:
    home = open_home(folder)
    opening = (
        home.sessions.open(plan=plan(folder), working_dir=folder / "work", session_id=session_id)
        if how == "create"
        else home.sessions.resume(session_id, take_over=how == "take-over")
    )
    try:
        session = await opening
    except SessionError as error:
        tell(error=type(error).__name__, message=error.message, holder=getattr(error, "holder", None))
        return
    session.subscribe(tell_event)
    tell(held=session_id)
    while prompt := (await asyncio.to_thread(sys.stdin.readline)).strip("\n"):
        try:
            tell(result=(await session.execute(prompt)).status)
        except SessionError as error:
            tell(error=type(error).__name__, message=error.message)
    await session.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
