#!/bin/sh
# Installs into an empty prefix and looks for what a packager expects there.
#   prefix.sh BUILD-FOLDER PREFIX
set -eu
build=$1 prefix=$2
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix"
for name in choir.h libchoir.so choir.pc choirConfig.cmake choirConfigVersion.cmake choir.txt \
    LICENSE; do
    test -n "$(find "$prefix" -name "$name")" || { echo "$name was not installed"; exit 1; }
done
if [ -x "$build/choir" ]; then
    "$prefix/bin/choir" --version
fi
