/* Fuzzing: a harness is a file tests/fuzz/NAME.c with the one function below, and a few small
 * inputs in tests/fuzz/corpus/NAME/. CMake builds the program fuzz_NAME from it, CTest runs it
 * briefly (fuzz.NAME), and script/fuzz runs it for long. */
#ifndef CHOIR_FUZZ_H
#define CHOIR_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds one input to a reader and returns 0. The reader may report an error; a crash, a leak, a
 * sanitizer report or a hang is a failure. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes data to `name` in this process's folder, which is in memory. Returns the path, valid
 * until the next call with that name. */
const char *fuzz_write(const char *name, const void *data, size_t size);

/* Returns this process's folder, for readers of folders. */
const char *fuzz_folder(void);

#endif
