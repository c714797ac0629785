/* Hashing the files of a checkpoint: distributed over the ranks by size, and on each rank over
 * a few threads, which take the next file until all are taken. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/aside.h"
#include "checkpoint/state.h"

enum { MOST_THREADS = 4 };

typedef struct check {
    const char *name;
    choir_status status;
    char message[1024];
} check;

typedef struct checks {
    const char *folder;
    const json_t *files;
    check *list; /* (count), in the order of files */
    int count;
    atomic_int next;
} checks;

static void *run(void *arg)
{
    checks *all = arg;
    for (int i; (i = atomic_fetch_add(&all->next, 1)) < all->count;) {
        check *c = &all->list[i];
        c->status = choir__state_check_file(all->folder, all->files, c->name, true);
        if (c->status != CHOIR_OK)
            snprintf(c->message, sizeof c->message, "%s", choir__message());
    }
    return NULL;
}

/* Checks all files of the list, on this thread and on others. */
static void run_all(checks *all)
{
    pthread_t threads[MOST_THREADS - 1];
    int count = 0;
    while (count < MOST_THREADS - 1 && count < all->count - 1 &&
           choir__aside_start(&threads[count], run, all))
        count++;
    run(all);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static int64_t bytes_of(const json_t *entry)
{
    return json_integer_value(json_object_get(entry, "bytes"));
}

/* Lists this rank's share: each file goes to the rank with the least to read so far. */
static void list_share(checks *all, json_t *files, int rank, int world)
{
    const char *name;
    json_t *entry;
    int64_t *load = choir__calloc((size_t)world, sizeof *load);
    json_object_foreach(files, name, entry)
    {
        int least = 0;
        for (int r = 1; r < world; r++)
            least = load[r] < load[least] ? r : least;
        load[least] += bytes_of(entry) + 1;
        if (least == rank)
            all->list[all->count++].name = name;
    }
    free(load);
}

choir_status choir__state_verify(const char *folder, json_t *files, int rank, int world)
{
    choir_status status = CHOIR_OK;
    checks all = {.folder = folder,
        .files = files,
        .list = choir__calloc(json_object_size(files) + 1, sizeof *all.list)};
    list_share(&all, files, rank, world);
    run_all(&all);
    for (int i = 0; i < all.count && status == CHOIR_OK; i++)
        if ((status = all.list[i].status) != CHOIR_OK)
            choir__set_message(all.list[i].message);
    free(all.list);
    return status;
}
