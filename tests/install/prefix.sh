#!/bin/sh
# Installs into an empty prefix and looks for what a packager expects there. The target `uninstall`
# leaves nothing of an installation but folders that are not Choir's, with the files of others.
#   prefix.sh BUILD-FOLDER PREFIX
set -eu
build=$1 prefix=$2 manifest=$1/install_manifest.txt
rm -rf "$prefix" "$prefix.gone"
mkdir -p "$(dirname "$prefix")"

# What the user has installed from this build can be taken away after the test as well.
[ ! -e "$manifest" ] || cp "$manifest" "$prefix.manifest"
trap '[ ! -e "$prefix.manifest" ] || mv "$prefix.manifest" "$manifest"' EXIT

rm -f "$manifest"
if cmake --build "$build" --target uninstall >"$prefix.log" 2>&1 || # CMake breaks lines
    ! tr -s '\n ' '  ' <"$prefix.log" | grep -q 'which cmake --install writes'; then
    cat "$prefix.log"
    exit 1
fi
# The script does the same without a build folder.
mkdir -p "$prefix.gone/source/cmake" "$prefix.gone/source/build" "$prefix.gone/include/choir"
cp "$(dirname "$0")/../../cmake/uninstall.cmake" "$prefix.gone/source/cmake"
touch "$prefix.gone/include/choir/x.h"
echo "$prefix.gone/include/choir/x.h" >"$prefix.gone/source/build/install_manifest.txt"
cmake -P "$prefix.gone/source/cmake/uninstall.cmake" 2>>"$prefix.log"
[ ! -e "$prefix.gone/include/choir" ] || { echo "uninstall.cmake leaves a folder"; exit 1; }
rm -r "$prefix.gone"
# A name with the signs of a pattern, as in [1], keeps the files of others.
mkdir -p "$prefix.gone/[1]/choir"
touch "$prefix.gone/[1]/choir/mine" "$prefix.gone/[1]/choir/ours"
echo "$prefix.gone/[1]/choir/ours" >"$prefix.gone/manifest"
cmake -DMANIFEST="$prefix.gone/manifest" -P "$(dirname "$0")/../../cmake/uninstall.cmake" \
    2>>"$prefix.log"
[ "$(ls "$prefix.gone/[1]/choir")" = mine ] || { echo "uninstall.cmake: not ours alone"; exit 1; }
rm -r "$prefix.gone"
# Another command that shells find first is named, and another library that programs load.
mkdir -p "$prefix.gone/other"
printf '#!/bin/sh\n' >"$prefix.gone/other/choir"
so=$(readlink "$build/libchoir.so")
touch "$prefix.gone/other/$so"
cat >"$prefix.gone/other/ldconfig" <<END
#!/bin/sh
echo "	$so (libc6,x86-64) => $prefix.gone/other/$so"
END
chmod +x "$prefix.gone/other/choir" "$prefix.gone/other/ldconfig"
PATH=$prefix.gone/other:$PATH cmake --install "$build" --prefix "$prefix.gone" >"$prefix.log" 2>&1
if [ -x "$build/choir" ] &&
    ! grep -q "shells find another installation, $prefix.gone/other/choir: put" "$prefix.log"; then
    cat "$prefix.log"
    exit 1
fi
grep -q "programs load another installation, $prefix.gone/other/$so, until ldconfig has run for" \
    "$prefix.log" || { cat "$prefix.log"; exit 1; }
rm -r "$prefix.gone/other"
mkdir -p "$prefix.gone/share/choir"
touch "$prefix.gone/share/choir/mine"
cmake --build "$build" --target uninstall >>"$prefix.log"
left=$(cd "$prefix.gone" && find . -name '*choir*' -o ! -type d)
[ "$(echo "$left" | sort | tr '\n' ' ')" = './share/choir ./share/choir/mine ' ] ||
    { echo "uninstall has left $left"; exit 1; }
rm -r "$prefix.gone" "$prefix.log"

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
