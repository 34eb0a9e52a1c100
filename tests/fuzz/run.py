"""Coverage-guided fuzzing: python tests/fuzz/run.py spec|hierarchy|table [-max_total_time=60 ...]; needs atheris.

A crash is written to crash-*; put its bytes into tests/test_fuzz_inputs.py and fix it.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from pathlib import Path
from types import FunctionType

import atheris
import targets
import tomllib  # noqa: F401 - read_toml imports it when it is called, which is too late to be instrumented

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in targets.TARGETS:
        sys.exit(f"usage: run.py {'|'.join(targets.TARGETS)} [libFuzzer options]")
    # One by one: atheris.instrument_imports does not see through the loader of an editable installation.
    for item in gc.get_objects():
        if isinstance(item, FunctionType) and str(item.__module__).startswith(("dpmicro_native", "tomllib")):
            atheris.instrument_func(item)
    corpus = Path(tempfile.mkdtemp(prefix="dpmicro-fuzz-"))
    (corpus / "seed").write_bytes(targets.SEEDS[name])
    atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], targets.TARGETS[name])
    atheris.Fuzz()
