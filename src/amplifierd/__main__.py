"""`python -m amplifierd` serves; with a command it is `amplifierd`."""

import sys

from amplifier_system.garbage import begin_the_start

if __name__ == "__main__":
    begin_the_start()
    from amplifierd.control.main import main  # much to import, once nothing looks for garbage in it

    sys.exit(main(sys.argv[1:] or ["serve"]))
