"""What is newer is told by what was read, never by the clock."""

import json
from pathlib import Path

from git_repository import Repository

from amplifier_foundation.sources import Sources


async def test_a_time_in_the_future_does_not_stop_updates(repository: Repository, cache_dir: Path) -> None:
    source = f"{repository.source}@main"
    first = await Sources(cache_dir).resolve(source)
    refs = cache_dir / "git" / "refs.json"
    known = json.loads(refs.read_text())
    for entries in known.values():
        entries["main"]["checked_at"] = "2999-01-01T00:00:00.000000Z"
    refs.write_text(json.dumps(known))
    commit = repository.commit({"bundle.md": "newer\n"})

    second = await Sources(cache_dir).resolve(source, refresh=True)

    assert first.commit != second.commit == commit
