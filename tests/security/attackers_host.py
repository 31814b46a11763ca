"""The first program in the namespaces: gives loopback the attackers' addresses, serves them, and becomes a keeper.

`/to?ADDRESS` redirects, `/search` finds ten pages on two hosts, and everything else is answered with a page. Each
request is a line of the file `requests`.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIOCSIFADDR = 0x8916
PR_SET_PDEATHSIG = 1
PAGE = b"<html><body><p>A page about milk, with <a href='http://attacker.example/more'>more</a>.</p></body></html>"

_RESULTS = [f"http://{host}.example/milk/{number}" for number in range(5) for host in ("news", "other")]
FOUND = json.dumps({"results": [{"title": "Milk", "url": url, "content": "About milk."} for url in _RESULTS]}).encode()


class Attacker(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = [f"{self.command} http://{self.headers.get('Host')}{self.path}", dict(self.headers)]
        line = json.dumps([*asked, self.rfile.read(length).decode(errors="replace")])
        with Path("requests").open("a") as file:
            file.write(f"{line}\n")
        way, _, target = self.path.partition("?")
        self.send_response(302 if way == "/to" else 200)
        if way == "/to":
            self.send_header("Location", target)
        body = FOUND if way == "/search" else PAGE
        self.send_header("Content-Type", "application/json" if way == "/search" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None: ...


def add_address(number: int, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        place = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(asking, SIOCSIFADDR, place)


def main(root: str, keeper: str, channel: str, *addresses: str) -> None:
    for number, address in enumerate(addresses, start=1):
        add_address(number, address)
    server = ThreadingHTTPServer(("0.0.0.0", 80), Attacker)  # the network of the namespace reaches nothing else
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the keeper
        os.close(int(channel))
        os.chdir(root)
        server.serve_forever()
    server.server_close()
    Path(root, "listening").touch()
    os.execv(sys.executable, [sys.executable, keeper, channel])


if __name__ == "__main__":
    main(*sys.argv[1:])
