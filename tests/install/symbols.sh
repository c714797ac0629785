#!/bin/sh
# libchoir shows choir_x and nothing else: not choir__x, which is internal, nor anyone else's names.
#   symbols.sh libchoir.so
set -eu
shown=$(nm -D --defined-only "$1" | awk '{ print $NF }')
echo "$shown" | grep -q '^choir_scope_open$' || { echo "choir_scope_open is not shown"; exit 1; }
extra=$(echo "$shown" | grep -v '^choir_[^_]' || true)
if [ -n "$extra" ]; then
    echo "libchoir shows names that are not part of its interface:"
    echo "$extra"
    exit 1
fi
