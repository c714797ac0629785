/* Fuzzing: a harness is a file tests/fuzz/NAME.c with the one function below, and a few small
 * inputs in tests/fuzz/corpus/NAME/. CMake makes the program fuzz_NAME of it, CTest a short run
 * (fuzz.NAME), script/fuzz a long one. */
#ifndef CHOIR_FUZZ_H
#define CHOIR_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds one input to a reader. Returns 0. An error the reader reports is fine; a crash, a leak,
 * a sanitizer's complaint or a hang is not. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* For readers of files: writes data to FOLDER/name, a folder of this process in memory, and
 * returns the path, which holds until the next call with that name. */
const char *fuzz_write(const char *name, const void *data, size_t size);

/* FOLDER, for readers of folders. */
const char *fuzz_folder(void);

#endif
