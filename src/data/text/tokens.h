/* Files of token ids: the formats of their first bytes. */
#ifndef CHOIR_DATA_TOKENS_H
#define CHOIR_DATA_TOKENS_H

#include <stdint.h>

/* Choir's own format; all numbers are little-endian. */
typedef struct choir__tokens_header {
    char magic[8];           /* CHOIR__TOKENS_MAGIC */
    uint32_t version, width; /* 1; bytes per id, 2 or 4 */
    uint64_t vocabulary, count;
    uint64_t unused[4];
} choir__tokens_header;

#define CHOIR__TOKENS_MAGIC "CHOIRTOK"

/* llm.c's format: 256 words, three of them used. */
enum { CHOIR__LLMC_GPT2 = 20240520, CHOIR__LLMC_LLAMA3 = 20240801, CHOIR__LLMC_BYTES = 1024 };

#endif
