from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own, whose highest resident size is reset before the call and read after it.
PROGRAM = """
import numpy as np
from pathlib import Path
from dpmicro_native import _core

X = np.random.default_rng(0).normal(size={shape})
_core.{call}  # on a few rows: what a first call loads is not the call's memory
Path("/proc/self/clear_refs").write_text("5")

def highest():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

before = highest()
_core.{call_all}
print((highest() - before) / X.nbytes)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize(
    ("shape", "call"),
    [
        ((1_000_000, 1), "mdav({X}, 1000)"),
        ((1_000_000, 2), "mdav({X}, 1000)"),
        ((100_000, 10), "mdav({X}, 1000)"),
        ((200_000, 3), "vmdav({X}, 50, 0.2)"),
        ((2_000_000, 1), "individual_ranking({X}[:, 0], 10)"),
        ((2_000_000, 1), "optimal_univariate({X}[:, 0], min_size=10)"),
        ((2_000_000, 1), "optimal_univariate({X}[:, 0], noise_cost=1e3)"),
        ((1_000_000, 2), "insensitive_ranking(np.abs({X}).clip(0, 1, out={X}), 10)"),
    ],
)
def test_peak_memory_is_below_four_times_the_input(shape, call):
    program = PROGRAM.format(shape=shape, call=call.format(X="X[:5000]"), call_all=call.format(X="X"))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    beside_the_input = float(run.stdout.split()[-1])
    # insensitive_ranking's own input is a second table here, which counts as beside.
    assert 1 + beside_the_input <= 4


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads Linux's /proc")
@pytest.mark.parametrize("spread", ["X", "np.exp(X, out=X)"])
def test_pcl_takes_some_times_the_input_on_skewed_records_too(spread):
    """It once listed the same records again and again, without end, where some cells are much wider."""
    call = "pcl({X}, [200] * (len({X}) // 200), partition=_core.mdav({X}, 200), max_iter=2)"
    program = PROGRAM.format(shape=(100_000, 2), call=call.format(X="X[:5000]"), call_all=call.format(X="X"))
    program = program.replace("_core.pcl", f"{spread}\n_core.pcl", 1)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 1 + float(run.stdout.split()[-1]) <= 40
