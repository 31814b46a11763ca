"""The first run: what becomes of a profile, then `amplifier run` on it. It needs no key and no network.

    python examples/first_run.py [PROMPT]

The project in `notes/` is copied into a temporary folder, which is also the home of the command and is removed at the
end. PROMPT is for the profile `foundation/offline`, which follows plain requests by rules: "list files",
"read notes.md", "search for milk", one after another with "then".
"""

import argparse
import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import amplifierd

PROFILE = "foundation/offline"
PROMPT = "List files, then read notes.md, then search for milk"
PROJECT = Path(__file__).parent / "notes"
COMMAND = Path(sys.executable).with_name("amplifier")
NEXT = {
    "init": "find a model: a key for Anthropic or OpenAI, or a server on this machine",
    "chat": "chat with an agent in your own project",
    "profile new mine": "write a profile of your own",
}


async def show_phases(home: amplifierd.Home) -> None:
    """Tell what becomes of the profile before it runs, in a line each."""
    await home.collections.sync(["foundation"], compile=False)
    collection = home.collections.get("foundation")
    tell("collection", f"{collection.identifier} has {collection.profile_count} profiles")
    build = await home.profiles.compile(PROFILE)
    tell("profile", f"{PROFILE} extends {', '.join(parent for parent, _ in build.lock.chain)}")
    locked = [names for names, _ in build.lock.resources()]
    tell("lock", f"{len(locked)} modules and folders, each with its version and hash: build {build.build_id[:12]}")
    report = home.plans.validate(await home.plans.generate(PROFILE))
    tell("plan", f"{_modules(locked)}: {len(report.errors)} errors")


def _modules(locked: list[tuple[str, str]]) -> str:
    """Name the modules, and count the tools among them."""
    named = [name for section, name in locked if section in ("orchestrator", "context", "providers", "hooks")]
    return ", ".join([*named, f"{sum(section == 'tools' for section, _ in locked)} tools"])


def tell(phase: str, text: str) -> None:
    print(f"{phase:<11} {text}")


def run_command(home: Path, project: Path, prompt: str) -> int:
    """Run the command in the project, as you would type it; return its exit code."""
    arguments = ["run", "--profile", PROFILE, prompt]
    tell("run", f"amplifier {shlex.join(arguments)}\n")
    sys.stdout.flush()
    environment = {**os.environ, "AMPLIFIERD_HOME": str(home), "AMPLIFIERD_OFFLINE": "1"}
    return subprocess.run([COMMAND, *arguments], cwd=project, env=environment, check=False).returncode


def copy_project(target: Path) -> Path:
    target.mkdir()
    for age, file in enumerate(sorted(PROJECT.iterdir())):
        copied = shutil.copyfile(file, target / file.name)
        os.utime(copied, (1_700_000_000 - age, 1_700_000_000 - age))  # tools list the newest first
    return target


def main(prompt: str) -> int:
    with tempfile.TemporaryDirectory(prefix="first-run-") as temporary:
        folder = Path(temporary).resolve()
        project = copy_project(folder / "notes")
        asyncio.run(show_phases(amplifierd.open_home(folder / "home", offline=True)))
        code = run_command(folder / "home", project, prompt)
    if code == 0:
        print("\nWhat to type next:")
        shown = COMMAND.name if shutil.which("amplifier") == str(COMMAND) else shlex.quote(os.path.relpath(COMMAND))
        width = max(len(arguments) for arguments in NEXT)
        for arguments, effect in NEXT.items():
            print(f"  {shown} {arguments:<{width}}  {effect}")
    return code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show what becomes of a profile and run one prompt on it.")
    parser.add_argument("prompt", nargs="?", default=PROMPT, metavar="PROMPT")
    sys.exit(main(parser.parse_args().prompt))
