"""A small MCP server written by hand, for everything that no decent server does. Needs the standard library only."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAM = str(Path(__file__))
REVISION = "2025-06-18"


def entry(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Return the entry of this server in a module's configuration."""
    return {"command": sys.executable, "args": ["-S", "-I", PROGRAM, *arguments], **keys}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(file: str, text: str) -> None:
    if file:
        with Path(file).open("a") as stream:
            stream.write(text + "\n")


def listed(options: argparse.Namespace) -> list[dict[str, Any]]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in options.tools]
    return tools + json.loads(options.definitions)


def page(options: argparse.Namespace, cursor: str | None) -> dict[str, Any]:
    tools = listed(options)
    if not options.pages:
        return {"tools": tools}
    number = int(cursor or 0)
    following = str(number + 1) if number + 1 < len(tools) else options.last_cursor
    return {"tools": tools[number : number + 1], **({"nextCursor": following} if following else {})}


def call(options: argparse.Namespace, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return what is answered to a call, None for nothing."""
    name, arguments = params["name"], params.get("arguments") or {}
    note(options.calls, json.dumps([name, arguments]))
    if name == "silence":
        return None
    if name == "crash":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "close":
        os.close(1)
        time.sleep(60)
    if name == "run":
        command = [arguments["command"]]
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return {"result": {"content": [{"type": "text", "text": done.stdout + done.stderr}]}}
    if name == "repeat":
        return arguments
    if name == "flood":
        block = {"type": "text", "text": "x" * arguments.get("length", 1)}
        return {"result": {"content": [block] * arguments["blocks"]}}
    if name == "shout":
        sys.stderr.write(arguments["text"] + "\n")
        sys.stderr.flush()
    text = json.dumps(dict(os.environ)) if name == "environment" else arguments.get("text", f"{name} was called")
    return {"result": {"content": [{"type": "text", "text": text}]}}


def answer(options: argparse.Namespace, message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        note(options.calls, json.dumps([method, params.get("reason")]))
        return
    reply: dict[str, Any] | None
    if method == "initialize":
        tools = {"tools": {"listChanged": True}}
        info = {"name": "raw", "version": "0"}
        reply = {"result": {"protocolVersion": options.revision, "capabilities": tools, "serverInfo": info}}
    elif method == "tools/list":
        reply = {"result": page(options, params.get("cursor"))}
    elif method == "tools/call":
        reply = call(options, params)
    else:
        reply = {"error": {"code": -32601, "message": f"{method} is not known"}}
    if reply is not None:
        send({"id": message["id"], **reply})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", nargs="*", default=["echo"])
    parser.add_argument("--definitions", default="[]", help="further tools, as the protocol has them")
    parser.add_argument("--pages", action="store_true", help="one tool at a time")
    parser.add_argument("--last-cursor", default="", help="what the last page points to")
    parser.add_argument("--revision", default=REVISION)
    parser.add_argument("--starts", default="", help="file that gets a line for each start")
    parser.add_argument("--calls", default="", help="file that gets a line for each call and notification")
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--exit", type=int, default=None, help="exit at once")
    parser.add_argument("--print", default="", help="what else is printed to stdout")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM and the end of stdin")
    parser.add_argument("--family", action="store_true", help="start a child, and a grandchild that leaves")
    parser.add_argument("--deaf", action="store_true", help="read nothing after the tools were listed")
    options = parser.parse_args()
    note(options.starts, str(os.getpid()))
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.family:
        child = "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
        subprocess.Popen([sys.executable, "-S", "-I", "-c", child])
    time.sleep(options.delay)
    if options.exit is not None:
        sys.stderr.write("cannot start\nbecause of this\n")
        sys.exit(options.exit)
    if options.print:
        sys.stdout.write(options.print + "\n")
    for line in sys.stdin:
        message = json.loads(line)
        answer(options, message)
        if options.deaf and message.get("method") == "tools/list":
            time.sleep(60)
    while options.stubborn:
        time.sleep(1)


if __name__ == "__main__":
    main()
