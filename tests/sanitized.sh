#!/usr/bin/env bash
# Build a sanitizer preset and run tests with it: tests/sanitized.sh asan|tsan [pytest arguments]
# Without arguments: the whole suite for asan, what runs in threads for tsan.
# Needs, in the active environment: cmake, ninja, pybind11, cmeel-eigen and the package's test extra.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tests/sanitized.sh asan|tsan [pytest arguments]}
shift
case $preset in
  asan) library=libasan.so; default=(tests) ;;
  # Only what tests the core: polars and Arrow bring thread pools of their own that the sanitizer cannot follow.
  tsan) library=libtsan.so; default=(tests/test_{kernels,random,partition,lloyd,evaluate,moments,repair,safepub,sample}.py
    -k "thread or parallel or ctrl_c or fork or cancel") ;;
  *) echo "unknown preset $preset; use asan or tsan" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- "${default[@]}"
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cmake --preset "$preset" -G Ninja -DCMAKE_PREFIX_PATH="$site" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" \
  -DPython_EXECUTABLE="$(command -v python)" \
  -DSKBUILD_PROJECT_VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" > /dev/null
cmake --build --preset "$preset"
package=$PWD/build/$preset/package
rm -rf "$package"
cmake --install "build/$preset" --component python > /dev/null
# An editable install would be found first, and the tests would run without sanitizers.
cat > "$package/sitecustomize.py" << 'PYTHON'
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable")]
PYTHON
# Python itself is not instrumented: the runtime comes first, and what the interpreter leaks is not ours.
# libstdc++ comes along so that exceptions thrown before any C++ library is loaded are seen.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="exitcode=66 halt_on_error=1 report_signal_unsafe=0 suppressions=$PWD/tests/tsan.supp"
export PYTHONPATH=$package DPMICRO_SANITIZED=$preset
export LD_PRELOAD="$(g++ -print-file-name=$library) $(g++ -print-file-name=libstdc++.so)"
python -c 'import os, sys; from dpmicro_native import _core; sys.exit(not _core.__file__.startswith(os.environ["PYTHONPATH"]))' ||
  { echo "the sanitized package is not the one that Python imports" >&2; exit 1; }
# Left out: what measures memory (the sanitizer's own would count), what preloads a library of its own, and browsers.
python -m pytest -q -p no:cacheprovider --ignore=tests/test_partition_memory.py --ignore=tests/test_resources.py \
  --deselect=tests/test_random.py::test_a_failing_system_generator_is_an_error_and_short_reads_are_completed \
  --deselect=tests/test_report.py::test_a_browser_draws_every_chart "$@"
