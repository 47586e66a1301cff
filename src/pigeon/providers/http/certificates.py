"""Which certificates are trusted. The store is loaded in a worker thread: it costs a twentieth of a second."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Mapping
from functools import cache

# Where Linux distributions keep them, for a Python that was built elsewhere.
_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def load_certificates(environment: Mapping[str, str]) -> ssl.SSLContext:
    """What this environment trusts; raises an `OSError` that names the file."""
    file, folder = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    try:
        if not file and not folder:
            return load_default_certificates()
        context = ssl.create_default_context(cafile=file or None, capath=None if file else folder)
    except OSError as error:
        place = file or folder or "the system's store"
        raise OSError(f"the certificates in {place} cannot be loaded (SSL_CERT_FILE, SSL_CERT_DIR): {error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


@cache
def load_default_certificates() -> ssl.SSLContext:
    """The system's trusted certificates; loaded once in a process."""
    if sys.platform == "darwin":
        import truststore

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_system_store(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_system_store(context: ssl.SSLContext) -> None:
    """Load the store that OpenSSL was built for, else a usual one.

    `ssl.create_default_context` would read SSL_CERT_FILE and SSL_CERT_DIR of the process.
    """
    built_in = ssl.get_default_verify_paths()
    file = built_in.openssl_cafile if os.path.isfile(built_in.openssl_cafile) else None
    folder = built_in.openssl_capath if _has_hashed_certificates(built_in.openssl_capath) else None
    if not file and not folder:
        file = next(filter(os.path.isfile, _USUAL_FILES), None)
    if file or folder:
        context.load_verify_locations(file, folder)


def system_store_places() -> list[str]:
    """The files and folders from which the system's certificates may be loaded."""
    built_in = ssl.get_default_verify_paths()
    return [built_in.openssl_cafile, built_in.openssl_capath, *_USUAL_FILES]


def _has_hashed_certificates(folder: str) -> bool:
    """Whether OpenSSL can look certificates up in this folder: their files are named by hashes."""
    try:
        return any(len(name) > 9 and name[8] == "." and name[9:].isdigit() for name in os.listdir(folder))
    except OSError:
        return False
