"""Environments of the clients: each has exactly the packages that its own lock file names.

requirements/NAME.txt      ──►  build/clients/NAME/bin/python
DIRECTORY/package-lock.json ──► DIRECTORY/node_modules
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / "build" / "clients"


class EnvironmentMissingError(Exception):
    """An environment could not be made; says why."""


def client_python(name: str) -> Path:
    """Python with the packages of requirements/NAME.txt, made now if they have changed.

    Raises EnvironmentMissingError.
    """
    requirements = HERE / "requirements" / f"{name}.txt"
    target = ENVIRONMENTS / name
    python = target / "bin" / "python"
    with _locked(target, requirements) as made:
        if not made:
            _run("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(target))
            _install(python, requirements)
    return python


def node_modules(directory: Path) -> None:
    """Installs what the directory's package-lock.json names, if that has changed.

    Raises EnvironmentMissingError.
    """
    if shutil.which("npm") is None:
        raise EnvironmentMissingError("npm is not installed: `make system-deps` installs it")
    with _locked(directory / "node_modules", directory / "package-lock.json") as made:
        if not made:
            _run("npm", "ci", "--no-audit", "--no-fund", cwd=directory)


def _install(python: Path, requirements: Path) -> None:
    try:
        _run("uv", "pip", "install", "--quiet", "--python", str(python), "-r", str(requirements))
    except EnvironmentMissingError:
        # uv knows nothing of pip's settings, such as another index.
        pip = (sys.executable, "-m", "pip", "--quiet", "--python", str(python))
        _run(*pip, "install", "--no-deps", "-r", str(requirements))


def _run(program: str, *args: str, cwd: Path | None = None) -> None:
    if program == "uv":
        program = str(Path(sys.executable).with_name("uv"))
    try:
        subprocess.run(
            [program, *args], cwd=cwd, check=True, capture_output=True, text=True, timeout=600
        )
    except FileNotFoundError as error:
        raise EnvironmentMissingError(f"{program} is not installed: run `make test`") from error
    except subprocess.CalledProcessError as error:
        raise EnvironmentMissingError(f"{' '.join(error.cmd)}:\n{error.stderr}") from error


@contextmanager
def _locked(target: Path, lock_file: Path) -> Iterator[bool]:
    """Whether `target` was made from this very lock file; if the block succeeds, it now is."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(lock_file.read_bytes() + sys.executable.encode()).hexdigest()
    stamp = target / ".lock-file-sha256"
    with (ENVIRONMENTS / f".{digest[:16]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = stamp.exists() and stamp.read_text() == digest
        yield made
        if not made:
            stamp.write_text(digest)
