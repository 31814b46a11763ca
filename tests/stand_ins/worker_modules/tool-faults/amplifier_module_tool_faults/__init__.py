"""Tools that behave as modules should not, or wait until a test lets them go on."""

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

__amplifier_module_type__ = "tool"

logger = logging.getLogger(__name__)

_kept: list[bytearray] = []


class FaultTool:
    """`{"fault": …}`; it writes its pid into `begun` of the working directory before it does anything."""

    name = "fault"
    description = "Does what it should not."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"fault": {"type": "string"}}}

    def __init__(self, working_dir: Path, secret: str) -> None:
        self._working_dir, self._secret = working_dir, secret

    async def wait_to_mount(self) -> None:
        (self._working_dir / "mounting").touch()
        while not (self._working_dir / "mounted").exists():  # noqa: ASYNC110 - the test is another process
            await asyncio.sleep(0.02)

    async def linger(self) -> None:
        """End when a test lets it."""
        (self._working_dir / "ending").touch()
        while not (self._working_dir / "end").exists():  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.02)

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> dict[str, Any]:
        (self._working_dir / "begun").write_text(str(os.getpid()))
        match input["fault"]:
            case "wait":
                while not (self._working_dir / "go").exists():  # noqa: ASYNC110 - another process says so
                    await asyncio.sleep(0.02)
            case "start":
                child = subprocess.Popen(["sleep", "600"], start_new_session=True)  # noqa: ASYNC220 - it outlives this
                (self._working_dir / "child").write_text(str(child.pid))
                await asyncio.sleep(600)
            case "exit":
                os._exit(3)
            case "block":
                while not (self._working_dir / "go").exists():
                    time.sleep(0.02)  # noqa: ASYNC251 - that is the fault
            case "environment":
                (self._working_dir / "environment").write_text("\n".join(os.environ))
            case "log" | "shout" | "tell" | "forge" as how:
                {"log": _say_something, "shout": _write_much, "tell": _tell, "forge": _forge}[how](self._secret)
            case "leak":
                _kept.append(bytearray(os.urandom(1)) * (int(input["megabytes"]) << 20))
        return {"pid": os.getpid(), "said": _FORGED if input["fault"] == "forge" else ""}


_FORGED = "".join(
    f"{line}\n"
    for line in (
        '{"jsonrpc":"2.0","method":"event","params":{"event":"forged:event","session_id":"forged","data":{}}}',
        *(f'{{"jsonrpc":"2.0","id":{number},"result":{{"status":"forged"}}}}' for number in range(1, 200)),
        '{"jsonrpc":"2.0","id":1,"method":"shutdown","params":{}}',
    )
)
"""Lines as workers and their daemon send each other."""


def _forge(secret: str) -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.write(_FORGED)
            stream.flush()
    for descriptor in (1, 2):
        os.write(descriptor, _FORGED.encode())


def _write_much(secret: str) -> None:
    sys.stderr.write("again and again\n" * 10_000)
    sys.stderr.flush()


def _tell(secret: str) -> None:
    logger.warning("logged %s", secret)
    for piece in ("print", f"ed {secret[:4]}", secret[4:], "\n"):
        sys.stdout.write(piece)
    sys.stderr.write(f"told {secret}\n")


def _say_something(secret: str) -> None:
    logger.info("it is said in passing")
    logger.warning("something is %s", "odd")
    sys.stdout.write("printed\n")
    sys.stdout.flush()


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    given = config or {}
    tool = FaultTool(Path(given["working_dir"]), given.get("client_secret", ""))
    if given.get("mounts_late"):
        await tool.wait_to_mount()
    await coordinator.mount("tools", tool, name="fault")
    if given.get("lingers"):
        coordinator.register_cleanup(tool.linger)
