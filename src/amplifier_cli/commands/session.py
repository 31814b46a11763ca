"""`amplifier session`: stored conversations."""

from __future__ import annotations

from amplifier_cli.command_group import examples, new_group

from . import session_reading as reading
from . import session_upkeep as upkeep

app = new_group(
    "List, read, continue and tidy up sessions.\n\n"
    "A session is named by its id, the beginning of it, its name, or the word last.",
    "amplifier session list",
    "amplifier session show last",
    "amplifier session resume 3fa9a888",
)

app.command("list", epilog=examples("amplifier session list", "amplifier session list --here --limit 5"))(
    reading.list_sessions
)
app.command(epilog=examples("amplifier session show last", "amplifier session show 3fa9a888 --json"))(reading.show)
app.command(epilog=examples('amplifier session search "database migration"'))(reading.search)
app.command(epilog=examples("amplifier session resume last", "amplifier session resume 3fa9a888 --profile coding"))(
    reading.resume
)
app.command(epilog=examples("amplifier session replay last", "amplifier session replay last --profile coding"))(
    reading.replay
)
app.command(epilog=examples("amplifier session diff last", "amplifier session diff last --turn 2"))(reading.diff)
app.command(epilog=examples("amplifier session fork last", "amplifier session fork 3fa9a888 --turn 2"))(upkeep.fork)
app.command(epilog=examples('amplifier session rename last "The migration"'))(upkeep.rename)
app.command(epilog=examples("amplifier session undo last", "amplifier session undo last --files"))(upkeep.undo)
app.command(epilog=examples("amplifier session export last talk.zip"))(upkeep.export)
app.command("import", epilog=examples("amplifier session import talk.zip"))(upkeep.import_)
app.command(epilog=examples("amplifier session delete 3fa9a888"))(upkeep.delete)
app.command(epilog=examples("amplifier session cleanup --older-than 90 --dry-run"))(upkeep.cleanup)
app.command(epilog=examples("amplifier session repair last"))(upkeep.repair)
