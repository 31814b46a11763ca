"""The places of a machine that hold secrets, and the devices that do not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

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
"""What nothing may read or write unless a person says so; our own home's secrets come on top."""

HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty"})

_HOME_SECRETS = ("secrets.yaml", "token", "tokens.json", "certs", "keys")


def secret_places(environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the secret places of this machine as they are written in rules, those of the Amplifier home included."""
    yield from SECRET_PLACES
    environ = os.environ if environ is None else environ
    home = environ.get("AMPLIFIERD_HOME") or "~/.amplifierd"
    yield from home_secrets(Path(environ.get("AMPLIFIERD_CONFIG_DIR") or Path(home) / "config"))


def home_secrets(config: Path) -> Iterator[str]:
    """Yield the secret places of an Amplifier home, whose directory for configuration is given."""
    return (str(config / name) for name in _HOME_SECRETS)
