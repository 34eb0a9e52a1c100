#!/usr/bin/env bash
# Compile and link the extension for macOS from anywhere, warnings as errors: tests/cross_compile.sh [target ...]
# It cannot be run here, and zig's libc++ is newer than Apple's: it shows what does not compile, not what works.
# Needs, in the active environment: cmake, ninja, pybind11, cmeel-eigen, ziglang.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- aarch64-macos.11.0 x86_64-macos.11.0
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for target; do
  build=build/cross-$target
  export CXX="$(command -v python) -m ziglang c++ -target $target"
  # No archive and no bundle: zig's linker crashes on -bundle, so the objects are linked by hand.
  cmake -S . -B "$build" -G Ninja -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR="${target%%-*}" \
    -DCMAKE_AR="$(command -v true)" -DCMAKE_RANLIB="$(command -v true)" -DCMAKE_INSTALL_NAME_TOOL="$(command -v true)" \
    -DDPMICRO_WERROR=ON -DSKBUILD_PROJECT_VERSION=cross -DPYTHON_MODULE_EXTENSION=.so -DCMAKE_PREFIX_PATH="$site" \
    -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" -DPython_EXECUTABLE="$(command -v python)" > /dev/null
  mapfile -t objects < <(ninja -C "$build" -t targets all | sed -n 's/^\(.*\.o\): CXX_COMPILER.*/\1/p')
  [ ${#objects[@]} -gt 0 ]
  ninja -C "$build" "${objects[@]}"
  (cd "$build" && $CXX -dynamiclib -Wl,-undefined,dynamic_lookup -o _core.so "${objects[@]}")
  file "$build/_core.so" 2> /dev/null || ls -l "$build/_core.so"
done
