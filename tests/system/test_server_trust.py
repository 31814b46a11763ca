"""What a server is verified with."""

import ssl

import pytest

from amplifier_system.urls import trust_for


@pytest.mark.parametrize("url", ["http://127.0.0.1:11434/v1", "HTTP://localhost"])
def test_a_server_that_speaks_plain_http_needs_no_certificates_and_one_with_tls_would_not_be_trusted(url: str) -> None:
    trust = trust_for(url)

    assert isinstance(trust, ssl.SSLContext)
    assert (trust.cert_store_stats()["x509"], trust.verify_mode, trust.check_hostname) == (0, ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("url", ["https://example.org/v1", "HTTPS://example.org"])
def test_a_server_with_tls_is_known_by_the_certificates_of_the_system(url: str) -> None:
    assert trust_for(url) is True
