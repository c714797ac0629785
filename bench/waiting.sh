#!/bin/bash
# Counts the cost of waiting: wake-ups per step and thread, and the processor time of a rank whose
# peer is a second late.
set -uo pipefail
source bench/lib.inc
machine
choir_bench_waiting "${STEPS:-50}" "${LATE:-1}"
