"""Members that speak TLS: only who shows a certificate of the cluster's authority is told anything."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from served_member import serving

from amplifierd import open_home
from amplifierd.cluster.cluster_token import find_cluster_token
from amplifierd.cluster.destination import Destination
from amplifierd.cluster.peers import Peers
from amplifierd.exceptions import MemberError, SettingsError
from amplifierd.server.auth.callers import carried
from amplifierd.server.daemon import Daemon
from amplifierd.server.membership import is_overheard, member_tls, open_cluster
from amplifierd.server.other_members import MEMBER
from amplifierd.settings import Settings

LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates; `pair` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pair = self._write(f"{name}-ca", self._name, self._key, [], is_ca=True)

    def issue(self, name: str, named: x509.GeneralName = LOOPBACK, days: int = 1) -> Pair:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._write(name, subject, ec.generate_private_key(ec.SECP256R1()), [named], days=days)

    def _write(
        self, file: str, subject: x509.Name, key: Any, names: list[Any], *, is_ca: bool = False, days: int = 1
    ) -> Pair:
        until = datetime.now(UTC) + timedelta(days=days)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(until - timedelta(days=2)).not_valid_after(until)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = Pair(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(encoding))
        pair.key.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
        return pair


@contextmanager
def stranger(pair: Pair) -> Iterator[tuple[str, list[bytes]]]:
    """Speak TLS with a certificate; yields the address, and what was heard there."""
    context, heard = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), list[bytes]()
    context.load_cert_chain(pair.certificate, pair.key)
    with create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    with suppress(ssl.SSLError), context.wrap_socket(listener.accept()[0], server_side=True) as spoken:
                        heard.append(spoken.recv(1000))

        threading.Thread(target=listen, daemon=True).start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(2)


def known_by(pair: Pair) -> ssl.SSLContext | None:
    return member_tls(Settings(cluster={"ca_file": str(pair.certificate)}))  # type: ignore[arg-type]


async def test_a_member_with_a_certificate_of_the_authority_is_asked(postgres_address: str, tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    own = ours.issue("north")
    tls = {"mode": "manual", "certfile": str(own.certificate), "keyfile": str(own.key)}
    overrides = {"port": 0, "offline": True, "store": postgres_address, "tls": tls}
    home = open_home(tmp_path / "home", overrides=overrides)
    with serving(home) as address:
        stores = open_home(tmp_path / "other", overrides={"store": postgres_address})
        (member,) = await stores.sessions.runtime.store.members.list()  # type: ignore[attr-defined]
        await stores.sessions.close()
        peers = Peers(find_cluster_token(home.paths), "member_x", tls=known_by(ours.pair))

        answer = await peers.ask(
            Destination(member.member_id, member.address), "/api/v1/cluster", caller=carried(MEMBER, "")
        )

        assert (answer["member_id"], member.address) == (member.member_id, address)
        await peers.close()


@pytest.mark.parametrize("kind", ["another authority", "expired", "another name"])
async def test_who_shows_another_certificate_hears_nothing(kind: str, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    shown = {
        "another authority": lambda: theirs.issue("north"),
        "expired": lambda: ours.issue("north", days=-1),
        "another name": lambda: ours.issue("north", x509.DNSName("south.internal")),
    }[kind]()
    peers = Peers(b"t" * 32, "member_x", tls=known_by(ours.pair))

    with stranger(shown) as (address, heard), pytest.raises(MemberError, match="CERTIFICATE_VERIFY_FAILED") as raised:
        await peers.ask(Destination("member_y", address), "/api/v1/cluster", caller="")

    assert (heard, raised.value.was_sent) == ([], False)
    await peers.close()


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(SettingsError, match=r"cluster\.ca_file"):
        member_tls(Settings(cluster={"ca_file": str(tmp_path / "none.pem")}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "is_so"),
    [
        ("http://10.0.0.5:8420", True),
        ("https://10.0.0.5", False),
        ("http://127.0.0.1:8420", False),
        ("http://[::1]", False),
    ],
)
def test_an_address_that_can_be_overheard_is_known(address: str, is_so: bool) -> None:
    assert is_overheard(address) is is_so


async def test_a_daemon_that_members_reach_without_tls_says_so(postgres_address: str, tmp_path: Path) -> None:
    overrides = {"store": postgres_address, "cluster": {"address": "http://10.0.0.5:8420"}}
    daemon = Daemon(open_home(tmp_path, overrides=overrides))

    cluster = open_cluster(daemon, None)

    assert cluster is not None
    assert "without TLS, at http://10.0.0.5:8420" in daemon.warnings[-1]
    await cluster.peers.close()
    await daemon.home.sessions.close()
