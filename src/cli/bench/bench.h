/* Internals of `choir bench`: the collectives, the measurement, and one rank's state. */
#ifndef CHOIR_CLI_BENCH_H
#define CHOIR_CLI_BENCH_H

#include <choir/group.h>
#include "line/command.h"
#include "comm/group.h"
#include "device/far.h"

typedef struct choir__bench choir__bench;
typedef struct choir__station choir__station;

/* --- collectives.c --- */

/* A row of the table of collectives. */
typedef struct choir__bench_collective {
    const char *name;
    choir__kind kind;
    choir_status (*run)(const choir__station *s, int64_t count);
    bool parts_in, parts_out; /* the input, the output has `count` elements per rank */
    bool in_place, reduces, rooted;
    enum { CHOIR__BUS_NONE, CHOIR__BUS_ONCE, CHOIR__BUS_PART, CHOIR__BUS_TWICE } bus;
} choir__bench_collective;

/* Returns the collective of this name, or NULL if none has it. */
const choir__bench_collective *choir__bench_collective_find(const char *name);

/* Returns the name of collective i, or NULL if there are fewer. */
const char *choir__bench_collective_name(size_t i);

/* Runs the collective once and returns the number of wrong elements on this rank. */
int64_t choir__bench_check(const choir__station *s, int64_t count);

/* --- measure.c --- */

struct choir__bench {
    const choir__bench_collective *what;
    int ranks;
    size_t min, max, factor; /* bytes */
    choir_dtype dtype;
    choir_reduce_op op;
    const char *dtype_name, *op_name; /* as the command line gives them */
    const char *backend, *algorithm;  /* NULL: chosen automatically */
    bool staged;                      /* data in private memory */
    bool json;
};

struct choir__station {
    const choir__bench *b;
    choir_group *group;
    int rank, world;
    choir__shared *shared;
    char *in, *out;       /* max bytes each; equal if in place */
    choir_device *device; /* device of in and out; NULL: host memory */
    choir__pool_block *block;
};

/* Runs the benchmark as one rank and returns an exit status. */
int choir__bench_rank(const choir__bench *b, int local_rank);

/* Returns the operation's name, such as "sum". */
const char *choir__op_name(choir_reduce_op op);

#endif
