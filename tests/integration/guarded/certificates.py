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
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name}.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = self._certificate(name, self._key.public_key()).add_extension(constraints, critical=True)
        self._write(self.file, own)

    def server(self, address: str = "127.0.0.1", *, days: int = 1) -> ssl.SSLContext:
        """For a server at this address. `days`: from now until its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._folder / f"{self._name}-server.pem"
        address_of = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        made = self._certificate(address, key.public_key(), days).add_extension(address_of, critical=False)
        self._write(file, made)
        plain = serialization.NoEncryption()
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        with file.open("ab") as both:
            both.write(key.private_bytes(pem, form, plain))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def _certificate(self, name: str, key: ec.EllipticCurvePublicKey, days: int = 1) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key)
        builder = builder.subject_name(_name(name)).issuer_name(_name(self._name))
        return builder.not_valid_before(now - 2 * _DAY).not_valid_after(now + days * _DAY)

    def _write(self, file: Path, builder: x509.CertificateBuilder) -> None:
        signed = builder.sign(self._key, hashes.SHA256())
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
