"""Bundles that are kept in files."""

import datetime
from pathlib import Path

import pytest

from amplifier_foundation import Bundle, CacheProviderProtocol, DiskCache


def test_a_bundle_is_there_again_in_the_next_process(tmp_path: Path) -> None:
    bundle = Bundle(
        "b",
        "2.0",
        "What it is.",
        includes=["x"],
        session={"orchestrator": "o"},
        tools=[{"module": "t"}],
        context={"b:c": tmp_path / "c.md"},
        instruction="Grüße.",
        base_path=tmp_path,
        source_base_paths={"b": tmp_path},
    )
    DiskCache(tmp_path / "cache").set("git+https://host/x@main", bundle)
    cache = DiskCache(tmp_path / "cache")

    assert isinstance(cache, CacheProviderProtocol)
    assert cache.get("git+https://host/x@main") == bundle
    assert "git+https://host/x@main" in cache
    assert "other" not in cache
    cache.clear()
    assert cache.get("git+https://host/x@main") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 1, "bundle": {"nothing": 1}}', "\ud800"])
def test_a_broken_entry_is_removed_and_counts_as_absent(tmp_path: Path, text: str) -> None:
    cache = DiskCache(tmp_path)
    cache.set("key", Bundle("b"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(text.encode("utf-8", "surrogatepass"))

    assert "key" not in cache
    assert not file.exists()


def test_what_is_not_plain_data_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path)
    cache.set("key", Bundle("old"))

    cache.set("key", Bundle("new", session={"since": datetime.date(2025, 1, 1)}))

    assert cache.get("key") is None
    assert "'new' is not kept" in caplog.text
