#!/bin/sh
# alone.sh [--net] COMMAND...   runs it with a /dev/shm, System V segments and, with --net, a
# network of its own, so that what it counts there is its own and other tests can run beside it.
# Where that is not permitted the command runs as it is, and CTest runs nothing beside it
# (schedule.cmake).
spaces='--mount --ipc' net=
if [ "$1" = --net ]; then
    shift
    command -v ip >/dev/null && spaces="$spaces --net" net='ip link set lo up &&'
fi
# shellcheck disable=SC2086
unshare $spaces mount -t tmpfs tmpfs /dev/shm 2>/dev/null || exec "$@"
# shellcheck disable=SC2086
exec unshare $spaces sh -c "mount -t tmpfs tmpfs /dev/shm && $net exec \"\$@\"" sh "$@"
