"""Keys of providers: in the system's keyring where one works, else in `config/secrets.yaml`, for the owner alone.

A keyring that is missing, locked or broken is never an error: the file is used then, and `set` says which of the two
it was. Calls may wait for the disk and the keyring, so they belong off an event loop.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml

from amplifier_core.boundary import Boundary
from amplifier_foundation.io import load_yaml
from amplifier_foundation.sources.store import locked_now, make_directory
from amplifier_system.files import write_atomically

from .exceptions import SettingsError
from .identifiers import NAMING_SECRET, is_kept_secret, is_module_id, kept_secret
from .paths import Paths
from .yaml_edits import edited, mapping_in

if TYPE_CHECKING:
    from ruamel.yaml.comments import CommentedMap

SERVICE = "amplifier"
"""The name under which the keyring keeps keys; the user name is the module's id."""

StoredIn = Literal["keyring", "file"]
T = TypeVar("T")

logger = logging.getLogger(__name__)

_SECTION, _IN_KEYRING = "api_keys", "in_keyring"
_DIGEST_CHARACTERS = 32
_KEYRING_PATIENCE_S = 10.0
_LOCK_WAIT_S = 30.0
_SHOWN_CHARACTERS = 4
_LONG_ENOUGH = 12
_PRIVATE = 0o600


@dataclass(frozen=True)
class StoredKey:
    """A key as it may be shown."""

    module_id: str
    masked: str
    stored_in: StoredIn


class Keyring:
    """The system's keyring, as long as it works; its first failure, or a silence, ends its use."""

    def __init__(self, *, patience_s: float = _KEYRING_PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._backend: Any = None
        self._is_tried = False

    def find(self, module_id: str) -> str | None:
        found = self._call("read", lambda backend: backend.get_password(SERVICE, module_id), None)
        return found if isinstance(found, str) and found else None

    def set(self, module_id: str, key: str) -> bool:
        """Store a key, and say whether the keyring gives it back."""
        self._call("changed", lambda backend: backend.set_password(SERVICE, module_id, key), None)
        return self._backend is not None and self.find(module_id) == key

    def remove(self, module_id: str) -> bool:
        if self.find(module_id) is None:
            return False
        self._call("changed", lambda backend: backend.delete_password(SERVICE, module_id), None)
        return True

    def _call(self, verb: str, work: Callable[[Any], T], otherwise: T) -> T:
        """Do something with the keyring in a thread that can be left behind: it may ask a person who is not there."""
        outcome: list[T] = []

        def run() -> None:
            with Boundary(logger, "the system's keyring cannot be %s: %s", verb, level=logging.INFO):
                backend = self._opened()
                if backend is not None:
                    outcome.append(work(backend))

        if self._is_tried and self._backend is None:
            return otherwise
        thread = threading.Thread(target=run, name="keyring", daemon=True)
        thread.start()
        thread.join(self._patience_s)
        if not outcome:
            if thread.is_alive():
                logger.warning("the system's keyring does not answer; keys are kept in a file")
            self._is_tried, self._backend = True, None
        return outcome[0] if outcome else otherwise

    def _opened(self) -> Any:
        if not self._is_tried:
            try:
                import keyring  # an extra, and slow to load
                from keyring.backends import fail, null
            except ImportError:
                logger.debug("the package keyring is not installed")
            else:
                backend = keyring.get_keyring()
                self._backend = None if isinstance(backend, fail.Keyring | null.Keyring) else backend
            self._is_tried = True
        return self._backend


class Keys:
    """The keys of one home."""

    def __init__(self, paths: Paths, keyring: Keyring | None = None) -> None:
        self._paths, self._file = paths, paths.secrets_file
        self._keyring = keyring or Keyring()
        self._kept: dict[str, str] = {}

    def find(self, module_id: str) -> str | None:
        """Return the stored key of a provider.

        Raises:
            SettingsError: the file of keys cannot be read.
        """
        return self._keyring.find(module_id) or self._in_file().get(module_id)

    def set(self, module_id: str, key: str) -> StoredIn:
        """Store the key of a provider for the sessions that start from now on, and say where.

        Raises:
            SettingsError: it is not the id of a module, the key is empty, or the file of keys cannot be changed.
        """
        if not is_module_id(module_id):
            raise SettingsError(f"{module_id!r} is not the id of a module", hint="name it as the profile does")
        if not key.strip():
            raise SettingsError(f"{module_id}: the key is empty", hint="remove the key instead")
        return self._store(module_id, key.strip())

    def keep(self, secret: str) -> str:
        """Store a secret of a profile or a plan, if it is not stored yet, and return the name that `find` knows it by.

        The same secret has the same name in one home. The name is made with a random key that is stored as well, so
        the secret cannot be guessed from its name.

        Raises:
            SettingsError: the file of keys cannot be read or changed.
        """
        if secret not in self._kept:
            with self._locked("kept-secrets.lock"):
                naming = self.find(NAMING_SECRET)
                if naming is None:
                    naming = secrets.token_hex()
                    self._store(NAMING_SECRET, naming)
                digest = hmac.new(naming.encode(), secret.encode(), hashlib.sha256).hexdigest()
                name = kept_secret(digest[:_DIGEST_CHARACTERS])
                if self.find(name) is None:
                    self._store(name, secret)
            self._kept[secret] = name
        return self._kept[secret]

    def _store(self, name: str, key: str) -> StoredIn:
        if self._keyring.set(name, key):
            self._change(name, in_file=None, in_keyring=True)
            return "keyring"
        self._change(name, in_file=key, in_keyring=False)
        return "file"

    def remove(self, module_id: str) -> bool:
        """Forget the key of a provider, wherever it is; False when there was none.

        Raises:
            SettingsError: the file of keys cannot be changed.
        """
        was_in_keyring = self._keyring.remove(module_id)
        was_in_file = module_id in self._in_file() or module_id in self._names_in_keyring()
        if was_in_file:
            self._change(module_id, in_file=None, in_keyring=False)
        return was_in_keyring or was_in_file

    def list(self) -> tuple[StoredKey, ...]:
        """Return the stored keys of providers, masked. The keyring is asked for those that `set` put there.

        Raises:
            SettingsError: the file of keys cannot be read.
        """
        in_file = self._in_file()
        found = {name: StoredKey(name, _masked(key), "file") for name, key in in_file.items()}
        for name in (*self._names_in_keyring(), *in_file):
            key = self._keyring.find(name)
            if key is not None:
                found[name] = StoredKey(name, _masked(key), "keyring")
        return tuple(found[name] for name in sorted(found) if not is_kept_secret(name))

    def _in_file(self) -> dict[str, str]:
        keys = self._document().get(_SECTION)
        if keys is not None and not isinstance(keys, Mapping):
            raise SettingsError(f"{self._file}: {_SECTION} must be a mapping of module ids to keys")
        return {str(name): key for name, key in (keys or {}).items() if isinstance(key, str) and key}

    def _names_in_keyring(self) -> tuple[str, ...]:
        names = self._document().get(_IN_KEYRING)
        return tuple(str(name) for name in names) if isinstance(names, list) else ()

    def _document(self) -> dict[str, Any]:
        """Return what the file says; what is wrong with it is told without a word of its content."""
        try:
            text = self._file.read_text(encoding="utf-8-sig")
            self._close_to_others()
            document = load_yaml(text) or {}
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self._file} cannot be read: {type(error).__name__}") from None
        except yaml.YAMLError as error:
            raise SettingsError(f"{self._file} is not YAML{_line_of(error)}") from None
        if not isinstance(document, dict):
            raise SettingsError(f"{self._file} must be a mapping with the key {_SECTION}")
        return document

    def _close_to_others(self) -> None:
        if self._file.stat().st_mode & 0o077:
            logger.warning("%s could be read by others; now only its owner can", self._file)
            self._file.chmod(_PRIVATE)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with locked_now(self._paths.locks / name, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{self._file} is being changed by another process")
            yield

    def _change(self, module_id: str, *, in_file: str | None, in_keyring: bool) -> None:
        from ruamel.yaml.comments import CommentedSeq  # loaded when a file is changed
        from ruamel.yaml.error import YAMLError

        def change(document: CommentedMap) -> None:
            keys = mapping_in(document, _SECTION)
            others = {str(name) for name in document.get(_IN_KEYRING) or ()} - {module_id}
            if in_file is None:
                keys.pop(module_id, None)
            else:
                keys[module_id] = in_file
            document[_IN_KEYRING] = CommentedSeq(sorted(others | {module_id} if in_keyring else others))
            for section in (_SECTION, _IN_KEYRING):
                if not document[section]:
                    del document[section]

        with self._locked("secrets.lock"):
            self._in_file()  # it is refused here if it is not what it should be
            before = self._file.read_text(encoding="utf-8-sig") if self._file.exists() else ""
            try:
                after = edited(before, change)
            except YAMLError:
                raise SettingsError(f"{self._file} is not YAML") from None
            make_directory(self._file.parent)
            keep_out_of_git(self._paths, self._file.name)
            write_atomically(self._file, after.encode(), private=True)


def keep_out_of_git(paths: Paths, name: str) -> None:
    """Name a file or directory of `config/` in the `.gitignore` beside it."""
    make_directory(paths.config)
    ignored = paths.config / ".gitignore"
    lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.exists() else []
    if f"/{name}" not in lines:
        write_atomically(ignored, "".join(f"{line}\n" for line in (*lines, f"/{name}")).encode())


def _masked(key: str) -> str:
    return f"…{key[-_SHOWN_CHARACTERS:]}" if len(key) >= _LONG_ENOUGH else "…"


def _line_of(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", see line {mark.line + 1}" if mark is not None else ""
