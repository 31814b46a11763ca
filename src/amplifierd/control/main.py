"""The command `amplifierd`: serve a home, in this terminal or in the background."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from amplifier_core import __version__
from amplifier_core.exceptions import AmplifierError
from amplifier_system.startup import begin_the_start
from amplifier_system.visible import open_screens, say, screens
from amplifierd.exceptions import SettingsError
from amplifierd.os_errors import explained
from amplifierd.paths import Paths
from amplifierd.server.log_files import LOG_FILE
from amplifierd.server.run_file import find_running

from . import background, cluster, tokens
from .background import ExitCode, code_of

app = typer.Typer(
    name="amplifierd",
    help="Serve the sessions of one home to many clients, over HTTP.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(tokens.app, name="token")
app.add_typer(cluster.app, name="cluster")
services = typer.Typer(help="Start the daemon when the machine starts.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(services, name="service")


@dataclass(frozen=True)
class Chosen:
    """What stands before the command: which home, and which settings file."""

    home: Path | None
    config: Path | None

    @property
    def paths(self) -> Paths:
        return Paths.from_environment(self.home)

    @property
    def arguments(self) -> list[str]:
        home = ["--home", str(self.home)] if self.home else []
        return [*home, *(["--config", str(self.config)] if self.config else [])]


@app.callback()
def root(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The home to serve, instead of AMPLIFIERD_HOME or ~/.amplifierd.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings file, instead of config/daemon.yaml.")
    ] = None,
) -> None:
    ctx.obj = Chosen(home, config)


Host = Annotated[str | None, typer.Option(help="The address to listen on.")]
Port = Annotated[int | None, typer.Option(help="The port to listen on; 0 picks a free one.")]
Socket = Annotated[Path | None, typer.Option(help="The Unix socket to listen on.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
Offline = Annotated[bool | None, typer.Option("--offline", help="Do not use the network.")]
DefaultProfile = Annotated[str | None, typer.Option(help="The default profile of new sessions.")]
WorkingDir = Annotated[Path | None, typer.Option(help="The default directory of new sessions.")]
Tls = Annotated[str | None, typer.Option(help="off, auto or manual.")]
Certificate = Annotated[Path | None, typer.Option("--ssl-certfile", help="Certificate for --tls manual.")]
Key = Annotated[Path | None, typer.Option("--ssl-keyfile", help="Its private key.")]
Auth = Annotated[str | None, typer.Option(help="token, proxy or none.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a routable address without TLS.")]
Reload = Annotated[bool, typer.Option("--reload", help="Restart when the code changes (for development).")]


@app.command()
def serve(
    ctx: typer.Context,
    host: Host = None,
    port: Port = None,
    uds: Socket = None,
    log_level: LogLevel = None,
    offline: Offline = None,
    default_profile: DefaultProfile = None,
    working_dir: WorkingDir = None,
    tls: Tls = None,
    ssl_certfile: Certificate = None,
    ssl_keyfile: Key = None,
    auth: Auth = None,
    insecure: Insecure = False,
    reload: Reload = False,
) -> None:
    """Serve in this terminal until Ctrl-C.

    A second Ctrl-C does not wait for running turns.
    """
    chosen: Chosen = ctx.obj
    plain = {"host": host, "port": port, "uds": uds, "log_level": log_level, "offline": offline}
    plain |= {"default_profile": default_profile, "working_dir": working_dir}
    flags: dict[str, Any] = {name: value for name, value in plain.items() if value is not None}
    sections: dict[str, dict[str, Any]] = {
        "tls": {"mode": tls, "certfile": ssl_certfile, "keyfile": ssl_keyfile},
        "auth": {"mode": auth},
    }
    for name, values in sections.items():
        if given := {key: value for key, value in values.items() if value is not None}:
            flags[name] = given
    if reload:
        # for development only

        raise typer.Exit(serve_again_on_changes([argument for argument in sys.argv[1:] if argument != "--reload"]))
    begin_the_start()
    from .serve import serve as serve_home  # the web and everything behind it, for this command alone

    serve_home(chosen.home, chosen.config, flags, insecure=insecure, quiet=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def start(ctx: typer.Context) -> None:
    """Start the daemon in the background; takes the options of `serve`."""
    _start(ctx.obj, ctx.args)


def _start(chosen: Chosen, options: Sequence[str]) -> None:
    running = background.start(chosen.paths, [*chosen.arguments, "serve", *options])
    say(f"amplifierd {running.version} serves {chosen.paths.home} at {running.url} (pid {running.process.pid})")


@app.command()
def stop(ctx: typer.Context) -> None:
    """Stop the daemon of this home.

    Running turns are ended and stored first.
    """
    stopped = background.stop(ctx.obj.paths)
    say("no daemon serves this home" if stopped is None else f"stopped {stopped.process}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def restart(ctx: typer.Context) -> None:
    """Restart the daemon, with the options it had or with new ones."""
    stopped = background.stop(ctx.obj.paths)
    _start(ctx.obj, ctx.args or (stopped.options if stopped else ()))


@app.command()
def status(ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say whether a daemon is serving this home; exits with 1 if not."""
    chosen: Chosen = ctx.obj
    running = find_running(chosen.paths)
    if as_json:
        say(json.dumps({"running": running is not None, **(running.to_dict() if running else {})}))
    elif running is None:
        say(f"no daemon serves {chosen.paths.home}; start one: amplifier daemon start")
    else:
        say(f"{running.process} serves {chosen.paths.home} at {running.url} since {running.started_at}")
    raise typer.Exit(ExitCode.OK if running else ExitCode.FAILURE)


@app.command("open")
def open_page(
    ctx: typer.Context,
    no_browser: Annotated[bool, typer.Option("--no-browser", "--print", help="Only print the link.")] = False,
) -> None:
    """Open the page in a browser, logged in.

    The link works once and expires after a minute.
    """
    from .login_link import login_link, open_browser  # the client of a daemon, for this command alone

    link = login_link(ctx.obj.paths)
    say(link)
    if not no_browser and not open_browser(link):
        say("there is no browser here: open the link in one, within a minute", err=True)


@app.command()
def logs(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines.")] = 50,
) -> None:
    """Show the daemon's log."""
    file = ctx.obj.paths.logs / LOG_FILE
    if not file.exists():
        say(f"there is no log yet: {file} is written once a daemon runs", err=True)
    lines, end = background.last_lines(file, count)
    for line in lines:
        say(line)
    if follow:
        with suppress(KeyboardInterrupt):
            for line in background.following(file, end):
                say(line)


@services.command("install")
def install_service(ctx: typer.Context) -> None:
    """Write a systemd user unit, enable it and start it."""
    file = install(ctx.obj.paths, ctx.obj.config)
    say(f"wrote {file}")
    if not is_running_systemd():
        say("systemd does not run here: enable it yourself with systemctl --user enable --now amplifierd")


@services.command("uninstall")
def uninstall_service() -> None:
    """Stop the service and remove its unit."""
    file = uninstall()
    say("there is no unit" if file is None else f"removed {file}")


@app.command()
def version() -> None:
    """Print the version."""
    say(f"amplifierd {__version__}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if argv is None:
        open_screens()
        return _run(sys.argv[1:])
    with screens():
        return _run(argv)


def _run(argv: Sequence[str]) -> int:
    try:
        app(args=list(argv), prog_name="amplifierd")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK if ended.code is None else ExitCode.FAILURE
    except background.StartFailedError as error:
        say(f"error: the daemon did not start:\n{error}", err=True)
        return error.code
    except OSError as error:
        known = explained(error)
        if known is None:
            raise
        return _reported(known)
    except AmplifierError as error:
        return _reported(error)
    return ExitCode.OK


def _reported(error: AmplifierError) -> int:
    say(f"error: {error.message}" + (f"\n  fix: {error.hint}" if error.hint else ""), err=True)
    return code_of(error)


# The daemon as a service of the user: a systemd unit, so that it starts with the machine and is kept running.


UNIT = "amplifierd.service"

_TEXT = """\
[Unit]
Description=Amplifier daemon ({home})
After=network.target

[Service]
Type=exec
Environment="AMPLIFIERD_HOME={home}"
ExecStart="{python}" -m amplifierd{config} serve
Restart=on-failure
RestartPreventExitStatus=2 3 4 98
TimeoutStopSec=90
KillMode=mixed
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit_file() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "systemd" / "user" / UNIT


def install(paths: Paths, config: Path | None = None) -> Path:
    """Write the unit of a home, with the settings file to use if it is not its own, and start it where systemd runs.

    Raises:
        SettingsError: systemd refuses it.
    """
    file = unit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    home, python = (_escaped(str(part)) for part in (paths.home, sys.executable))
    settings = f' --config "{_escaped(str(config.absolute()))}"' if config else ""
    file.write_text(_TEXT.format(home=home, python=python, config=settings), encoding="utf-8")
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)
    return file


def uninstall() -> Path | None:
    """Stop the service and remove its unit; returns the file, None when there was none."""
    file = unit_file()
    if not file.exists():
        return None
    _systemctl("disable", "--now", UNIT)
    file.unlink()
    _systemctl("daemon-reload")
    return file


def is_running_systemd() -> bool:
    """True if this user's services are kept by systemd."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return shutil.which("systemctl") is not None and runtime is not None and Path(runtime, "systemd").exists()


def _systemctl(*arguments: str) -> None:
    if not is_running_systemd():
        return
    done = subprocess.run(["systemctl", "--user", *arguments], capture_output=True, text=True, check=False, timeout=90)
    if done.returncode:
        raise SettingsError(f"systemctl --user {' '.join(arguments)} failed: {done.stderr.strip()}")


def _escaped(text: str) -> str:
    """Return a text as it stands between quotes in a unit."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


_SOURCES = Path(__file__).parents[2]
_LOOK_S = 0.5


def serve_again_on_changes(arguments: Sequence[str]) -> int:
    """Run `amplifierd` with these arguments, again whenever a file changes, until it ends by itself."""
    while True:
        seen = _newest()
        process = subprocess.Popen([sys.executable, "-m", "amplifierd", *arguments])
        try:
            while process.poll() is None and _newest() == seen:
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            return process.wait()
        if process.poll() is not None:
            return process.returncode
        process.terminate()
        process.wait()


def _newest() -> float:
    return max(file.stat().st_mtime for file in _SOURCES.glob("amplifier*/**/*.py"))
