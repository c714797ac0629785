/* Files of token ids: what their first bytes say. */
#ifndef CHOIR_DATA_TOKENS_H
#define CHOIR_DATA_TOKENS_H

#include <stdint.h>

/* Our own; little-endian, as every number here. */
typedef struct choir__tokens_header {
    char magic[8];           /* CHOIR__TOKENS_MAGIC */
    uint32_t version, width; /* 1; bytes an id, 2 or 4 */
    uint64_t vocabulary, count;
    uint64_t unused[4];
} choir__tokens_header;

#define CHOIR__TOKENS_MAGIC "CHOIRTOK"

/* llm.c's: 256 words, of which three are used. */
enum { CHOIR__LLMC_GPT2 = 20240520, CHOIR__LLMC_LLAMA3 = 20240801, CHOIR__LLMC_BYTES = 1024 };

#endif
