#!/bin/bash
# Predicted beside published tokens per second of Llama-type trainings on 8 to 16,384 H100.
set -euo pipefail
cd "$(dirname "$0")/.."
build/choir_bench_published "$@"
