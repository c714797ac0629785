/* The layout of a board's bytes. board.c writes them; board_read.c reads them and trusts
 * none. */
#ifndef CHOIR_BOARD_LAYOUT_H
#define CHOIR_BOARD_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define CHOIR__BOARD_NAME "choir-board"
/* Changes if the meaning of "version" changes. */
#define CHOIR__BOARD_MAGIC UINT64_C(0x647261726f686365)

enum {
    CHOIR__BOARD_VERSION = 3,        /* covers everything on the board, records included */
    CHOIR__BOARD_BYTES = 512 * 1024, /* untouched pages use no memory */
    CHOIR__BOARD_ENTRIES = 120,
    CHOIR__BOARD_RECORDS = 4096, /* offset of the first */
};

typedef struct choir__board_entry {
    _Atomic uint32_t kind;  /* choir__board_kind; 0: not shown */
    uint32_t offset, bytes; /* place of the record; unchanged when it is given back */
    uint32_t taken;         /* the kind it will be shown as; 0: free */
} choir__board_entry;

typedef struct choir__board_page {
    _Atomic uint64_t magic;
    uint32_t version;
    int32_t pid, rank, world; /* rank, world: -1, no job */
    uint64_t job;
    int32_t generation; /* generation of the job's ranks; 0: unknown */
    double started;
    _Atomic uint64_t beats; /* signs of progress of the process's own code */
    _Atomic uint64_t steps; /* begun by choir_step */
    char host[64], program[64];
    choir__board_entry directory[CHOIR__BOARD_ENTRIES];
} choir__board_page;

static_assert(sizeof(choir__board_page) <= CHOIR__BOARD_RECORDS, "the directory fits");

#endif
