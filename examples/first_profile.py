"""From a profile to an answer: the three phases of a profile's life, then one prompt. It needs no key and no network.

    python examples/first_profile.py [PROMPT]

A profile is a markdown file that says which modules an agent has. A collection is where profiles come from; the one
used here, `foundation`, is shipped with the product. Compiling a profile resolves everything it names and locks it.
From the result a mount plan is generated, which is all that the kernel needs to start a session. `home.sessions` does
all of that, runs the session and stores it.

Everything happens in a temporary folder, which is removed at the end. PROMPT is for the profile `foundation/offline`,
which follows plain requests by rules: "list files", "read notes.md", "search for milk", one after another with "then".
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import amplifierd

PROFILE = "foundation/offline"
PROMPT = "List files, then read notes.md, then search for milk"
FILES = {"notes.md": "# Notes\n\n- buy milk\n- call Ada\n", "plan.txt": "First the milk.\nThen the rest.\n"}


async def show_collection(home: amplifierd.Home) -> None:
    """Phase 1: the collection's profiles are copied into the home."""
    await home.collections.sync(["foundation"], compile=False)
    collection = home.collections.get("foundation")
    heading(1, f"The collection {collection.identifier} ({collection.source}) has {collection.profile_count} profiles")
    for profile in collection.profiles:
        print(f"   {profile.name:<12} {profile.version:<7} {collection.identifier}:{profile.path}")


async def compile_profile(home: amplifierd.Home) -> None:
    """Phase 2: everything that the profile and its ancestors name is resolved and locked."""
    build = await home.profiles.compile(PROFILE)
    ancestors = ", ".join(parent for parent, _ in build.lock.chain)
    heading(2, f"The profile {PROFILE}, which extends {ancestors}, is {build.status}: build {build.build_id[:12]}")
    for (section, name), entry in build.lock.resources():
        version = entry.get("version") or entry["content_hash"].removeprefix("sha256:")[:12]
        print(f"   {section:<13} {name:<17} {entry['kind']:<10} {version}")


async def show_plan(home: amplifierd.Home) -> None:
    """Phase 3: the mount plan is generated."""
    plan = await home.plans.generate(PROFILE)
    report = home.plans.validate(plan)
    heading(3, f"The mount plan has {len(report.errors)} errors and {len(report.warnings)} warnings; its session:")
    print(indented(json.dumps(plan["session"], indent=2)))
    origin = (await home.plans.explain(PROFILE, "tools[tool-filesystem].config.read_before_write"))["origin"]
    print("\n   The origin of every value is known: tool-filesystem's read_before_write")
    print(f"   comes from {origin['profile']}, line {origin['line']}.")


async def answer(home: amplifierd.Home, prompt: str, working_dir: Path) -> str:
    """Run one prompt in a session of the profile, and show what it does meanwhile."""
    response = ""
    async with home.sessions.open(PROFILE, working_dir=working_dir) as session:
        async for event in session.stream(prompt):
            data = event["data"]
            if event["event"] == "tool:pre":
                print(f"   the agent uses {data['tool_name']} {json.dumps(data['tool_input'])}")
            elif event["event"] == "execution:done":
                response = data["response"]
    stored = home.sessions.get(session.session_id)
    print(f"\n   The session is stored, with {stored.message_count} messages; home.sessions.resume() goes on with it.")
    return response


def heading(number: int, text: str) -> None:
    print(f"\n{number}. {text}\n")


def indented(text: str) -> str:
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())


async def main(prompt: str, folder: Path) -> None:
    working_dir = folder / "work"
    working_dir.mkdir()
    for name, text in FILES.items():
        (working_dir / name).write_text(text)

    print("A home is opened in a temporary folder.")
    home = amplifierd.open_home(folder / "home", offline=True)
    await show_collection(home)
    await compile_profile(home)
    await show_plan(home)

    heading(4, f"The prompt: {prompt}")
    text = await answer(home, prompt, working_dir)
    await home.sessions.close()
    print("\nThe answer:\n")
    print(indented(text.replace(f"{working_dir}/", "")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compile a profile, generate its mount plan and run one prompt.")
    parser.add_argument("prompt", nargs="?", default=PROMPT, metavar="PROMPT")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-profile-") as temporary:
        asyncio.run(main(arguments.prompt, Path(temporary).resolve()))
    print("\nThe folder has been removed again. docs/lifecycle.md tells the whole story.")
