"""Keys and certificates of one cluster: one authority, one certificate a party."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=3650)
_SKEW = dt.timedelta(hours=1)
_SERVER_AND_CLIENT = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Identity:
    """A party: Kubernetes takes the common name as its user, the organizations as its groups.

    `hosts` are the names and addresses that a server answers to; `file` names its files.
    """

    file: str
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pki:
    """The files under one directory. What exists is kept: running parts hold it in memory."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which every party trusts."""
        return self.certificate("ca")

    @property
    def service_account_key(self) -> Path:
        """The key that signs service accounts' tokens."""
        return self.key("service-accounts")

    def certificate(self, file: str) -> Path:
        """Find a party's certificate."""
        return self.directory / f"{file}.crt"

    def key(self, file: str) -> Path:
        """Find a party's private key."""
        return self.directory / f"{file}.key"

    def ensure(self, *identities: Identity) -> None:
        """Make the authority, the token key and the certificates that are missing."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.authority.exists():
            key = self._new_key("ca")
            self._write_certificate("ca", _sign(key, key, _name("gpudask local"), _name("gpudask local"), None))
        if not self.service_account_key.exists():
            self._new_key("service-accounts")
        for identity in identities:
            if not self.certificate(identity.file).exists():
                self._issue(identity)

    def _issue(self, identity: Identity) -> None:
        authority_key = serialization.load_pem_private_key(self.key("ca").read_bytes(), password=None)
        authority = x509.load_pem_x509_certificate(self.authority.read_bytes())
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
        subject = _name(identity.user, *identity.groups)
        key = self._new_key(identity.file)
        self._write_certificate(identity.file, _sign(key, authority_key, subject, authority.subject, identity))

    def _new_key(self, file: str) -> ec.EllipticCurvePrivateKey:
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        self.key(file).touch(mode=0o600)
        self.key(file).write_bytes(pem)
        return key

    def _write_certificate(self, file: str, certificate: x509.Certificate) -> None:
        self.certificate(file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _name(user: str, *groups: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _sign(
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    issuer: x509.Name,
    identity: Identity | None,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=identity is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if identity is None:
        builder = builder.add_extension(_authority_usage(), critical=True)
    else:
        builder = builder.add_extension(x509.ExtendedKeyUsage(_SERVER_AND_CLIENT), critical=False)
        if identity.hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in identity.hosts])
            builder = builder.add_extension(names, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _authority_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
