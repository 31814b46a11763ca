"""Makes the modules of the repository importable where the installed distribution does not offer them."""

import sys
from importlib.util import find_spec
from pathlib import Path

for _folder in sorted((Path(__file__).parents[2] / "modules").iterdir()):
    if _folder.is_dir() and find_spec(f"amplifier_module_{_folder.name.replace('-', '_')}") is None:
        sys.path.append(str(_folder))
