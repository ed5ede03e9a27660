"""Certificates that openssl makes."""
import subprocess
from pathlib import Path

from .waiting import require

DAYS = 90  # Encke warns of certificates that expire within weeks
EC_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", DAYS]
LOCALHOST = "subjectAltName=DNS:localhost"


def openssl(*words: object) -> str:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True)
    require(done.returncode == 0, f"openssl {words}: {done.stderr}")
    return done.stdout


def self_signed(folder: Path, name: str, *extensions: str) -> dict[str, str]:
    """Makes a key and a certificate. Returns the settings that name them."""
    files = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    openssl("req", "-x509", *EC_KEY, "-subj", f"/CN={name}", *(word for text in extensions for word in ("-addext", text)),
            "-keyout", files["key"], "-out", files["cert"])
    return files


def authority(folder: Path, extensions: dict[str, str]) -> None:
    """Makes an authority, `ca.pem`, and a certificate for each name with its extensions: `NAME.pem`, with the key `NAME.key`."""
    folder.mkdir(exist_ok=True)
    openssl("req", "-x509", *EC_KEY, "-subj", "/CN=authority", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    for name, text in extensions.items():
        request, file = folder / f"{name}.csr", folder / f"{name}.ext"
        file.write_text(text)
        openssl("req", *EC_KEY, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial",
                "-days", DAYS, "-extfile", file, "-out", folder / f"{name}.pem")
