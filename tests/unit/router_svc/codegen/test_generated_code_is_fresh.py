"""The committed stubs and adapter are what the generator makes of the committed protos."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_nothing_generated_is_stale() -> None:
    result = subprocess.run(
        [ROOT / "protos" / "generate.sh", "--check"], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr
