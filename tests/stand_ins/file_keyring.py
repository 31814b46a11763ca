"""A keyring of the system that works: it keeps passwords in the file that KEYRING_FILE names."""

import json
import os
from pathlib import Path
from typing import ClassVar

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class Keyring(KeyringBackend):
    priority: ClassVar[float] = -1  # only who names it gets it

    def get_password(self, service: str, username: str) -> str | None:
        return self._kept().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._keep({**self._kept(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        kept = self._kept()
        if kept.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError(username)
        self._keep(kept)

    @staticmethod
    def _kept() -> dict[str, str]:
        file = Path(os.environ["KEYRING_FILE"])
        kept: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        return kept

    @staticmethod
    def _keep(kept: dict[str, str]) -> None:
        Path(os.environ["KEYRING_FILE"]).write_text(json.dumps(kept))
