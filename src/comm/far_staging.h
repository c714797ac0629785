/* Between far.c and far_rows.c. */
#ifndef CHOIR_COMM_FAR_STAGING_H
#define CHOIR_COMM_FAR_STAGING_H

#include "comm/far.h"
#include "device/far.h"

enum { CHOIR__FAR_PIECE = 32 << 20 /* bytes of staging for a piece, all its sides together */ };

/* What an engine keeps for it. */
typedef struct choir__staging {
    char *at;
    size_t bytes;
    const choir__far *from; /* whose pinned memory it is; NULL: the heap's */
} choir__staging;

/* So many bytes, aligned to 64, until the next call of it. NULL: the engine has failed. */
char *choir__staging_get(choir__engine *engine, const choir__far *far, size_t bytes);

choir_status choir__far_rows(
    choir__engine *engine, const choir__call *call, const choir__far *far, choir__runner *run);

#endif
