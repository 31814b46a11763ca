"""`python -m amplifier_cli` is `amplifier`."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
