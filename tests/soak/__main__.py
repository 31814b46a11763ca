"""Runs one of the soaks, with the stand-ins on the path: `python tests/soak crash_soak --kills 100`."""

import runpy
import sys
from pathlib import Path

SOAKS = Path(__file__).parent

sys.path += [str(SOAKS.parent / name) for name in ("stand_ins", "cli")]
name, *options = sys.argv[1:] or sys.exit("name one, for example crash_soak")
sys.argv = [str(SOAKS / f"{name}.py"), *options]
runpy.run_path(sys.argv[0], run_name="__main__")
