"""The secret that all members of a cluster share: from the environment, else from `config/cluster_token`, private."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress

from amplifier_system.files import create_atomically
from amplifier_system.homes import PREFIX
from amplifierd.exceptions import SettingsError
from amplifierd.keys import keep_out_of_git
from amplifierd.paths import Paths

VARIABLE = f"{PREFIX}CLUSTER__TOKEN"
_SHORTEST = 32


def find_cluster_token(paths: Paths, environ: Mapping[str, str] | None = None) -> bytes:
    """Return the token of the cluster that this home belongs to; the first daemon of a cluster makes one.

    Raises:
        SettingsError: it cannot be read, or could be guessed.
    """
    given = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if given:
        return _checked(given, VARIABLE)
    file = paths.cluster_token_file
    try:
        return _checked(file.read_text(encoding="utf-8").strip(), str(file))
    except FileNotFoundError:
        return _made(paths)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {type(error).__name__}") from None


def token_check(token: bytes) -> str:
    """Return what a token is recognised by; it does not reveal the token."""
    return hmac.new(token, b"the cluster of a store", hashlib.sha256).hexdigest()


def _made(paths: Paths) -> bytes:
    file = paths.cluster_token_file
    keep_out_of_git(paths, file.name)
    with suppress(FileExistsError):  # another process was faster
        create_atomically([file], f"{secrets.token_urlsafe(48)}\n".encode())
    return _checked(file.read_text(encoding="utf-8").strip(), str(file))


def _checked(text: str, place: str) -> bytes:
    if len(text) < _SHORTEST:
        raise SettingsError(
            f"{place}: a cluster's token has at least {_SHORTEST} characters",
            hint="copy config/cluster_token of another member, or remove it to have one made",
        )
    return text.encode()


STANDS_ALONE = "this daemon is not part of a cluster: it keeps its sessions in files, which it shares with no other"
HOW_TO_JOIN = (
    "name the PostgreSQL that the daemons share in config/daemon.yaml (store: postgresql://user@host/database) and"
    " restart it, or start a cluster to try: amplifierd cluster try"
)
