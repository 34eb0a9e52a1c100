"""Coverage-guided fuzzing: python tests/fuzz/fuzz.py spec|hierarchy|table [-max_total_time=60 ...]; needs atheris.

A crash is written to crash-*; put its bytes into tests/test_fuzz_inputs.py and fix it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dpmicro_native", "tomllib", "csv"]):
    sys.path.insert(0, str(Path(__file__).parent))
    import targets

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in targets.TARGETS:
        sys.exit(f"usage: fuzz.py {'|'.join(targets.TARGETS)} [libFuzzer options]")
    corpus = Path(tempfile.mkdtemp(prefix="dpmicro-fuzz-"))
    (corpus / "seed").write_bytes(targets.SEEDS[name])
    atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], targets.TARGETS[name])
    atheris.Fuzz()
