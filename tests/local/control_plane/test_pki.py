"""Certificates: what Kubernetes reads as user and groups, and what a server answers to."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from local.control_plane.pki import Identity, Pki

KUBELET = Identity("kubelet", "system:node:a", ("system:nodes",), hosts=("a", "10.0.0.1"))


def test_a_certificate_names_user_groups_and_hosts(tmp_path: Path):
    pki = Pki(tmp_path)
    pki.ensure(KUBELET)
    certificate = x509.load_pem_x509_certificate(pki.certificate("kubelet").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:a"
    assert certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"
    assert names.get_values_for_type(x509.DNSName) == ["a"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


def test_what_exists_is_kept(tmp_path: Path):
    pki = Pki(tmp_path)
    pki.ensure(KUBELET)
    before = pki.certificate("kubelet").read_bytes()
    pki.ensure(KUBELET)
    assert pki.certificate("kubelet").read_bytes() == before


def test_keys_are_for_their_owner_only(tmp_path: Path):
    pki = Pki(tmp_path)
    pki.ensure(KUBELET)
    assert {pki.key(name).stat().st_mode & 0o777 for name in ("ca", "kubelet", "service-accounts")} == {0o600}


def test_openssl_takes_them(tmp_path: Path):
    pki = Pki(tmp_path)
    pki.ensure(KUBELET)
    context = ssl.create_default_context(cafile=pki.authority)
    context.load_cert_chain(pki.certificate("kubelet"), pki.key("kubelet"))
