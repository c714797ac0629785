#!/bin/bash
# Packages: lintian has nothing to say of the Debian ones (which only script/test --full asks it, as
# that takes a processor 28 seconds); they are installed, tried and removed in a copy of this
# machine's root that this test alone sees. The tarball's command asks for no symbol younger than
# glibc 2.28's, and trains to the bits of this build's.
#   packages.sh CHECKOUT FOLDER
set -euo pipefail
checkout=$1 folder=$2
fail() { echo "packages.sh: $*"; exit 1; }

skip() { echo "skipped: $*"; exit 77; }
command -v dh >/dev/null && command -v doxygen >/dev/null ||
    skip "no debhelper or doxygen (install debhelper doxygen)"
rm -rf "$folder"
mkdir -p "$folder"
export CHOIR_DEB_COMPRESSION='-Zgzip -z1' CHOIR_TAR_LEVEL=-1
"$checkout/script/package" deb tar >"$folder/log" 2>&1 || { tail -20 "$folder/log"; exit 1; }
packages=$checkout/build/packages

if [ ! "${CHOIR_TEST_SAMPLE-}" ] && command -v lintian >/dev/null; then
    lintian --allow-root --fail-on warning "$packages"/*.deb || fail "expected no word of lintian"
fi

# --- the tarball -------------------------------------------------------------------------------
tar -C "$folder" -xf "$packages"/choir-*-linux-*.tar.gz
choir=$(echo "$folder"/choir-*/bin/choir)
youngest=$(objdump -T "$choir" "$folder"/choir-*/lib*/choir/*.so | grep -o 'GLIBC_[0-9.]*' |
    sort -uV | tail -1)
[ "$(printf '%s\n' GLIBC_2.28 "$youngest" | sort -V | tail -1)" = GLIBC_2.28 ] ||
    fail "expected symbols of glibc 2.28 at most, got $youngest"
! LC_ALL=C readelf -d "$choir" | grep NEEDED |
    grep -v 'lib[cm]\.so\|ld-linux\|lib\(pthread\|dl\|rt\)\.' ||
    fail "expected no library but glibc's"
for command in "$choir" "$checkout/build/choir"; do
    "$command" train --quiet --model toy --steps 3 --seed 5 --save "$folder/${command//\//_}" random
done
cmp "$folder"/*/latest/model.safetensors
"$choir" tune --storage "sqlite:///$folder/study.db" --study s --space 'lr=log(1e-4,1e-2)' \
    --trials 2 -- "$choir" train --quiet --model toy --steps 1 --lr '{lr}' --json random >/dev/null
test -s "$folder/study.db"

# --- the Debian packages -------------------------------------------------------------------------
root=$folder/root
mkdir "$root"
unshare --mount sh -ec 'mount -t tmpfs tmpfs "$0" && cd "$0" && mkdir upper work all &&
    mount -t overlay -o "lowerdir=/,upperdir=upper,workdir=work" overlay all' "$root" 2>/dev/null ||
    skip "no overlay of this machine's root can be mounted"
cat >"$folder/inside" <<'INSIDE'
set -e
rm -f /var/lib/man-db/auto-update # its index would take seconds
# What a checkout has installed comes first, and the packages say so.
soname=$(dpkg -c /tmp/libchoir0*.deb | sed -n 's|.*/\(libchoir\.so\.[0-9.]*\) -> .*|\1|p')
install -D /bin/true /usr/local/bin/choir
install -D /dev/null "/usr/local/lib/$soname"
dpkg -i --force-depends "$@" >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
grep -q '^choir: /usr/local/bin/choir is another installation' /tmp/log
grep -q "^libchoir[0-9.]*: programs load /usr/local/lib/$soname, another" /tmp/log
rm /usr/local/bin/choir "/usr/local/lib/$soname"
ldconfig
cd /tmp
choir --version
choir info | grep 'backends .*ucx'
man -w choir-train choir choir_relu choir_optim.h >/dev/null
choir train --quiet --model toy --steps 2 --save /tmp/run random
cc -o hello /usr/share/doc/choir/examples/hello_tensor.c $(pkg-config --cflags --libs choir)
./hello
dpkg -r choir-plugins libchoir-dev libchoir0.1 choir >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
INSIDE
INSIDE=$folder/inside unshare --mount bash -euc '
    root=$1
    shift
    mount -t tmpfs tmpfs "$root"
    mkdir "$root/upper" "$root/work" "$root/all"
    mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/all"
    for kind in proc dev sys; do mount --rbind /$kind "$root/all/$kind"; done
    mount -t tmpfs tmpfs "$root/all/tmp"
    cp "$INSIDE" "$@" "$root/all/tmp"
    cd "$root/all/tmp"
    chroot "$root/all" bash -c "cd /tmp && bash /tmp/inside /tmp/*.deb"
    # What was written in this root alone, whatever other tests write meanwhile.
    left=$(find "$root/upper" -name "*choir*" -not -type c -not -path "*/var/lib/dpkg/*")
    [ ! "$left" ] || { echo "packages.sh: expected nothing to stay, got $left"; exit 1; }
' bash "$root" "$packages"/*.deb
echo "packages: fine"
