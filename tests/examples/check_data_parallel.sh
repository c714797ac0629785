#!/bin/sh
# What the DataParallel example prints on 1, 2, 3 and 8 devices, to the letter.
#
#   check_data_parallel.sh EXPECTED PROGRAM
for devices in 1 2 3 8; do
    "$2" $devices || exit 1
done | diff "$1" -
