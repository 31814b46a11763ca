"""Settings: every key, where it may be set, and what is said about those that are wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from amplifierd import Settings
from amplifierd.exceptions import SettingsError
from amplifierd.settings import load_settings
from amplifierd.settings_file import create_settings_file, edit_settings

DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 8420,
    "uds": None,
    "log_level": "info",
    "log_json": False,
    "default_profile": "foundation/base",
    "offline": False,
    "trusted_proxies": (),
    "startup.check_on_start": True,
    "startup.update_on_start": False,
    "startup.auto_compile": True,
    "startup.max_parallel_workers": 4,
    "compile.install_dependencies": "auto",
    "compile.keep_going": False,
    "compile.timeout_seconds": 600,
    "cache.keep_days": 30,
    "cache.max_bytes": None,
    "cache.http_max_bytes": 52428800,
    "sessions.idle_unload_minutes": 60,
    "sessions.max_loaded": 2000,
    "sessions.max_queue": 32,
    "sessions.max_spawn_depth": 5,
    "sessions.turn_timeout_seconds": None,
    "sessions.retention_days": None,
    "stream.queue_events": 10000,
    "stream.queue_bytes": 8388608,
    "stream.ring_events": 10000,
    "stream.keepalive_seconds": 15,
    "mentions.max_file_bytes": 1048576,
    "mentions.max_total_bytes": 4194304,
    "mentions.max_files": 200,
    "mentions.max_depth": 8,
    "auth.mode": "token",
    "auth.tokens": (),
    "security.allowed_hosts": (),
    "security.allowed_origins": (),
    "security.allowed_sources": ("*",),
    "security.require_pinned": False,
    "security.module_roots": (),
    "security.allow_override_modules": False,
    "security.allow_plan_sources": False,
    "security.allow_home_mentions": False,
    "tls.mode": "off",
    "tls.certfile": None,
    "tls.keyfile": None,
    "metrics.enabled": False,
}

OTHER: dict[str, tuple[str, Any]] = {
    "host": ("0.0.0.0", "0.0.0.0"),
    "port": ("0", 0),
    "uds": ("/run/a.sock", Path("/run/a.sock")),
    "log_level": ("debug", "debug"),
    "log_json": ("yes", True),
    "working_dir": ("/srv/work", Path("/srv/work")),
    "default_profile": ("team/base", "team/base"),
    "offline": ("on", True),
    "trusted_proxies": ("10.0.0.1, 10.0.0.2", ("10.0.0.1", "10.0.0.2")),
    "startup.check_on_start": ("0", False),
    "startup.update_on_start": ("1", True),
    "startup.auto_compile": ("false", False),
    "startup.max_parallel_workers": ("16", 16),
    "compile.install_dependencies": ("never", "never"),
    "compile.keep_going": ("TRUE", True),
    "compile.timeout_seconds": ("0.5", 0.5),
    "cache.keep_days": ("0", 0),
    "cache.max_bytes": ("1", 1),
    "cache.http_max_bytes": ("1", 1),
    "sessions.idle_unload_minutes": ("1", 1),
    "sessions.max_loaded": ("1", 1),
    "sessions.max_queue": ("0", 0),
    "sessions.max_spawn_depth": ("0", 0),
    "sessions.turn_timeout_seconds": ("9", 9),
    "sessions.retention_days": ("7", 7),
    "stream.queue_events": ("1", 1),
    "stream.queue_bytes": ("1", 1),
    "stream.ring_events": ("1", 1),
    "stream.keepalive_seconds": ("1", 1),
    "mentions.max_file_bytes": ("1", 1),
    "mentions.max_total_bytes": ("1", 1),
    "mentions.max_files": ("1", 1),
    "mentions.max_depth": ("1", 1),
    "auth.mode": ("none", "none"),
    "security.allowed_hosts": ('["a", "b"]', ("a", "b")),
    "security.allowed_origins": ("https://a", ("https://a",)),
    "security.allowed_sources": ("git+https://host/*,", ("git+https://host/*",)),
    "security.require_pinned": ("1", True),
    "security.module_roots": ("/srv/modules", (Path("/srv/modules"),)),
    "security.allow_override_modules": ("1", True),
    "security.allow_plan_sources": ("1", True),
    "security.allow_home_mentions": ("1", True),
    "tls.mode": ("auto", "auto"),
    "tls.certfile": ("/c.pem", Path("/c.pem")),
    "tls.keyfile": ("/k.pem", Path("/k.pem")),
    "metrics.enabled": ("1", True),
}


def value_of(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "daemon.yaml"


@pytest.fixture
def load(file: Path) -> Callable[..., Settings]:
    """Load settings from the text of a file, variables and overrides."""

    def load(text: str | None = None, environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
        if text is not None:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return load_settings(file, overrides=overrides, environ=environ or {})

    return load


def test_every_key_has_its_default(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = load()

    assert {key: value_of(settings, key) for key in DEFAULTS} == DEFAULTS
    assert settings.working_dir == tmp_path / "amplifier"
    dumped = settings.model_dump()
    keys = {f"{key}.{inner}" for key, value in dumped.items() if isinstance(value, dict) for inner in value}
    keys |= {key for key, value in dumped.items() if not isinstance(value, dict)}
    assert keys == {*DEFAULTS, "working_dir"}
    assert (settings.model_fields_set, settings.warnings) == (set(), ())


@pytest.mark.parametrize("key", OTHER)
def test_every_key_can_be_set_in_the_environment_and_in_the_file(load: Callable[..., Settings], key: str) -> None:
    text, expected = OTHER[key]
    section, _, name = key.rpartition(".")
    spellings = (f"{section}__{name}", f"{section}_{name}") if section else (name, f"daemon_{name}")

    for spelling in spellings:
        assert value_of(load(environ={f"AMPLIFIERD_{spelling}".upper(): text}), key) == expected
    plain = list(map(str, expected)) if isinstance(expected, tuple) else str(expected)
    line = f"{section}: {{{name}: {plain}}}\n" if section else f"{name}: {plain}\n"
    assert value_of(load(line), key) == expected
    assert value_of(load(f"daemon:\n  {line}"), key) == expected


def test_flags_outrank_the_environment_which_outranks_the_file(load: Callable[..., Settings]) -> None:
    text = "port: 1\nstartup: {check_on_start: false, max_parallel_workers: 2, auto_compile: false}\n"
    environ = {"AMPLIFIERD_PORT": "2", "AMPLIFIERD_STARTUP__MAX_PARALLEL_WORKERS": "3"}

    assert load(text, environ, port=3).port == 3
    settings = load(text, environ, startup={"auto_compile": True})

    assert settings.port == 2
    assert settings.startup.model_dump() == {
        **{"check_on_start": False, "update_on_start": False, "auto_compile": True, "max_parallel_workers": 3}
    }


def test_the_usual_spelling_of_a_variable_outranks_the_older_one(load: Callable[..., Settings]) -> None:
    environ = {
        **{"AMPLIFIERD_PORT": "1", "AMPLIFIERD_DAEMON_PORT": "2"},
        **{"AMPLIFIERD_CACHE__KEEP_DAYS": "3", "AMPLIFIERD_CACHE_KEEP_DAYS": "4"},
    }

    settings = load(environ=environ)

    assert (settings.port, settings.cache.keep_days) == (1, 3)


def test_flat_and_nested_keys_are_read_together_and_the_flat_one_counts(load: Callable[..., Settings]) -> None:
    settings = load("daemon:\n  port: 1\n  host: '::1'\n  startup: {update_on_start: true}\nport: 2\n")

    assert (settings.port, settings.host, settings.startup.update_on_start) == (2, "::1", True)


@pytest.mark.parametrize("text", ["", "# nothing\n", "startup:\n", "daemon:\n", "port:\n"])
def test_what_is_left_empty_is_the_default(load: Callable[..., Settings], text: str) -> None:
    assert load(text) == load(environ={"AMPLIFIERD_PORT": ""})


def test_none_can_be_said_in_the_environment(load: Callable[..., Settings]) -> None:
    environ = {"AMPLIFIERD_SESSIONS__RETENTION_DAYS": "none"}

    assert load("sessions: {retention_days: 3}\n", environ).sessions.retention_days is None


def test_tokens_are_written_as_a_list(load: Callable[..., Settings]) -> None:
    environ = {"AMPLIFIERD_AUTH__TOKENS": '[{"name": "ci", "hash": "abc", "scopes": ["read"]}]'}

    (token,) = load(environ=environ).auth.tokens

    assert (token.name, token.hash, token.scopes) == ("ci", "abc", ("read",))


def test_a_bare_off_is_a_mode(load: Callable[..., Settings]) -> None:
    assert load("tls:\n  mode: off\n").tls.mode == "off"


def test_relative_paths_are_frozen_as_absolute(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert load("working_dir: here\n").working_dir == tmp_path / "here"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("port: high\n", "port"),
        ("port: true\n", "port"),
        ("port: 65536\n", "port"),
        ("host: ''\n", "host"),
        ("log_level: loud\n", "log_level"),
        ("offline: perhaps\n", "offline"),
        ("startup: 3\n", "startup"),
        ("startup: {max_parallel_workers: 17}\n", "startup.max_parallel_workers"),
        ("startup: {max_parallel_workers: 0}\n", "startup.max_parallel_workers"),
        ("daemon: {cache: {keep_days: -1}}\n", "cache.keep_days"),
        ("compile: {install_dependencies: always}\n", "compile.install_dependencies"),
        ("security: {allowed_hosts: example}\n", "security.allowed_hosts"),
        ("auth: {tokens: [{name: ci}]}\n", "auth.tokens.0.hash"),
    ],
)
def test_an_invalid_file_is_an_error_that_names_file_and_key(
    load: Callable[..., Settings], file: Path, text: str, key: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(text)

    assert str(refused.value).startswith(f"{file}: {key}: ")


@pytest.mark.parametrize("text", ["port: [\n", "- port\n", "daemon: [1]\n", "just text\n"])
def test_a_file_that_is_no_mapping_is_an_error_that_names_it(
    load: Callable[..., Settings], file: Path, text: str
) -> None:
    with pytest.raises(SettingsError, match=str(file)):
        load(text)


def test_an_invalid_variable_is_named(load: Callable[..., Settings]) -> None:
    for environ in (
        {"AMPLIFIERD_STARTUP_MAX_PARALLEL_WORKERS": "many"},
        {"AMPLIFIERD_SECURITY__ALLOWED_HOSTS": '["a"'},
        {"AMPLIFIERD_DAEMON_PORT": "-1"},
    ):
        with pytest.raises(SettingsError, match=next(iter(environ))):
            load("port: 1\n", environ)


def test_unknown_keys_are_warnings(load: Callable[..., Settings], file: Path) -> None:
    settings = load(
        "prot: 1\nstartup: {check: true}\nworkers: {count: 2}\n",
        {"AMPLIFIERD_STARTUP__CHECK": "1", "AMPLIFIERD_HOME": "/x", "AMPLIFIERD_CACHE_DIR": "/y"},
    )

    assert settings.warnings == (
        "AMPLIFIERD_STARTUP__CHECK is not a setting and has no effect",
        f"{file}: prot is not a setting and has no effect",
        f"{file}: startup.check is not a setting and has no effect",
        f"{file}: workers is not a setting and has no effect",
    )


def test_settings_are_frozen(load: Callable[..., Settings]) -> None:
    settings = load()

    with pytest.raises(ValidationError):
        settings.port = 1
    with pytest.raises(ValidationError):
        settings.startup.auto_compile = False


def test_the_environment_of_the_process_is_used_by_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIERD_PORT", "5")

    assert load_settings(file).port == 5


def test_the_first_file_shows_every_default_as_a_comment(load: Callable[..., Settings], file: Path) -> None:
    assert create_settings_file(file) is True

    lines = file.read_text().splitlines()
    assert all(line == "" or line.startswith("#") for line in lines)
    assert load() == load_settings(file.with_name("none.yaml"), environ={})
    shown = load("\n".join(line.removeprefix("# ") for line in lines[1:]))
    assert (shown, shown.warnings) == (load_settings(file.with_name("none.yaml"), environ={}), ())
    assert shown.model_fields_set >= {"host", "port", "startup", "metrics"}
    assert create_settings_file(file) is False


def test_edits_keep_comments_and_take_effect(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    load("# mine\nport: 1  # odd\nstartup:\n  # keep\n  check_on_start: false\ncache: {keep_days: 3}\n")

    settings = edit_settings(
        file, {"port": 2, "startup.update_on_start": True, "cache.keep_days": None}, locks_dir=tmp_path / "locks"
    )

    assert file.read_text() == (
        "# mine\nport: 2  # odd\nstartup:\n  # keep\n  check_on_start: false\n  update_on_start: true\ncache: {}\n"
    )
    assert (settings.port, settings.startup.update_on_start, settings.cache.keep_days) == (2, True, 30)
    assert load() == settings


def test_an_edit_of_the_first_file_leaves_its_comments(
    load: Callable[..., Settings], file: Path, tmp_path: Path
) -> None:
    create_settings_file(file)
    before = file.read_text()

    edit_settings(file, {"port": 2}, locks_dir=tmp_path / "locks")

    assert file.read_text() == f"{before}port: 2\n"
    assert load().port == 2


def test_an_edit_finds_keys_in_the_nested_section(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    load("daemon:\n  port: 1\n")

    edit_settings(file, {"port": 2}, locks_dir=tmp_path / "locks")

    assert file.read_text() == "daemon:\n  port: 2\n"


@pytest.mark.parametrize(
    "changes", [{"port": "high"}, {"prot": 1}, {"startup": {}}, {"startup.check_on_start": "maybe"}]
)
def test_a_wrong_edit_changes_nothing(
    load: Callable[..., Settings], file: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    load("port: 1\n")

    with pytest.raises(SettingsError, match=next(iter(changes))):
        edit_settings(file, changes, locks_dir=tmp_path / "locks")

    assert file.read_text() == "port: 1\n"


def test_a_broken_file_is_not_edited(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    file.write_text("port: [\n")

    with pytest.raises(SettingsError):
        edit_settings(file, {"port": 2}, locks_dir=tmp_path / "locks")

    assert file.read_text() == "port: [\n"
