"""`python -m amplifierd` serves; with a command it is `amplifierd`."""

import sys

from amplifier_system.garbage import look_seldom

if __name__ == "__main__":
    look_seldom()
    from amplifierd.control.main import main  # much to import, once nothing looks for garbage in it

    sys.exit(main(sys.argv[1:] or ["serve"]))
