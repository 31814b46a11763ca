"""Write the generated page of the documentation, `docs/settings.md`; with --check only say whether it is old."""

import json
import sys
from pathlib import Path
from typing import Any

from amplifierd import Settings
from amplifierd.paths import PREFIX
from amplifierd.settings_layers import keys_of

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = """\
# Settings

<!-- Generated from `amplifierd/settings.py`: make pages -->

What the owner of a home can set. A value comes from `open_home(overrides={…})`, else from an environment variable, else
from `config/daemon.yaml`, else it is the default. A key that is not in this table has no effect and is reported in
`home.settings.warnings`; a value that cannot be understood is an error that names its file and key.

| Key | Default | Variable | What it does |
|---|---|---|---|
"""

FOOT = """
A list is written as JSON or with commas between its items, a switch as `1`, `true`, `yes` or `on`. In the file, keys
with a dot are nested:

```yaml
offline: false
startup:
  auto_compile: true
```
"""


def page() -> str:
    rows = []
    for path, info in keys_of(Settings):
        variable = f"{PREFIX}{'__'.join(path)}".upper()
        rows.append(f"| `{'.'.join(path)}` | `{_shown(info.default)}` | `{variable}` | {info.description} |\n")
    return HEAD + "".join(rows) + FOOT


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return str(default) if isinstance(default, str | Path) else json.dumps(default)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
        sys.exit(f"{PAGE} is old: run make pages")
