#!/bin/sh
# An outside CMake project finds the installed Choir with find_package and runs.
#   cmake_package.sh PREFIX WORK-FOLDER
set -eu
prefix=$1 work=$2
rm -rf "$work"
cmake -S "$(dirname "$0")/outside" -B "$work" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
grep "^choir_DIR:PATH=$prefix/" "$work/CMakeCache.txt" # not a copy of the system's
cmake --build "$work"
"$work/outside"
