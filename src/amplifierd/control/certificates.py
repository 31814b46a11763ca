"""The certificate that the daemon shows: one that was given, or one that it makes itself."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import write_atomically
from amplifierd.exceptions import SettingsError
from amplifierd.paths import Paths
from amplifierd.settings import Settings, certificate_missing

_VALID = timedelta(days=397)  # what clients accept at most
_RENEWED_BEFORE = timedelta(days=30)


def tls_files(settings: Settings, paths: Paths) -> tuple[Path, Path]:
    """Return certificate and key, with TLS on; for `auto` they are made, and made again before they expire.

    Raises:
        SettingsError: they are missing, or cannot be used.
    """
    tls = settings.tls
    if tls.mode == "auto":
        certificate, key = paths.certs / "daemon.crt", paths.certs / "daemon.key"
        if not _is_valid(certificate, settings.host) or not key.exists():
            _make(certificate, key, settings.host)
    elif tls.certfile is None or tls.keyfile is None:
        raise certificate_missing()
    else:
        certificate, key = tls.certfile, tls.keyfile
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"the certificate {certificate} with the key {key} cannot be used: {error}") from error
    return certificate, key


def _is_valid(path: Path, host: str) -> bool:
    """True if a certificate is there, is good for a while, and names the host."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return certificate.not_valid_after_utc > datetime.now(UTC) + _RENEWED_BEFORE and _name_of(host) in names


def _make(certificate_file: Path, key_file: Path, host: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "amplifierd")])
    now = datetime.now(UTC)
    names = {_name_of(name) for name in (host, "localhost", "127.0.0.1", "::1", socket.gethostname())}
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(sorted(names, key=str)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    make_directory(certificate_file.parent)
    plain = serialization.NoEncryption()
    encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    write_atomically(key_file, encoded, private=True)
    write_atomically(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
