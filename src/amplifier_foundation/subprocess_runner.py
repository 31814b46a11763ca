"""A child session in a process of its own: its configuration goes in as JSON, and its answer comes back."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_core.utils import json_safe
from amplifier_system.processes import ProcessTree, reading

_KEPT_CHARACTERS = 2000


class SubprocessSessionError(AmplifierError, RuntimeError):
    """A session in a process of its own gave no answer."""


async def run_session_in_subprocess(
    config: dict[str, Any],
    prompt: str,
    parent_id: str | None,
    project_path: str | Path,
    *,
    session_id: str | None = None,
    module_paths: Mapping[str, str | Path] | None = None,
    bundle_package_paths: Sequence[str] | None = None,
    sys_paths: Sequence[str] | None = None,
    mention_mappings: Mapping[str, str | Path] | None = None,
    timeout: float = 1800,  # noqa: ASYNC109 - the name that applications use
) -> str:
    """Run one prompt in a session of a new process, and return its answer.

    `config` is the mount plan, and `project_path` the working directory. `module_paths` says where modules are,
    `sys_paths` and `bundle_package_paths` what else can be imported, and `mention_mappings` where namespaces are.

    Raises:
        TimeoutError: it took longer than `timeout` seconds, and was ended.
        SubprocessSessionError: the session failed, or its process ended without an answer.
    """
    order = {
        "config": json_safe(config),
        "prompt": prompt,
        "parent_id": parent_id,
        "project_path": str(project_path),
        "session_id": session_id,
        "module_paths": {name: str(path) for name, path in (module_paths or {}).items()},
        "paths": [*map(str, sys_paths or ()), *map(str, bundle_package_paths or ())],
        "bundle_package_paths": [*map(str, bundle_package_paths or ())],
        "mentions": {name: str(path) for name, path in (mention_mappings or {}).items()},
    }
    with tempfile.TemporaryDirectory() as folder:  # for this user alone: a plan may hold keys
        file = Path(folder, "session.json")
        await asyncio.to_thread(file.write_text, json.dumps(order), encoding="utf-8")
        async with asyncio.timeout(timeout):  # -P: what lies in the project takes no package's place
            printed = await _run([sys.executable, "-P", "-m", __name__, str(file)], project_path)
        answer = file.with_suffix(".answer")
        if not answer.is_file():
            found = printed.strip()[-_KEPT_CHARACTERS:] or "it said nothing"
            raise SubprocessSessionError(f"the process of session {session_id or 'without an id'} failed: {found}")
        return str(json.loads(await asyncio.to_thread(answer.read_text, encoding="utf-8")))


async def _run(command: Sequence[str], directory: str | Path) -> str:
    """Run a process to its end, with everything it starts, and return what it printed."""
    errors = asyncio.subprocess.STDOUT
    tree = await ProcessTree.start(command, cwd=Path(directory), environment=os.environ, stderr=errors)
    try:
        async with reading(tree.stdout) as stream:
            printed = await stream.read()
        await tree.wait()
    finally:
        tree.close_pipes()
        await tree.kill()
    return printed.decode("utf-8", "replace")


async def _answer(order: Mapping[str, Any]) -> str:
    """Run the session that an order describes."""
    from amplifier_core import AmplifierSession
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.mentions import BaseMentionResolver
    from amplifier_foundation.prepared import BundleModuleResolver
    from amplifier_foundation.session.capabilities import set_working_dir

    session = AmplifierSession(order["config"], session_id=order["session_id"], parent_id=order["parent_id"])
    coordinator, project = session.coordinator, Path(order["project_path"])
    modules = {name: Path(path) for name, path in order["module_paths"].items()}
    await coordinator.mount("module-source-resolver", BundleModuleResolver(modules))
    coordinator.register_capability("bundle_package_paths", order["bundle_package_paths"])
    set_working_dir(coordinator, project)
    namespaces = {name: Bundle(name=name, base_path=Path(path)) for name, path in order["mentions"].items()}
    coordinator.register_capability("mention_resolver", BaseMentionResolver(bundles=namespaces, base_path=project))
    async with session:
        return await session.execute(order["prompt"])


def main(file: Path) -> None:
    """Run the order in a file and write the answer beside it."""
    order = json.loads(file.read_text(encoding="utf-8"))
    sys.path += [path for path in order["paths"] if path not in sys.path]
    answer = asyncio.run(_answer(order))
    file.with_suffix(".answer").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
