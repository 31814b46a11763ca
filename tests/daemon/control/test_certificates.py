"""The certificate of a daemon that runs for months: one that is replaced is shown without a restart."""

import ssl
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from amplifierd import open_home
from amplifierd.app import create_app
from amplifierd.control import serve as web_server
from amplifierd.control.binding import bind
from amplifierd.control.certificates import tls_files


def test_a_certificate_that_is_replaced_is_shown_to_the_next_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "RENEW_S", 0.05)
    home = open_home(tmp_path, overrides={"port": 0, "offline": True, "tls": {"mode": "auto"}})
    binding, is_started = bind(home.settings), Event()
    server = web_server.Server(
        create_app(home=home), find_tls=lambda: tls_files(home.settings, home.paths), on_started=is_started.set
    )
    thread = Thread(target=lambda: server.run(sockets=[binding.listener]))
    thread.start()
    try:
        assert is_started.wait(60)
        address = binding.listener.getsockname()
        first = ssl.get_server_certificate(address)

        (home.paths.certs / "daemon.crt").unlink()

        deadline = time.monotonic() + 60
        while (shown := ssl.get_server_certificate(address)) == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert shown == (home.paths.certs / "daemon.crt").read_text()
    finally:
        server.handle_exit(15, None)
        thread.join()
