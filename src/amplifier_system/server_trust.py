"""By what a server is known: the certificates that it must show."""

import ssl


def trust_for(url: str) -> ssl.SSLContext | bool:
    """Return what an HTTP client is to verify the server of a URL with: True stands for the system's certificates.

    Reading those takes tens of milliseconds. A client of a server that speaks plain HTTP is spared them; what it gets
    trusts no server.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http:") else True
