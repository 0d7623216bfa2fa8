"""Certificates for the server and keys for the nodes, made with what Flower brings along."""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as serial
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sofa_fl.experiment.storage.disk import write_text

DAYS = 825  # no longer: some systems do not accept it


def make_server(folder: Path, hosts: Sequence[str]) -> None:
    """A certificate authority of one's own, and the server's certificate for these hosts.

    The authority's key is not kept: a new server certificate means a new authority.
    """
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SOFA-FL CA")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .add_extension(_usage(sign=False), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    certificate = (
        _builder(name, ca_name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(h) for h in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .add_extension(_usage(sign=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    _write(folder / "ca.crt", ca.public_bytes(serial.Encoding.PEM), 0o644)
    _write(folder / "server.pem", certificate.public_bytes(serial.Encoding.PEM), 0o644)
    pem = key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption())
    _write(folder / "server.key", pem, 0o600)


def make_node(folder: Path, name: str) -> None:
    """A node's key pair, as `ssh-keygen -t ecdsa -b 384` makes it."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serial.Encoding.PEM, serial.PrivateFormat.OpenSSH, serial.NoEncryption()
    )
    public = key.public_key().public_bytes(serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    _write(folder / name, private, 0o600)
    _write(folder / f"{name}.pub", public + f" {name}\n".encode(), 0o644)


def write_connection(app: Path, address: str) -> None:
    """Tell `flwr` of the server, under the name `deployed`."""
    file = app / ".flwr" / "config.toml"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    text = text.partition("\n[superlink.deployed]")[0].rstrip("\n")
    lines = [
        "[superlink.deployed]",
        f'address = "{address}"',
        f'root-certificates = "{(app / "keys" / "ca.crt").resolve()}"',
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "\n".join([text, "", *lines]).lstrip("\n") + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """`python keys.py --server HOST:PORT --nodes 3`."""
    parser = argparse.ArgumentParser(description="Make certificates and keys.")
    parser.add_argument("--server", help="HOST:PORT that nodes reach the server at")
    parser.add_argument("--also", nargs="*", default=[], help="other names of that host")
    parser.add_argument("--nodes", type=int, default=0, help="how many nodes")
    parser.add_argument("--node", nargs="*", default=[], help="nodes by name")
    parser.add_argument("--app", type=Path, default=Path.cwd(), help="the app's folder")
    given = parser.parse_args(arguments)
    folder: Path = given.app / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    if given.server:
        host, _, port = given.server.rpartition(":")
        if not host or not port.isdecimal():
            parser.error(f"--server must be HOST:PORT, got {given.server}")
        make_server(folder, [host, *given.also])
        write_connection(given.app, given.server)
    for name in [*(f"node-{i}" for i in range(given.nodes)), *given.node]:
        if (folder / name).exists():
            parser.error(f"{folder / name} is there already; delete it to make another")
        make_node(folder, name)
    print(f"wrote {', '.join(sorted(path.name for path in folder.iterdir()))} to {folder}")


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    """What a key is for: to sign connections, or to sign certificates."""
    return x509.KeyUsage(
        digital_signature=sign,
        key_cert_sign=not sign,
        crl_sign=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes, mode: int) -> None:
    """With these rights from the first moment on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main()
