/* Inside `choir bench`: what is measured, and one rank's side of it. */
#ifndef CHOIR_CLI_BENCH_H
#define CHOIR_CLI_BENCH_H

#include <choir/group.h>
#include "cli/command.h"
#include "comm/group.h"
#include "device/far.h"

typedef struct choir__bench choir__bench;
typedef struct choir__station choir__station;

/* --- collectives.c --- */

/* A row of the table of collectives. */
typedef struct choir__collective {
    const char *name;
    choir__kind kind;
    choir_status (*run)(const choir__station *s, int64_t count);
    bool parts_in, parts_out; /* of what is read, written: `count` a rank */
    bool in_place, reduces, rooted;
    enum { CHOIR__BUS_NONE, CHOIR__BUS_ONCE, CHOIR__BUS_PART, CHOIR__BUS_TWICE } bus;
} choir__collective;

/* NULL: there is none of that name. */
const choir__collective *choir__collective_find(const char *name);

/* The name of collective i; NULL: there are fewer. */
const char *choir__collective_name(size_t i);

/* Elements that come out wrong on this rank. */
int64_t choir__bench_check(const choir__station *s, int64_t count);

/* --- measure.c --- */

struct choir__bench {
    const choir__collective *what;
    int ranks;
    size_t min, max, factor; /* bytes */
    choir_dtype dtype;
    choir_reduce_op op;
    const char *dtype_name, *op_name; /* as given */
    const char *backend, *algorithm;  /* NULL: chosen */
    bool staged;                      /* in private memory */
    bool json;
};

struct choir__station {
    const choir__bench *b;
    choir_group *group;
    int rank, world;
    choir__shared *shared;
    char *in, *out;       /* room for max bytes each; the same in place */
    choir_device *device; /* whose memory that is; NULL: the host's */
    choir__pool_block *block;
};

/* One rank's part of it all: an exit status. */
int choir__bench_rank(const choir__bench *b, int local_rank);

/* "sum". */
const char *choir__op_name(choir_reduce_op op);

#endif
