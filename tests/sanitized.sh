#!/usr/bin/env bash
# Build a sanitizer preset and run tests with it: tests/sanitized.sh asan|tsan [pytest arguments]
# Needs, in the active environment: cmake, ninja, pybind11, cmeel-eigen and the package's test extra.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tests/sanitized.sh asan|tsan [pytest arguments]}
shift
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
cmake --preset "$preset" -G Ninja -DCMAKE_PREFIX_PATH="$site" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" \
  -DPython_EXECUTABLE="$(command -v python)" > /dev/null
cmake --build --preset "$preset"
rm -rf "build/$preset/package"
cmake --install "build/$preset" --component python > /dev/null
case $preset in
  asan) library=libasan.so ;;
  tsan) library=libtsan.so ;;
esac
# Python itself is not instrumented: the runtime comes first, and what the interpreter leaks is not ours.
# libstdc++ comes along so that exceptions thrown before any C++ library is loaded are seen.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="exitcode=66 halt_on_error=1 report_signal_unsafe=0"
preload="$(g++ -print-file-name=$library) $(g++ -print-file-name=libstdc++.so)"
PYTHONPATH="build/$preset/package" DPMICRO_SANITIZED=$preset \
  LD_PRELOAD="$preload" python -m pytest -q -p no:cacheprovider "$@"
