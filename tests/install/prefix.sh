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

# The links of the installed pages lead to installed files.
pages=$(find "$prefix" -path "*/doc/*" -name "*.md")
test -n "$pages"
for page in $pages; do
    for link in $(grep -o '](\(\.\./\)*[A-Za-z][A-Za-z0-9_./-]*' "$page" | cut -c3-); do
        case $link in http*) continue ;; esac
        test -e "$(dirname "$page")/$link" || { echo "$page: there is no $link"; exit 1; }
    done
done
if [ -x "$build/choir" ]; then
    "$prefix/bin/choir" --version
fi
