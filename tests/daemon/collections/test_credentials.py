"""Credentials in the source of a collection, and in those of modules: used, and neither stored nor shown."""

import logging
from pathlib import Path
from typing import Any

import pytest
from git_server import files_with, git_server

from amplifier_foundation.sources import ProgressEvent

SECRET = "s3cr3t"
AGENT = "---\nmeta:\n  name: helper\n  description: Helps.\n---\nHelp.\n"


async def test_a_collection_with_a_token_leaves_it_in_no_file_but_its_entry(
    new_home: Any, new_repository: Any, text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[ProgressEvent] = []
    home = new_home(progress=events.append)
    repository = new_repository("origin", {"profiles/base.md": text("base", extra="agents: all"), "agents/a.md": AGENT})
    with git_server(repository, f"token-{SECRET}", "") as server:
        source = f"git+http://token-{SECRET}@{server.host}/origin/.git@main"
        added = await home.collections.add("priv", source, compile=True)
        repository.commit({"profiles/base.md": text("base", body="New.", extra="agents: all")})
        updated = await new_home().collections.sync(["priv"], compile=True)
        (before,) = (home.paths.cache / "git").glob(f"{updated['priv'].commit_after}.json")
        before.unlink()  # it left the cache, and is fetched again
        build = await new_home().profiles.compile("priv/base", force=True)

    assert (added.warning, updated["priv"].status) == (None, "updated")
    assert build.lock.data["resources"]["agents"]["a"]["commit"] == updated["priv"].commit_after
    assert home.collections.get("priv").source == f"git+http://{server.host}/origin/.git@main"
    assert files_with(home.paths.home, SECRET) == ["share/collections.yaml"]
    assert SECRET not in f"{events}{caplog.text}{added}{updated}"


async def test_a_module_with_a_token_is_locked_without_it(
    new_home: Any, new_repository: Any, text: Any, home: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    repository = new_repository("agents", {"helper.md": AGENT})
    own = home.paths.own_profiles
    own.mkdir(parents=True)
    with git_server(repository, "me", SECRET) as server:
        extra = f"agents:\n  helper: git+http://me:{SECRET}@{server.host}/agents/.git@main#subdirectory=helper.md"
        (own / "mine.md").write_text(text("mine", extra=extra))
        first = await home.profiles.compile("local/mine")
        same = await new_home().profiles.compile("local/mine")
        repository.commit({"helper.md": AGENT.replace("Help.", "Help more.")})
        await new_home().collections.sync(refresh=True, compile=True)
        moved = await new_home().profiles.compile("local/mine")

    assert first.build_id == same.build_id != moved.build_id
    assert first.lock.data["resources"]["agents"]["helper"]["ref"] == (
        f"git+http://{server.host}/agents/.git@main#subdirectory=helper.md"
    )
    found = files_with(home.paths.home, SECRET)
    assert {Path(name).name for name in found} == {"mine.md", "profile.md"}  # what the person wrote, and its copy
    assert SECRET not in caplog.text


async def test_an_error_of_a_collection_has_no_token(home: Any, repository: Any) -> None:
    with git_server(repository, "me", "other") as server, pytest.raises(Exception, match="Failed to clone") as caught:
        await home.collections.add("priv", f"git+http://me:{SECRET}@{server.host}/origin/.git@main")

    assert SECRET not in str(caught.value)
