"""Certificates for the server and key pairs for SuperNodes, made with `cryptography`.

Flower brings that package along. Private keys are readable by their owner alone, and no file is
overwritten unless the user asks for it.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as serial
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sofa_fl.errors import ConfigError
from sofa_fl.experiment.storage.disk import write_text
from sofa_fl_flower.flower.proxy import proxy_config

LINK = "127.0.0.1:8001"  # where the SuperLink listens
DAYS = 825  # some systems accept no longer validity
ALWAYS = ("localhost", "127.0.0.1")  # every server certificate covers these, for checks on the spot
PUBLIC, PRIVATE = 0o644, 0o600  # access rights of files


def make_server_files(folder: Path, hosts: Sequence[str], *, overwrite: bool = False) -> None:
    """Create a certificate authority, and the server's certificate for these hosts.

    The authority's key is not stored: a new server certificate means a new authority.
    """
    ca_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SOFA-FL CA")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    names = [_general_name(host) for host in dict.fromkeys([*hosts, *ALWAYS])]
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
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .add_extension(_usage(sign=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    pem = key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption())
    files = {
        "ca.crt": (ca.public_bytes(serial.Encoding.PEM), PUBLIC),
        "server.pem": (certificate.public_bytes(serial.Encoding.PEM), PUBLIC),
        "server.key": (pem, PRIVATE),
    }
    _write(folder, files, overwrite)


def make_supernode_keys(folder: Path, name: str, *, overwrite: bool = False) -> None:
    """Create a SuperNode's key pair, as `ssh-keygen -t ecdsa -b 384` does."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serial.Encoding.PEM, serial.PrivateFormat.OpenSSH, serial.NoEncryption()
    )
    public = key.public_key().public_bytes(serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    line = public + f" {name}\n".encode()
    _write(folder, {name: (private, PRIVATE), f"{name}.pub": (line, PUBLIC)}, overwrite)


def write_connection(app: Path, address: str) -> None:
    """Add the server to the configuration of `flwr`, under the name `deployed`."""
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


def write_proxy(app: Path, port: int, link: str) -> None:
    """Write the configuration of nginx, and make the folders that it names."""
    (app / ".flwr" / "nginx").mkdir(parents=True, exist_ok=True, mode=0o700)
    write_text(app / "nginx.conf", proxy_config(app, port, link))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python keys.py --server HOST:PORT --nodes 3`."""
    parser = argparse.ArgumentParser(description="Create certificates and keys.")
    parser.add_argument("--server", help="HOST:PORT that machines use to reach the server")
    parser.add_argument(
        "--link", default=LINK, help="HOST:PORT of the SuperLink, reachable only from the server"
    )
    parser.add_argument("--also", nargs="*", default=[], help="other names of the server")
    parser.add_argument(
        "--nodes", type=int, default=0, help="number of SuperNodes to create keys for"
    )
    parser.add_argument(
        "--node", nargs="*", default=[], help="names of SuperNodes to create keys for"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument("--app", type=Path, default=Path.cwd(), help="the app's folder")
    given = parser.parse_args(arguments)
    folder: Path = given.app / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        if given.server:
            host, _, port = given.server.rpartition(":")
            if not host or not port.isdecimal():
                parser.error(f"--server must be HOST:PORT, got {given.server}")
            make_server_files(folder, [host.strip("[]"), *given.also], overwrite=given.overwrite)
            write_connection(given.app, given.link)
            write_proxy(given.app.resolve(), int(port), given.link)
        for name in [*(f"node-{i}" for i in range(given.nodes)), *given.node]:
            make_supernode_keys(folder, name, overwrite=given.overwrite)
    except ConfigError as error:
        parser.error(str(error))
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
    """Allow a key to sign connections, or else certificates."""
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


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(folder: Path, files: Mapping[str, tuple[bytes, int]], overwrite: bool) -> None:
    """Write files with their access rights from the start; none if one of them exists."""
    existing = [folder / name for name in files if (folder / name).exists()]
    if existing and not overwrite:
        raise ConfigError(
            f"{existing[0]} already exists, and machines may rely on it; use --overwrite to "
            "replace it"
        )
    for path in existing:
        path.unlink()  # a file keeps its access rights when it is opened again
    for name, (content, mode) in files.items():
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(opened, "wb") as file:
            file.write(content)


if __name__ == "__main__":
    main()
