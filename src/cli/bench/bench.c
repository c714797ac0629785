/* choir bench: the speed of a collective, size by size, in the columns of nccl-tests. This file
 * has the command line and starts the ranks. The ranks are forks of this process, unless a
 * launcher has started it as one of several ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/bench/bench.h"
#include "job/choices.h"
#include "launch/launchers.h"
#include "comm/reduce.h"

/* --- options --- */

static const char *op_name(size_t i)
{
    return i < CHOIR_REDUCE_OP_COUNT ? choir__op_name((choir_reduce_op)i) : NULL;
}

/* The algorithms of groups, and "staged": shm's, with the data in private memory. */
static const char *algorithm_name(size_t i)
{
    i += CHOIR__EXCHANGE; /* CHOIR__AUTO is for options left out */
    return i < CHOIR__ALGORITHM_COUNT    ? choir__algorithm_name((choir__algorithm)i)
           : i == CHOIR__ALGORITHM_COUNT ? "staged"
                                         : NULL;
}

#define AT(member) CHOIR__LINE_AT(choir__bench, member)

#define MOST_BYTES 0x1p44

static const choir__line_option options[] = {
    {"ranks", CHOIR__INT, AT(ranks), 1, 64, .argument = "N",
        .help = "number of ranks to start (default 2)", .letter = 'n'},
    {"backend", CHOIR__STRING, AT(backend), .argument = "NAME",
        .help = "how ranks communicate (default: the best that reaches all of them); mpi needs "
                "mpirun or srun, and nccl a GPU for each rank",
        .choices = choir__job_backend_names, .strict = true},
    {"min", CHOIR__BYTES, AT(min), 1, MOST_BYTES, .preset = "1K", .argument = "SIZE",
        .help = "smallest size in bytes, such as 1K, 4M or 1G"},
    {"max", CHOIR__BYTES, AT(max), 1, MOST_BYTES, .preset = "64M", .argument = "SIZE",
        .help = "largest size"},
    {"factor", CHOIR__INT, AT(factor), 2, MOST_BYTES, .preset = "4", .argument = "F",
        .help = "factor from one size to the next"},
    {"dtype", CHOIR__STRING, AT(dtype_name), .preset = "f32", .argument = "TYPE",
        .help = "type of the elements", .choices = choir__job_dtype_names, .strict = true},
    {"op", CHOIR__STRING, AT(op_name), .preset = "sum", .argument = "NAME", .help = "reduction",
        .choices = op_name, .strict = true},
    {"algorithm", CHOIR__STRING, AT(algorithm), .argument = "NAME",
        .help =
            "the algorithm (default: chosen by size and place); staged is shm's with data in "
            "private memory, while the others use memory that ranks share where they can",
        .choices = algorithm_name, .strict = true},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per line"},
    {NULL},
};

/* Looks up the collective, dtype and operation. The table of options has checked the names. */
static int take_names(choir__bench *b, const char *collective)
{
    b->what = choir__bench_collective_find(collective);
    b->staged = b->algorithm && !strcmp(b->algorithm, "staged");
    while (strcmp(b->dtype_name, choir_dtype_name(b->dtype)))
        b->dtype++;
    while (strcmp(b->op_name, choir__op_name(b->op)))
        b->op++;
    if (b->what->reduces && !choir__arith_find(b->dtype, b->op))
        return choir__line_usage("bench", "--op: expected an operation of --dtype %s, got '%s'",
            b->dtype_name, b->op_name);
    return CHOIR__EXIT_OK;
}

/* Checks what depends on the number of ranks. */
static int check_sizes(choir__bench *b)
{
    const bool parts = b->what->parts_in || b->what->parts_out;
    const size_t least = choir_dtype_size(b->dtype) * (parts ? (size_t)b->ranks : 1);
    if (b->what->kind == CHOIR__SEND && b->ranks < 2)
        return choir__line_usage(
            "bench", "sendrecv: expected at least two ranks, got %d", b->ranks);
    if (b->what->kind == CHOIR__BARRIER) {
        b->min = b->max = 0;
        return 0;
    }
    if (b->min < least)
        return choir__line_usage("bench",
            "--min: expected at least %zu bytes, one element%s, got %zu", least,
            parts ? " per rank" : "", b->min);
    if (b->max < b->min)
        return choir__line_usage(
            "bench", "--max %zu: expected at least --min %zu", b->max, b->min);
    return 0;
}

/* --- ranks --- */

static int run_forked(int rank, int world, void *bench)
{
    (void)world;
    return choir__bench_rank(bench, rank);
}

/* Runs as one of a launcher's ranks. */
static int run_launched(choir__bench *b, const choir__launcher *launcher)
{
    if (b->ranks && b->ranks != launcher->world)
        return choir__line_usage("bench",
            "--ranks: expected %d, as the launcher (%s) started, got %d", launcher->world,
            launcher->name, b->ranks);
    b->ranks = launcher->world;
    int status = check_sizes(b);
    if (status != CHOIR__EXIT_OK)
        return status;
    return choir__bench_rank(
        b, launcher->local_rank >= 0 ? launcher->local_rank : launcher->rank);
}

/* Checks that each rank has a GPU. A separate process counts them, because this one will
 * fork. */
static choir_status check_gpus(const choir__bench *b)
{
    char why[512] = "";
    int count = choir__device_look("cuda", why, sizeof why);
    if (count >= b->ranks)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_DEVICE,
        "--backend nccl: expected a GPU for each of %d ranks, got %d%s%s", b->ranks,
        count > 0 ? count : 0, *why ? ": " : "", why);
}

static int start(choir__bench *b)
{
    choir__launcher launcher;
    if (choir__launcher_find(false, &launcher) != CHOIR_OK)
        return choir__line_fail();
    if (launcher.name)
        return run_launched(b, &launcher);
    if (b->backend && strcmp(b->backend, "mpi") == 0)
        return choir__line_usage("bench",
            "--backend mpi needs mpirun: mpirun -n %d choir bench %s --backend mpi",
            b->ranks ? b->ranks : 2, b->what->name);
    b->ranks = b->ranks ? b->ranks : 2;
    if (b->backend && strcmp(b->backend, "nccl") == 0 && check_gpus(b) != CHOIR_OK)
        return choir__line_fail();
    int status = check_sizes(b);
    if (status != CHOIR__EXIT_OK)
        return status;
    return choir_spawn(b->ranks, run_forked, b) == CHOIR_OK ? CHOIR__EXIT_OK
                                                            : choir__line_fail();
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__bench b = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &b, argc, argv, &operands);
    if (status == CHOIR__EXIT_OK)
        status = take_names(&b, operands.words[0]);
    return status == CHOIR__EXIT_OK ? start(&b) : status;
}

const choir__line_command choir__cli_bench = {
    .name = "bench",
    .summary = "measure a collective over sizes",
    .usage = "COLLECTIVE [OPTION]...",
    .about =
        "Measures a collective over sizes, and checks its results. Under choir run, mpirun or "
        "srun it joins their ranks; otherwise it starts ranks on this machine.\n\n"
        "A size is what one rank has in the end (all_gather, gather: of all ranks) or in the "
        "beginning (scatter, reduce_scatter, all_to_all: for all ranks). The columns are those "
        "of nccl-tests: time is the median, algbw size over time, busbw what a link carries, "
        "and #wrong counts the elements that came out wrong.",
    .example = "  choir bench all_reduce -n 2 --min 1K --max 64M --factor 4",
    .options = options,
    .operand = "COLLECTIVE",
    .operands = choir__bench_collective_name,
    .least = 1,
    .most = 1,
    .run = run,
};
