/* MPI's collectives over sizes, measured as `choir bench COLLECTIVE --json` measures Choir's,
 * and printed in the same lines.
 *
 *   mpicc -O2 mpi_collectives.c -o mpi_collectives
 *   mpirun --bind-to core -n 2 ./mpi_collectives [COLLECTIVE [MIN [MAX [FACTOR]]]]    (bytes)
 *
 * Sizes are nccl-tests': of an all_gather, a reduce_scatter or an all_to_all, all ranks' parts
 * together. Only all_reduce is checked: the others are here for their times. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 61 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *collective = "all_reduce";
static int world;

static void call(const float *in, float *out, int count)
{
    int part = count / world;
    if (strcmp(collective, "all_reduce") == 0)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(collective, "reduce") == 0)
        MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (strcmp(collective, "broadcast") == 0)
        MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else if (strcmp(collective, "all_gather") == 0)
        MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    else if (strcmp(collective, "reduce_scatter") == 0)
        MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(collective, "all_to_all") == 0)
        MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static double bus(void)
{
    double p = world;
    return strcmp(collective, "all_reduce") == 0 ? 2 * (p - 1) / p
           : strcmp(collective, "reduce") == 0 || strcmp(collective, "broadcast") == 0
               ? 1
               : (p - 1) / p;
}

/* Elements that are wrong after an all_reduce, on any rank. */
static int check(float *in, float *out, int rank, int count)
{
    int wrong = 0, all_wrong = 0;
    for (int i = 0; i < count; i++)
        in[i] = (float)((i + rank * 3) % 11 - 4);
    call(in, out, count);
    for (int i = 0; i < count && strcmp(collective, "all_reduce") == 0; i++) {
        float sum = 0;
        for (int r = 0; r < world; r++)
            sum += (float)((i + r * 3) % 11 - 4);
        wrong += out[i] != sum;
    }
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all_wrong;
}

/* Seconds of `calls` calls, the slowest rank's, behind a barrier. */
static double sample(const float *in, float *out, int count, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        call(in, out, count);
    double took = MPI_Wtime() - start, slowest;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static double measure(const float *in, float *out, int count)
{
    double times[SAMPLES], first = sample(in, out, count, 4) / 4;
    first = first > 1e-8 ? first : 1e-8;
    int calls = first > 50e-6 ? 1 : (int)(100e-6 / first) + 1;
    int samples = first > 20e-3 ? 11 : SAMPLES;
    for (int i = 0; i < samples; i++)
        times[i] = sample(in, out, count, calls) / calls;
    qsort(times, (size_t)samples, sizeof *times, by_size);
    return times[samples / 2];
}

int main(int argc, char **argv)
{
    int rank;
    collective = argc > 1 ? argv[1] : collective;
    long min = argc > 2 ? atol(argv[2]) : 1 << 10, max = argc > 3 ? atol(argv[3]) : 64 << 20;
    long factor = argc > 4 ? atol(argv[4]) : 4;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (min < 4 || max < min || factor < 2) {
        if (rank == 0)
            fprintf(stderr, "usage: mpi_collectives [COLLECTIVE [MIN [MAX [FACTOR]]]] (bytes; "
                            "factor > 1)\n");
        MPI_Finalize();
        return 2;
    }
    float *in = malloc((size_t)max), *out = malloc((size_t)max);
    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(out, 0, (size_t)max);
    for (long bytes = min; bytes <= max; bytes *= factor) {
        int count = (int)(bytes / 4), wrong = check(in, out, rank, count);
        double seconds = measure(in, out, count), algbw = (double)bytes / seconds * 1e-9;
        if (rank == 0)
            printf("{\"collective\":\"%s\",\"backend\":\"mpi\",\"algorithm\":\"native\","
                   "\"ranks\":%d,\"bytes\":%ld,\"time_us\":%.3f,\"algbw_gbs\":%.3f,"
                   "\"busbw_gbs\":%.3f,\"wrong\":%d}\n",
                collective, world, bytes, seconds * 1e6, algbw, algbw * bus(), wrong);
        fflush(stdout);
    }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
