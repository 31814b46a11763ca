"""A program of a shell's that the shared keeper forks: `python -ES warm_program.py CHANNEL ARGUMENTS…`.

CHANNEL is the descriptor of the keeper's channel, ARGUMENTS are those of `python`.
"""

import socket
import sys

import warm_python

if __name__ == "__main__":
    keeper = warm_python.Keeper(socket.socket(fileno=int(sys.argv[1])))
    code = warm_python.Popen([sys.executable, *sys.argv[2:]], keeper=keeper).wait()
    sys.exit(code if code >= 0 else 128 - code)  # as a shell tells of a signal
