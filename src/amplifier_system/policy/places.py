"""The places of a machine that hold secrets, and the devices that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from amplifier_system.homes import daemon_directory, daemon_home, daemon_state, ecosystem_home

SECRET_PLACES = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.kube",
    "~/.docker/config.json",
    "~/.netrc",
    "~/.pypirc",
    "~/.npmrc",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh",
    "~/.config/op",
    "~/.vault-token",
    "~/.terraform.d",
    "~/.cargo/credentials",
    "~/.cargo/credentials.toml",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.local/share/kwalletd",
    "~/.local/share/python_keyring",
    "~/.mozilla",
    "~/.thunderbird",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/snap/firefox",
    "~/snap/chromium",
    "~/Library/Keychains",
    "~/Library/Cookies",
    "~/Library/Application Support/Google/Chrome",
    "~/Library/Application Support/Firefox",
    "~/Library/Application Support/BraveSoftware",
    "/proc",
    "/sys",
    "/dev",
)
"""What nothing may read or write unless a person says so; our own homes come on top."""

HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty"})


def secret_places(environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the secret places of this machine as they are written in rules, those of the Amplifier homes included."""
    yield from SECRET_PLACES
    yield from map(str, closed_places(environ))


def closed_places(environ: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield what no session reads of the homes that the environment names: configuration, state, and the whole home of
    other applications of the ecosystem."""
    home = daemon_home(environ=environ)
    state = daemon_state(environ=environ)
    yield daemon_directory("CONFIG", home / "config", environ)
    yield state
    yield daemon_directory("LOG", state / "logs", environ)
    yield ecosystem_home(environ)
