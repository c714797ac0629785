/* A hash table that only grows. Nothing is removed before its context is freed: a recorded
 * step's graph may run code that a plan loaded, and does not itself keep the code loaded.
 * Models have tens or hundreds of problems; models whose shapes change all the time have a plan
 * for each. */
#include "device/cuda/library_plans.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

enum { CHAINS = 1024 };

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    void *plan;
    size_t bytes;
    uint32_t problem[]; /* (bytes / 4) */
} entry;

struct choir__library_plans {
    entry *chain[CHAINS];
};

static uint64_t hash_of(const void *problem, size_t bytes)
{
    uint64_t hash = CHOIR__HASH_SEED; /* hashes one word at a time */
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, (const char *)problem + i, sizeof word);
        hash = choir__hash_step(hash, word);
    }
    return hash;
}

void **choir__library_plan_place(
    choir__library_plans **table, const void *problem, size_t bytes)
{
    if (!*table)
        *table = choir__calloc(1, sizeof **table);
    uint64_t hash = hash_of(problem, bytes);
    entry **chain = &(*table)->chain[(hash >> 32) % CHAINS];
    for (entry *e = *chain; e; e = e->next)
        if (e->hash == hash && e->bytes == bytes && !memcmp(e->problem, problem, bytes))
            return &e->plan;
    entry *e = choir__calloc(1, sizeof *e + bytes);
    memcpy(e->problem, problem, bytes);
    e->hash = hash, e->bytes = bytes;
    e->next = *chain;
    *chain = e;
    return &e->plan;
}

void choir__library_plans_free(choir__library_plans **table, void (*drop)(void *plan))
{
    for (int i = 0; *table && i < CHAINS; i++)
        for (entry *e = (*table)->chain[i], *next; e; e = next) {
            next = e->next;
            if (e->plan)
                drop(e->plan);
            free(e);
        }
    free(*table);
    *table = NULL;
}

void choir__library_plan_note(
    choir__cuda *cuda, int library, choir__library_plan_fate fate, const char *problem)
{
    static const char *const libraries[CHOIR__LIBRARIES] = {"cuBLASLt", "cuDNN"};
    static const char *const fates[] = {"made", "none", "refused"};
    choir__library_use *use = &cuda->use[library];
    const char *path = getenv("CHOIR_CUDA_PLANS");
    char line[320];
    *(fate == CHOIR__LIBRARY_PLAN_MADE     ? &use->made
        : fate == CHOIR__LIBRARY_PLAN_NONE ? &use->none
                                           : &use->refused) += 1;
    if (!path || !*path || !strcmp(path, "0"))
        return;
    int bytes =
        snprintf(line, sizeof line, "%s %s %s\n", libraries[library], fates[fate], problem);
    bool shown = !strcmp(path, "1");
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int file = shown ? STDERR_FILENO : open(path, flags, 0600);
    if (file < 0)
        return;
    (void)!write(
        file, line, (size_t)choir__min(bytes, (int)sizeof line - 1)); /* one call: whole */
    if (!shown)
        close(file);
}
