/* The staging memory of calls on far data, shared by far.c and far_rows.c. */
#ifndef CHOIR_COMM_FAR_STAGING_H
#define CHOIR_COMM_FAR_STAGING_H

#include "comm/far/far.h"
#include "device/far.h"

enum { CHOIR__STAGING_ALIGN = 64 }; /* bytes */
enum { CHOIR__FAR_PIECE = 32 << 20 /* bytes of staging per piece, for all its sides */ };

/* The staging memory of an engine; all its calls on far data share it. */
typedef struct choir__staging {
    char *at;
    size_t bytes;
    const choir__far *from; /* the device that pinned the memory; NULL: the heap */
} choir__staging;

/* Returns `bytes` bytes, aligned to 64, which stay valid until the next call of this function;
 * NULL if the engine has failed. */
char *choir__staging_get(choir__engine *engine, const choir__far *far, size_t bytes);

/* far_rows.c: runs a call on rows, as choir__far_run does for the other kinds. */
choir_status choir__far_rows(
    choir__engine *engine, const choir__call *call, const choir__far *far, choir__runner *run);

#endif
