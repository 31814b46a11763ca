"""Settings: every key, where it may be set, and what is said about those that are wrong."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from amplifierd import Settings
from amplifierd.exceptions import SettingsError
from amplifierd.limits import Limits
from amplifierd.settings import load_settings
from amplifierd.settings_file import create_settings_file, edit_settings
from amplifierd.settings_layers import keys_of
from amplifierd.store_address import StoreAddress

ROOT = Path(__file__).parents[2]

SECTIONS = {
    name: type(info.default).__name__
    for name, info in Settings.model_fields.items()
    if isinstance(info.default, BaseModel)
}

DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 8420,
    "uds": None,
    "log_level": "info",
    "log_json": False,
    "working_dir": Path("~/amplifier"),
    "default_profile": None,
    "offline": False,
    "store": StoreAddress(),
    "startup.check_on_start": True,
    "startup.update_on_start": False,
    "startup.auto_compile": True,
    "startup.max_parallel_workers": 4,
    "compile.install_dependencies": "auto",
    "compile.allow_builds": False,
    "compile.keep_going": False,
    "compile.timeout_seconds": 600,
    "sources.replace": {},
    "routing.matrix": None,
    "routing.overrides": None,
    "builds.url": None,
    "builds.max_bytes": 2147483648,
    "cache.keep_days": 30,
    "cache.max_bytes": None,
    "cache.http_max_bytes": 52428800,
    "checkpoints.enabled": True,
    "checkpoints.max_files": 20000,
    "checkpoints.max_bytes": 524288000,
    "checkpoints.timeout_seconds": 5,
    "security.allowed_hosts": (),
    "security.allowed_origins": (),
    "auth.mode": "token",
    "auth.tokens": (),
    "trusted_proxies": (),
    "security.allowed_sources": ("*",),
    "security.require_pinned": False,
    "security.module_roots": (),
    "security.allow_override_modules": False,
    "security.allow_plan_sources": False,
    "security.allow_home_mentions": False,
    "sessions.idle_unload_minutes": 60,
    "sessions.max_loaded": 2000,
    "sessions.turn_timeout_seconds": None,
    "sessions.retention_days": None,
    "sessions.trash_days": 30,
    "tls.mode": "off",
    "tls.certfile": None,
    "tls.keyfile": None,
    "cluster.labels": {},
    "cluster.shared_paths": (),
    "cluster.address": None,
    "cluster.ca_file": None,
    "metrics.enabled": False,
    "sessions.max_queue": 32,
    "sessions.max_spawn_depth": 5,
    "sessions.limits": None,
    "sessions.on_takeover": "ask",
    "workers.idle_minutes": 15,
    "workers.max_processes": 32,
    "workers.memory_limit_mb": 2048,
    "stream.queue_events": 10000,
    "stream.queue_bytes": 8388608,
    "stream.ring_events": 10000,
    "stream.keepalive_seconds": 15,
    "mentions.max_file_bytes": 1048576,
    "mentions.max_total_bytes": 4194304,
    "mentions.max_files": 200,
    "mentions.max_depth": 8,
}

OTHER: dict[str, tuple[str, Any]] = {
    "auth.tokens": (f"ci:run:sha256:{'0' * 64}", (f"ci:run:sha256:{'0' * 64}",)),
    "security.allowed_hosts": ("daemon.example", ("daemon.example",)),
    "security.allowed_origins": ("https://page.example,", ("https://page.example",)),
    "host": ("::1", "::1"),
    "port": ("9000", 9000),
    "uds": ("/run/amplifierd.sock", Path("/run/amplifierd.sock")),
    "log_level": ("debug", "debug"),
    "log_json": ("on", True),
    "startup.check_on_start": ("off", False),
    "startup.update_on_start": ("on", True),
    "auth.mode": ("proxy", "proxy"),
    "trusted_proxies": ("10.0.0.1,10.0.0.2", ("10.0.0.1", "10.0.0.2")),
    "tls.mode": ("auto", "auto"),
    "tls.certfile": ("/etc/ssl/daemon.pem", Path("/etc/ssl/daemon.pem")),
    "tls.keyfile": ("/etc/ssl/daemon.key", Path("/etc/ssl/daemon.key")),
    "cluster.labels": ("pool=big, zone=a", {"pool": "big", "zone": "a"}),
    "cluster.shared_paths": ("/mnt/work,/srv", (Path("/mnt/work"), Path("/srv"))),
    "cluster.address": ("http://10.0.0.5:8420/", "http://10.0.0.5:8420"),
    "cluster.ca_file": ("/tls/ca.pem", Path("/tls/ca.pem")),
    "metrics.enabled": ("on", True),
    "working_dir": ("/srv/work", Path("/srv/work")),
    "default_profile": ("local/mine", "local/mine"),
    "offline": ("on", True),
    "store": ("postgresql://h/db", StoreAddress("postgresql://h/db")),
    "startup.auto_compile": ("false", False),
    "startup.max_parallel_workers": ("16", 16),
    "compile.install_dependencies": ("never", "never"),
    "compile.keep_going": ("TRUE", True),
    "compile.timeout_seconds": ("0.5", 0.5),
    "sources.replace": ("tool-web=installed", {"tool-web": "installed"}),
    "builds.url": ("/mnt/builds", "file:///mnt/builds"),
    "builds.max_bytes": ("1", 1),
    "cache.keep_days": ("7", 7),
    "cache.max_bytes": ("1000", 1000),
    "cache.http_max_bytes": ("1", 1),
    "checkpoints.enabled": ("off", False),
    "checkpoints.max_files": ("10", 10),
    "checkpoints.max_bytes": ("1000", 1000),
    "checkpoints.timeout_seconds": ("0.5", 0.5),
    "security.allowed_sources": ("git+https://host/*,", ("git+https://host/*",)),
    "security.require_pinned": ("1", True),
    "security.module_roots": ("/srv/modules", (Path("/srv/modules"),)),
    "security.allow_override_modules": ("1", True),
    "security.allow_plan_sources": ("1", True),
    "security.allow_home_mentions": ("1", True),
    "sessions.idle_unload_minutes": ("0.5", 0.5),
    "sessions.max_loaded": ("5", 5),
    "sessions.turn_timeout_seconds": ("30", 30),
    "sessions.retention_days": ("90", 90),
    "sessions.trash_days": ("7", 7),
    "sessions.max_queue": ("5", 5),
    "sessions.max_spawn_depth": ("2", 2),
    "sessions.limits": ('{"turns": 3}', Limits(turns=3)),
    "sessions.on_takeover": ("continue", "continue"),
    "workers.idle_minutes": ("1.5", 1.5),
    "workers.max_processes": ("4", 4),
    "workers.memory_limit_mb": ("512", 512),
    "stream.queue_events": ("10", 10),
    "stream.queue_bytes": ("1000", 1000),
    "stream.ring_events": ("10", 10),
    "stream.keepalive_seconds": ("0.5", 0.5),
    "mentions.max_file_bytes": ("10", 10),
    "mentions.max_total_bytes": ("10", 10),
    "mentions.max_files": ("10", 10),
    "mentions.max_depth": ("2", 2),
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


def test_every_key_has_its_default(load: Callable[..., Settings]) -> None:
    settings = load()

    expected = {**DEFAULTS, "working_dir": DEFAULTS["working_dir"].expanduser()}
    assert {key: value_of(settings, key) for key in DEFAULTS} == expected
    assert {".".join(path) for path, _ in keys_of(Settings)} == set(DEFAULTS)
    assert (settings.model_fields_set, settings.warnings) == (set(), ())


def test_every_key_is_read_by_something() -> None:
    """A setting without a reader is a promise that nobody keeps."""
    assert without_reader(DEFAULTS) == []


@pytest.mark.parametrize("dead", ["colour", "cache.colour", "cache.enabled", "streams", "stream.offline"])
def test_a_key_that_nothing_reads_is_found_although_its_name_may_be_read_elsewhere(dead: str) -> None:
    assert without_reader([*DEFAULTS, dead]) == [dead]


def without_reader(keys: Iterable[str]) -> list[str]:
    """Return the settings that no file reads, neither from the settings nor from a section that it was given."""
    paths = [tuple(key.rpartition(".")[::2]) for key in keys]
    found = _found()
    uses = Counter(name for _, name in paths)  # a name that two keys share tells of neither
    return [
        f"{section}.{name}" if section else name
        for section, name in paths
        if (section, name) not in found and (not section or uses[name] > 1 or ("", name) not in found)
    ]


def _reads(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the section, or "", and the key of every attribute that is read as a setting's would be."""
    nodes = list(ast.walk(tree))
    holders = dict[str, set[str]]()  # the names that a section goes by in this file
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=ast.Attribute(attr=section)) if section in SECTIONS:
                holders.setdefault(_last_name(target), set()).add(section)
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                holders.setdefault(name, set()).update(_sections_in(annotation))
            case ast.AnnAssign(target=target, annotation=annotation):
                holders.setdefault(_last_name(target), set()).update(_sections_in(annotation))
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder = _last_name(node.value)
            yield from ((section, node.attr) for section in {holder, *holders.get(holder, ())} & SECTIONS.keys())
            if holder == "settings":
                yield "", node.attr


def _sections_in(annotation: ast.expr) -> set[str]:
    written = ast.unparse(annotation)
    return {section for section, model in SECTIONS.items() if model in written}


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.lstrip("_")
    return ""


@cache
def _found() -> frozenset[tuple[str, str]]:
    files = [path for path in (ROOT / "src").rglob("*.py") if not path.name.startswith("settings")]
    return frozenset(read for path in files for read in _reads(ast.parse(path.read_text(encoding="utf-8"))))


def test_the_page_about_settings_shows_those_that_there_are() -> None:
    program = [sys.executable, str(ROOT / "scripts" / "write_pages.py"), "--check"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("key", OTHER)
def test_every_key_can_be_set_in_the_environment_and_in_the_file(load: Callable[..., Settings], key: str) -> None:
    text, expected = OTHER[key]
    section, _, name = key.rpartition(".")
    spellings = (f"{section}__{name}", f"{section}_{name}") if section else (name, f"daemon_{name}")

    for spelling in spellings:
        assert value_of(load(environ={f"AMPLIFIERD_{spelling}".upper(): text}), key) == expected
    plain = list(map(str, expected)) if isinstance(expected, tuple) else str(expected)
    plain = text if isinstance(expected, Limits) else plain
    line = f"{section}: {{{name}: {plain}}}\n" if section else f"{name}: {plain}\n"
    assert value_of(load(line), key) == expected
    assert value_of(load(f"daemon:\n  {line}"), key) == expected


def test_flags_outrank_the_environment_which_outranks_the_file(load: Callable[..., Settings]) -> None:
    text = "offline: true\nstartup: {max_parallel_workers: 2, auto_compile: false}\ncompile: {keep_going: true}\n"
    environ = {"AMPLIFIERD_OFFLINE": "0", "AMPLIFIERD_STARTUP__MAX_PARALLEL_WORKERS": "3"}

    assert load(text, environ, offline=True).offline is True
    settings = load(text, environ, startup={"auto_compile": True})

    assert (settings.offline, settings.compile.keep_going) == (False, True)
    assert (settings.startup.auto_compile, settings.startup.max_parallel_workers) == (True, 3)


def test_the_usual_spelling_of_a_variable_outranks_the_older_one(load: Callable[..., Settings]) -> None:
    environ = {
        **{"AMPLIFIERD_OFFLINE": "1", "AMPLIFIERD_DAEMON_OFFLINE": "0"},
        **{"AMPLIFIERD_CACHE__HTTP_MAX_BYTES": "3", "AMPLIFIERD_CACHE_HTTP_MAX_BYTES": "4"},
    }

    settings = load(environ=environ)

    assert (settings.offline, settings.cache.http_max_bytes) == (True, 3)


def test_flat_and_nested_keys_are_read_together_and_the_flat_one_counts(load: Callable[..., Settings]) -> None:
    settings = load("daemon:\n  offline: false\n  cache: {http_max_bytes: 1}\noffline: true\n")

    assert (settings.offline, settings.cache.http_max_bytes) == (True, 1)


@pytest.mark.parametrize("text", ["", "# nothing\n", "startup:\n", "daemon:\n", "offline:\n"])
def test_what_is_left_empty_is_the_default(load: Callable[..., Settings], text: str) -> None:
    assert load(text) == load(environ={"AMPLIFIERD_OFFLINE": ""})


def test_relative_paths_are_frozen_as_absolute(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert load("security: {module_roots: [here]}\n").security.module_roots == (tmp_path / "here",)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("offline: perhaps\n", "offline"),
        ("startup: 3\n", "startup"),
        ("startup: {max_parallel_workers: 17}\n", "startup.max_parallel_workers"),
        ("startup: {max_parallel_workers: 0}\n", "startup.max_parallel_workers"),
        ("daemon: {cache: {http_max_bytes: 0}}\n", "cache.http_max_bytes"),
        ("cache: {http_max_bytes: true}\n", "cache.http_max_bytes"),
        ("compile: {install_dependencies: always}\n", "compile.install_dependencies"),
        ("security: {allowed_sources: example}\n", "security.allowed_sources"),
    ],
)
def test_an_invalid_file_is_an_error_that_names_file_and_key(
    load: Callable[..., Settings], file: Path, text: str, key: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(text)

    assert str(refused.value).startswith(f"{file}: {key}: ")


@pytest.mark.parametrize("text", ["offline: [\n", "- offline\n", "daemon: [1]\n", "just text\n"])
def test_a_file_that_is_no_mapping_is_an_error_that_names_it(
    load: Callable[..., Settings], file: Path, text: str
) -> None:
    with pytest.raises(SettingsError, match=str(file)):
        load(text)


def test_an_invalid_variable_is_named(load: Callable[..., Settings]) -> None:
    for environ in (
        {"AMPLIFIERD_STARTUP_MAX_PARALLEL_WORKERS": "many"},
        {"AMPLIFIERD_SECURITY__ALLOWED_SOURCES": '["a"'},
        {"AMPLIFIERD_DAEMON_OFFLINE": "perhaps"},
    ):
        with pytest.raises(SettingsError, match=next(iter(environ))):
            load("offline: true\n", environ)


def test_unknown_keys_are_warnings(load: Callable[..., Settings], file: Path) -> None:
    settings = load(
        "ports: 1\nstartup: {check: true}\nworkforce: {count: 2}\n",
        {"AMPLIFIERD_STARTUP__CHECK": "1", "AMPLIFIERD_HOME": "/x", "AMPLIFIERD_CACHE_DIR": "/y"},
    )

    assert settings.warnings == (
        "AMPLIFIERD_STARTUP__CHECK is not a setting and has no effect",
        f"{file}: ports is not a setting and has no effect",
        f"{file}: startup.check is not a setting and has no effect",
        f"{file}: workforce is not a setting and has no effect",
    )


def test_settings_are_frozen(load: Callable[..., Settings]) -> None:
    settings = load()

    with pytest.raises(ValidationError):
        settings.offline = True
    with pytest.raises(ValidationError):
        settings.startup.auto_compile = False


def test_the_environment_of_the_process_is_used_by_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPLIFIERD_OFFLINE", "1")

    assert load_settings(file).offline is True


def test_the_first_file_shows_every_default_as_a_comment(load: Callable[..., Settings], file: Path) -> None:
    assert create_settings_file(file) is True

    lines = file.read_text().splitlines()
    assert all(line == "" or line.startswith("#") for line in lines)
    assert load() == load_settings(file.with_name("none.yaml"), environ={})
    shown = load("\n".join(line.removeprefix("# ") for line in lines[1:]))
    assert (shown, shown.warnings) == (load_settings(file.with_name("none.yaml"), environ={}), ())
    assert shown.model_fields_set >= {"offline", "startup", "security"}
    assert create_settings_file(file) is False


def test_edits_keep_comments_and_take_effect(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    load("# mine\noffline: no  # odd\nstartup:\n  # keep\n  auto_compile: false\ncache: {http_max_bytes: 3}\n")

    changes = {"offline": True, "startup.max_parallel_workers": 2, "cache.http_max_bytes": None}
    settings = edit_settings(file, changes, locks_dir=tmp_path / "locks")

    head, _, tail = file.read_text().partition("startup:")
    assert re.fullmatch(r"# mine\noffline: true +# odd\n", head)
    assert tail == "\n  # keep\n  auto_compile: false\n  max_parallel_workers: 2\ncache: {}\n"
    assert (settings.offline, settings.startup.max_parallel_workers) == (True, 2)
    assert settings.cache.http_max_bytes == 52428800
    assert load() == settings


def test_an_edit_of_the_first_file_leaves_its_comments(
    load: Callable[..., Settings], file: Path, tmp_path: Path
) -> None:
    create_settings_file(file)
    before = file.read_text()

    edit_settings(file, {"offline": True}, locks_dir=tmp_path / "locks")

    assert file.read_text() == f"{before}offline: true\n"
    assert load().offline is True


def test_an_edit_finds_keys_in_the_nested_section(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    load("daemon:\n  offline: false\n")

    edit_settings(file, {"offline": True}, locks_dir=tmp_path / "locks")

    assert file.read_text() == "daemon:\n  offline: true\n"


@pytest.mark.parametrize(
    "changes", [{"offline": "high"}, {"prot": 1}, {"startup": {}}, {"startup.auto_compile": "maybe"}]
)
def test_a_wrong_edit_changes_nothing(
    load: Callable[..., Settings], file: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    load("offline: true\n")

    with pytest.raises(SettingsError, match=next(iter(changes))):
        edit_settings(file, changes, locks_dir=tmp_path / "locks")

    assert file.read_text() == "offline: true\n"


def test_a_broken_file_is_not_edited(load: Callable[..., Settings], file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    file.write_text("offline: [\n")

    with pytest.raises(SettingsError):
        edit_settings(file, {"offline": True}, locks_dir=tmp_path / "locks")

    assert file.read_text() == "offline: [\n"
