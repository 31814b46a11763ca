"""Keys of providers: in the keyring where it works, else in a file for the owner alone; shown nowhere."""

import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import fail
from memory_keyring import MemoryKeyring

from amplifierd.exceptions import SettingsError
from amplifierd.keys import Keyring, Keys
from amplifierd.paths import Paths

KEY = "sk-ant-0123456789abcdef"


class BrokenKeyring(MemoryKeyring):
    """A keyring that fails, as one behind a bus that is not there does."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("no bus")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError("no bus")


class SilentKeyring(MemoryKeyring):
    """A keyring that waits for a person who is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.released.wait()
        return None


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.from_environment(tmp_path / "home", environ={})


@pytest.fixture(autouse=True)
def _system_keyring() -> Iterator[None]:
    """Restore whichever keyring the machine has."""
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


def use(backend: Any) -> Any:
    keyring.set_keyring(backend)
    return backend


def test_a_keyring_that_works_keeps_the_key_and_the_home_keeps_its_name_only(paths: Paths) -> None:
    backend = use(MemoryKeyring())

    assert Keys(paths).set("provider-anthropic", KEY) == "keyring"

    assert backend.kept == {("amplifier", "provider-anthropic"): KEY}
    assert Keys(paths).find("provider-anthropic") == KEY
    assert [(key.module_id, key.masked, key.stored_in) for key in Keys(paths).list()] == [
        ("provider-anthropic", "…cdef", "keyring")
    ]
    assert KEY not in paths.secrets_file.read_text()
    assert Keys(paths).remove("provider-anthropic") is True
    assert (backend.kept, Keys(paths).list(), Keys(paths).remove("provider-anthropic")) == ({}, (), False)


@pytest.mark.parametrize("backend", [fail.Keyring, BrokenKeyring])
def test_without_a_working_keyring_a_file_for_the_owner_alone_keeps_it(paths: Paths, backend: Any) -> None:
    use(backend())

    assert Keys(paths).set("provider-openai", f"  {KEY}\n") == "file"

    assert Keys(paths).find("provider-openai") == KEY
    assert paths.secrets_file.read_text() == f"api_keys:\n  provider-openai: {KEY}\n"
    assert stat.S_IMODE(paths.secrets_file.stat().st_mode) == 0o600
    assert (paths.config / ".gitignore").read_text() == "/secrets.yaml\n"
    assert [(key.masked, key.stored_in) for key in Keys(paths).list()] == [("…cdef", "file")]


def test_a_keyring_that_does_not_answer_is_left_alone(paths: Paths) -> None:
    backend = use(SilentKeyring())
    keys = Keys(paths, Keyring(patience_s=0.05))

    assert keys.set("provider-openai", KEY) == "file"
    assert keys.find("provider-openai") == KEY

    backend.released.set()


def test_the_keyring_comes_before_the_file_and_takes_over_what_the_file_had(paths: Paths) -> None:
    use(fail.Keyring())
    Keys(paths).set("provider-openai", "sk-old-0000000000")
    use(MemoryKeyring())

    assert Keys(paths).find("provider-openai") == "sk-old-0000000000"
    assert Keys(paths).set("provider-openai", KEY) == "keyring"

    assert "sk-old" not in paths.secrets_file.read_text()
    assert Keys(paths).find("provider-openai") == KEY


def test_what_people_wrote_beside_the_keys_stays(paths: Paths) -> None:
    use(fail.Keyring())
    paths.config.mkdir(parents=True)
    (paths.config / ".gitignore").write_text("*.bak")
    paths.secrets_file.write_text("# mine\napi_keys:\n  provider-acme: acme-0123456789  # from the console\n")

    Keys(paths).set("provider-openai", KEY)

    text = paths.secrets_file.read_text()
    assert "# mine" in text
    assert "# from the console" in text
    assert Keys(paths).find("provider-acme") == "acme-0123456789"
    assert (paths.config / ".gitignore").read_text() == "*.bak\n/secrets.yaml\n"


def test_a_file_that_others_can_read_is_closed_to_them(paths: Paths) -> None:
    use(fail.Keyring())
    paths.config.mkdir(parents=True)
    paths.secrets_file.write_text("api_keys: {provider-acme: acme-0123456789}\n")
    paths.secrets_file.chmod(0o644)

    assert Keys(paths).find("provider-acme") == "acme-0123456789"
    assert stat.S_IMODE(paths.secrets_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", [f"api_keys: [{KEY}", f"api_keys: {KEY}", f"- {KEY}", "api_keys: \xff\n"])
def test_a_file_that_cannot_be_read_is_named_and_not_quoted(paths: Paths, text: str) -> None:
    use(fail.Keyring())
    paths.config.mkdir(parents=True)
    paths.secrets_file.write_bytes(text.encode("latin-1"))

    for attempt in (lambda: Keys(paths).find("provider-openai"), lambda: Keys(paths).set("provider-openai", "x" * 20)):
        with pytest.raises(SettingsError) as raised:
            attempt()
        assert str(paths.secrets_file) in str(raised.value)
        assert KEY not in str(raised.value)
    assert paths.secrets_file.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(("module_id", "key"), [("Provider X", KEY), ("../x", KEY), ("provider-openai", "  ")])
def test_what_is_not_a_module_or_not_a_key_is_refused(paths: Paths, module_id: str, key: str) -> None:
    use(MemoryKeyring())
    with pytest.raises(SettingsError):
        Keys(paths).set(module_id, key)


def test_a_kept_secret_has_one_name_in_one_home_which_no_one_can_work_out(paths: Paths, tmp_path: Path) -> None:
    use(fail.Keyring())
    other = Paths.from_environment(tmp_path / "other", environ={})

    name = Keys(paths).keep(KEY)

    assert Keys(paths).keep(KEY) == name
    assert Keys(paths).find(name) == KEY
    assert len({name, Keys(paths).keep(KEY + "2"), Keys(other).keep(KEY)}) == 3
    assert Keys(paths).list() == ()


def test_a_kept_secret_is_in_the_keyring_where_that_works(paths: Paths) -> None:
    backend = use(MemoryKeyring())

    name = Keys(paths).keep(KEY)

    assert Keys(paths).find(name) == KEY
    assert KEY in backend.kept.values()
    assert KEY not in paths.secrets_file.read_text()
