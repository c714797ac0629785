# Sampling of cases for tests in shell, as tests/sample.h for those in C.
# shellcheck shell=bash

# sampled N: true for one case of N on average, other ones for each CHOIR_TEST_SAMPLE; for every
# case without it.
[ -z "${CHOIR_TEST_SAMPLE-}" ] || RANDOM=$((CHOIR_TEST_SAMPLE % 32768))
sampled() { [ -z "${CHOIR_TEST_SAMPLE-}" ] || [ $((RANDOM % $1)) -eq 0 ]; }
