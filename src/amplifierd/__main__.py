"""`python -m amplifierd` serves; with a command it is `amplifierd`."""

import sys

from amplifierd.control.main import main

sys.exit(main(sys.argv[1:] or ["serve"]))
