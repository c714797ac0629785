#!/bin/bash
# Peak memory a device under DataParallel with a large vocabulary, before and after balancing.
#
# BERT with its vocabulary of 30522: outputs gathered on the first device, as nn.DataParallel does;
# outputs and criterion on their devices; and a smaller share of the batch for the first device,
# which has the optimizer's state, too.
#
#   DEVICES=4   BATCH=64   MODEL=bert:layers=2,heads=4,width=128,context=32,vocab=30522
set -euo pipefail
source bench/lib.inc
machine
choir_bench_balance "${DEVICES:-4}" "${BATCH:-64}" ${MODEL:+"$MODEL"}
