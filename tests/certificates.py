"""Certificates for tests of TLS, made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from topo.tracking.security import Tls


def make_certificates(directory: Path) -> Path:
    """Make an authority, a server and a client it vouches for, and another authority's client."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("certificates for this test are made with openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=directory, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    use = "keyUsage=critical,keyCertSign,cRLSign"  # Python 3.13 trusts no authority without it
    for authority in ("ca", "other"):
        run("req", "-x509", *curve, "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
            "-days", "2", "-subj", f"/CN={authority}", "-addext", use)  # fmt: skip
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        run("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey",
            f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "2",
            "-extfile", "names")  # fmt: skip
    return directory


def tls(directory: Path, name: str | None, ca: str | None) -> Tls:
    """Return one side's certificates, by the stems of their files."""

    def file(stem: str | None, suffix: str) -> str | None:
        return str(directory / f"{stem}.{suffix}") if stem else None

    return Tls.read(file(name, "pem"), file(name, "key"), file(ca, "pem"))
