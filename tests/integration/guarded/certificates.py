"""Certificate authorities and the certificates of servers on this machine, made when a test needs them."""

import datetime as dt
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates.

    Attributes:
        file: its own certificate, for those who trust it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name, self._key = folder, name, ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self.file.write_bytes(self._certificate(name, self._key.public_key(), constraints))

    def server(self, address: str = "127.0.0.1", *, days: int = 1) -> ssl.SSLContext:
        """For a server at this address. `days`: from now until its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._folder / f"{self._name}-server.pem"
        address_of = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, form, plain)
        file.write_bytes(self._certificate(address, key.public_key(), address_of, days) + private)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def _certificate(
        self, name: str, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType, days: int = 1
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key)
        builder = builder.subject_name(_name(name)).issuer_name(_name(self._name))
        builder = builder.not_valid_before(now - 2 * _DAY).not_valid_after(now + days * _DAY)
        critical = isinstance(extension, x509.BasicConstraints)
        signed = builder.add_extension(extension, critical=critical).sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
