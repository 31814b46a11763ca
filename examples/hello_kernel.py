"""A session on the kernel, from the mount plan to the answer. It needs no key and no network.

    python examples/hello_kernel.py [FILE]

FILE is the text that the tool counts the words of; without it, the licence of this repository.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from amplifier_core import AmplifierSession
from amplifier_core.validation import MountPlanValidator

EXAMPLES = Path(__file__).resolve().parent

MODULES = {
    "loop-small": ("orchestrator", "runs the turn: asks the provider, runs tools, asks again"),
    "context-list": ("context", "keeps the messages"),
    "provider-scripted": ("provider", "stands in for a language model and follows a script"),
    "tool-word-count": ("tool", "counts the words of a file"),
    "hooks-trace": ("hook", "observes: prints every event it hears"),
}


def mount_plan(file: Path) -> dict[str, Any]:
    """Say which modules a session has, where they are, and how each is configured."""
    script = [
        {"call": "word_count", "input": {"path": file.name}},
        {"say": '{path} has {words} words on {lines} lines; it uses "{most_frequent}" most, {times} times.'},
    ]
    return {
        "session": {
            "orchestrator": {"module": "loop-small", "source": source("loop-small")},
            "context": {"module": "context-list", "source": source("context-list")},
        },
        "providers": [
            {"module": "provider-scripted", "source": source("provider-scripted"), "config": {"script": script}}
        ],
        "tools": [
            {"module": "tool-word-count", "source": source("tool-word-count"), "config": {"root": str(file.parent)}}
        ],
        "hooks": [{"module": "hooks-trace", "source": source("hooks-trace")}],
    }


def source(module_id: str) -> str:
    return (EXAMPLES / "modules" / module_id).as_uri()


async def main(file: Path) -> None:
    plan = mount_plan(file)
    print(f"A mount plan names five modules, loaded from {EXAMPLES.name}/modules:\n")
    for module_id, (module_type, purpose) in MODULES.items():
        print(f"  {module_type:<13} {module_id:<18} {purpose}")
    print(f"\nThe plan's shape is checked before anything is loaded: {MountPlanValidator().validate(plan).summary()}")

    prompt = f"How long is {file.name}, and which word does it use most?"
    print(f"\nThe prompt: {prompt}\n\nThe events, in order:\n")
    async with AmplifierSession(plan) as session:
        answer = await session.execute(prompt)
    print(f"\nThe answer: {answer}")
    for failure in session.status.load_failures:
        print(f"\nNot loaded: {failure['module_id']}: {failure['error']}")
    print("\ndocs/kernel.md explains each event; docs/contracts/ shows how to write each type of module.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a session on the kernel and print its events.")
    parser.add_argument("file", nargs="?", type=Path, default=EXAMPLES.parent / "LICENSE", metavar="FILE")
    asyncio.run(main(parser.parse_args().file.resolve()))
