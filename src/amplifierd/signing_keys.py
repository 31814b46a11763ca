"""The key with which a home signs what it exports, and the keys of others that it trusts, in `config/keys`.

The private key, `signing.key`, is made on first use and is for the owner alone; `signing.pub` is what others put into
their `config/keys/trusted/`, under any name that ends with `.pub`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import create_atomically, write_atomically

from .exceptions import SettingsError
from .keys import keep_out_of_git
from .paths import Paths

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ALGORITHM = "ed25519"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Signer:
    """Who signed something: `name` is that of the trusted key's file, `this home` for our own, None for a stranger."""

    key_id: str
    name: str | None = None

    @property
    def is_trusted(self) -> bool:
        return self.name is not None


class SigningKeys:
    """The keys of one home."""

    def __init__(self, paths: Paths) -> None:
        self._paths, self._directory = paths, paths.config / "keys"

    @property
    def public_key_file(self) -> Path:
        return self._directory / "signing.pub"

    def sign(self, content: bytes) -> dict[str, str]:
        """Return a signature of some bytes; the same bytes always get the same one.

        Raises:
            SettingsError: the private key cannot be read or made.
        """
        private = self._private_key()
        public = _raw(private.public_key())
        return {
            "algorithm": ALGORITHM,
            "key_id": key_id(public),
            "public_key": base64.b64encode(public).decode(),
            "signature": base64.b64encode(private.sign(content)).decode(),
        }

    def verify(self, content: bytes, signature: Mapping[str, Any]) -> Signer:
        """Return who signed some bytes.

        Raises:
            ValueError: the signature is not one, or is one of other bytes.
        """
        from cryptography.exceptions import InvalidSignature  # slow to load
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if signature.get("algorithm") != ALGORITHM:
            raise ValueError(f"the signature is of the kind {signature.get('algorithm')!r}, not {ALGORITHM}")
        try:
            public = base64.b64decode(str(signature.get("public_key")), validate=True)
            signed = base64.b64decode(str(signature.get("signature")), validate=True)
            Ed25519PublicKey.from_public_bytes(public).verify(signed, content)
        except (binascii.Error, ValueError, InvalidSignature):
            raise ValueError("the signature does not match") from None
        return Signer(key_id(public), dict(self._trusted()).get(public))

    def trust(self, public_key: bytes, name: str) -> Signer:
        """Trust what is signed with a key, given as the content of its `signing.pub`.

        Raises:
            SettingsError: it is not a public key of that kind, or the name is not one for a file.
        """
        public = _parse_public(public_key)
        if public is None:
            raise SettingsError("not an Ed25519 public key", hint="give the content of the other home's signing.pub")
        if not name or Path(name).name != name or name.startswith("."):
            raise SettingsError(f"{name!r} is not a name for a key", hint="use letters, digits and dashes")
        write_atomically(make_directory(self._directory / "trusted") / f"{name}.pub", public_key)
        return Signer(key_id(_raw(public)), name)

    def _trusted(self) -> Iterator[tuple[bytes, str]]:
        """Yield the public keys that count here, ours last."""
        for file in sorted((self._directory / "trusted").glob("*.pub")):
            public = _parse_public(file.read_bytes())
            if public is None:
                logger.warning("%s is not an Ed25519 public key and is left out", file)
            else:
                yield _raw(public), file.stem
        if self._private_file.exists():
            yield _raw(self._private_key().public_key()), "this home"

    @property
    def _private_file(self) -> Path:
        return self._directory / "signing.key"

    def _private_key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # slow to load
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if not self._private_file.exists():
            self._make_private_key()
        try:
            key = load_pem_private_key(self._private_file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise SettingsError(f"{self._private_file} cannot be read: {type(error).__name__}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(
                f"{self._private_file} is not an Ed25519 key", hint="move it away, and a new one is created"
            )
        return key

    def _make_private_key(self) -> None:
        from cryptography.hazmat.primitives import serialization as to  # slow to load
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        content = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
        keep_out_of_git(self._paths, self._directory.name)
        make_directory(self._directory)
        try:
            create_atomically([self._private_file], content)
        except FileExistsError:
            return  # another process was faster, and its key counts
        public = key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo)
        write_atomically(self.public_key_file, public)


def key_id(public: bytes) -> str:
    """Return the short name of a public key."""
    return f"sha256:{hashlib.sha256(public).hexdigest()[:32]}"


def _raw(public: Ed25519PublicKey) -> bytes:
    return public.public_bytes_raw()


def _parse_public(content: bytes) -> Ed25519PublicKey | None:
    from cryptography.exceptions import UnsupportedAlgorithm  # slow to load
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None
