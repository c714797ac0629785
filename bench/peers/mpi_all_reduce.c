/* MPI_Allreduce over sizes, measured as `choir bench all_reduce --json` measures Choir's, and
 * printed in the same lines.
 *
 *   mpicc -O2 mpi_all_reduce.c -o mpi_all_reduce
 *   mpirun --bind-to core -n 2 ./mpi_all_reduce [MIN [MAX [FACTOR]]]       (bytes)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 61 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of `calls` calls, the slowest rank's, behind a barrier. */
static double sample(const float *in, float *out, int count, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
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
    int rank, world;
    long min = argc > 1 ? atol(argv[1]) : 1 << 10, max = argc > 2 ? atol(argv[2]) : 64 << 20;
    long factor = argc > 3 ? atol(argv[3]) : 4;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (min < 4 || max < min || factor < 2) {
        if (rank == 0)
            fprintf(stderr, "usage: mpi_all_reduce [MIN [MAX [FACTOR]]] (bytes; factor > 1)\n");
        MPI_Finalize();
        return 2;
    }
    float *in = malloc((size_t)max), *out = malloc((size_t)max);
    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (long bytes = min; bytes <= max; bytes *= factor) {
        int count = (int)(bytes / 4), wrong = 0, all_wrong = 0;
        for (int i = 0; i < count; i++)
            in[i] = (float)((i + rank * 3) % 11 - 4);
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            float sum = 0;
            for (int r = 0; r < world; r++)
                sum += (float)((i + r * 3) % 11 - 4);
            wrong += out[i] != sum;
        }
        MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        double seconds = measure(in, out, count), algbw = (double)bytes / seconds * 1e-9;
        if (rank == 0)
            printf(
                "{\"collective\":\"all_reduce\",\"backend\":\"mpi\",\"algorithm\":\"native\","
                "\"ranks\":%d,\"bytes\":%ld,\"time_us\":%.3f,\"algbw_gbs\":%.3f,"
                "\"busbw_gbs\":%.3f,\"wrong\":%d}\n",
                world, bytes, seconds * 1e6, algbw, algbw * 2 * (world - 1) / world, all_wrong);
        fflush(stdout);
    }
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
