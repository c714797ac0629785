/* The movement of a ring's chunks, step by step, in the terminal and as a picture:
 *
 *     ./ring [RANKS [ALGORITHM [PICTURE.svg]]]
 *
 * All-reduce: first chunks go around and are added up, then the sums go around. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/choir.h>

enum { MAX = 64 };

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 4, count, sent = 0, wrong = 0;
    const char *algorithm = argc > 2 ? argv[2] : "ring",
               *path = argc > 3 ? argv[3] : "ring.svg";
    choir_pattern *pattern;
    choir_check(choir_pattern_new("all_reduce", algorithm, ranks, 1, &pattern));
    choir_check(choir_pattern_print(pattern, stdout));
    choir_check(choir_pattern_svg(pattern, path));

    /* By hand: every rank has an array of one number per chunk, moved by the pattern. */
    static int data[MAX][4 * MAX];
    int chunks = choir_pattern_chunks(pattern);
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < chunks; c++)
            data[r][c] = r + 1;
    const choir_pattern_move *m = choir_pattern_moves(pattern, &count);
    for (int i = 0; i < count; i++)
        for (int c = m[i].chunk; c < m[i].chunk + m[i].chunks; c++, sent++)
            data[m[i].to][c] = data[m[i].from][c] + (m[i].added ? data[m[i].to][c] : 0);
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < chunks; c++)
            wrong += data[r][c] != ranks * (ranks + 1) / 2;
    printf("1 + 2 + ... + %d in every chunk on all ranks: %s, %.2f of its data sent by each\n",
        ranks, wrong ? "no" : "yes", (double)sent / ranks / chunks);
    choir_pattern_free(pattern);
    return wrong != 0;
}
