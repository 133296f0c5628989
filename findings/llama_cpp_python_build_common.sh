#!/usr/bin/env bash
# What CMake option keeps llama-cpp-python from compiling what only llama.cpp's programs need?
#
# Guess: CMAKE_ARGS=-DLLAMA_BUILD_COMMON=OFF; or that the binding needs that code, as it is part of every build.
# Found: the option is lost without a word, since the binding's own CMakeLists.txt sets it in the cache with FORCE. All of
# llama.cpp's common library and an HTTP library are compiled (two fifths of the processor time of a CPU build, 607 of
# 1,486 s on two cores here), and the binding never loads them. An ordinary variable of that name goes before the
# cache's, since the project asks for policies of CMake 3.21 (CMP0126): a file with `set(LLAMA_BUILD_COMMON OFF)`, named
# by -DCMAKE_PROJECT_INCLUDE, leaves them out. Nothing is compiled here: what would be is listed.
# llama-cpp-python 0.3.36 (llama.cpp 0.5.0), cmake 4.1.0, 1 December 2026. Who meets it: whoever installs the binding from
# source, in CI, in an image, or for a GPU.
set -euo pipefail
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
python3 -m venv venv
venv/bin/pip install -q cmake==4.1.0 ninja==1.13.0 > pip.log 2>&1
venv/bin/pip download -q --no-deps --no-binary=llama-cpp-python llama-cpp-python==0.3.36 > pip.log 2>&1
tar xf llama_cpp_python-0.3.36.tar.gz
export PATH="$PWD/venv/bin:$PATH"
echo 'set(LLAMA_BUILD_COMMON OFF)' > off.cmake

objects() { # of a build with these options: all, and those that only llama.cpp's programs need
  cmake -G Ninja -S llama_cpp_python-0.3.36 -B build -DSKBUILD_PLATLIB_DIR="$PWD/site" "$@" > cmake.log 2>&1
  ninja -C build -n > plan.txt
  echo "$(grep -c 'Building C' plan.txt) $(grep -cE 'Building CXX? object .*(/common/|cpp-httplib)' plan.txt || true)"
  rm -rf build
}
plain=$(objects)
option=$(objects -DLLAMA_BUILD_COMMON=OFF)
include=$(objects "-DCMAKE_PROJECT_INCLUDE=$PWD/off.cmake")
echo "llama-cpp-python 0.3.36, $(cmake --version | head -1): objects to compile, and how many of them for programs alone"
printf '%-34s %s\n' "no option" "$plain" "-DLLAMA_BUILD_COMMON=OFF" "$option" "an ordinary variable, by include" "$include"
[ "$option" = "$plain" ] && [ "${plain#* }" -gt 0 ] && [ "${include#* }" = 0 ] || { echo "changed"; exit 1; }
