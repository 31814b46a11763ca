"""Puts the stand-ins for what surrounds a turn on the path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "stand_ins"))
