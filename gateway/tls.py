"""TLS for clients: the server's context, from the operator's two files. HTTP/1.1 only.

Not here: TLS towards backends (`backends.client`), which needs no files.
"""

import ssl
from pathlib import Path


class TlsError(Exception):
    """The gateway cannot serve TLS; the message says which file is to blame, and why."""


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The context for a certificate (with its chain, PEM) and its key; None without them.

    Raises TlsError.
    """
    if certificate is None or key is None:
        return None
    for what, path in (("certificate", certificate), ("key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise TlsError(f"cannot read the TLS {what} {path}: {reason}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    def no_passphrase() -> str:
        raise TlsError(f"the TLS key {key} is encrypted: nobody is there to type its passphrase")

    try:
        context.load_cert_chain(certificate, key, no_passphrase)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise TlsError(
            f"{certificate} and {key} are no certificate and its key: {reason}"
        ) from error
    return context
