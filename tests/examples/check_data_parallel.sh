#!/bin/sh
# The exact output of the DataParallel example on 1, 2, 3 and 8 devices.
#
#   check_data_parallel.sh EXPECTED PROGRAM
for devices in 1 2 3 8; do
    "$2" $devices || exit 1
done | diff "$1" -
