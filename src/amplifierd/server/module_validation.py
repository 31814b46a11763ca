"""Modules are validated in a process of their own: whatever a module does when it is imported, it does it there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amplifier_core.packages import package_name
from amplifier_system.policy.environment_access import SECRET_VARIABLES, EnvironmentAccess
from amplifier_system.processes import ProcessTree, reading

TIMEOUT_S = 60.0
_MAX_OUTPUT_BYTES = 1024 * 1024
_ENVIRONMENT = EnvironmentAccess(("*",), SECRET_VARIABLES)
_PROGRAM = "amplifierd.server.module_validation"


async def validate_in_process(
    path: Path | None, module_id: str, module_type: str | None, config: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the checks of the module at a path, or of the installed one: `{passed, checks[{name, passed, message}]}`.

    A module that ends its process, or takes more than a minute, fails a check of that name.
    """
    place = str(path) if path is not None else package_name(module_id)
    order = json.dumps({"path": place, "type": module_type, "config": dict(config or {})})
    tree = await ProcessTree.start(
        [sys.executable, "-m", _PROGRAM, order], environment=_ENVIRONMENT.filtered(), stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(TIMEOUT_S), reading(tree.stdout) as pipe:
            output = await pipe.read(_MAX_OUTPUT_BYTES)
            await tree.wait()
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
    except TimeoutError:
        return _failed("module_finishes", f"the validation took more than {TIMEOUT_S:g} s")
    except (ValueError, IndexError):
        return _failed("module_survives", f"the module ended the validation (exit {tree.returncode})")
    finally:
        await tree.kill()
    return found


def _failed(name: str, message: str) -> dict[str, Any]:
    return {"passed": False, "checks": [{"name": name, "passed": False, "message": message}]}


def main() -> None:
    """Validate what the argument describes, and print the checks as the last line."""
    from amplifier_core.validation.base import validate_module  # the HTTP process imports this file and no module

    order = json.loads(sys.argv[1])
    answer, sys.stdout = sys.stdout, sys.stderr  # what the module prints is not our answer
    result = asyncio.run(validate_module(order["path"], order["type"], order["config"]))
    checks = [{key: asdict(check)[key] for key in ("name", "passed", "message")} for check in result.checks]
    answer.write(json.dumps({"passed": result.passed, "checks": checks}) + "\n")
    answer.flush()


if __name__ == "__main__":
    main()
