/* Loading: each rank reads the parts that it holds, from a checkpoint of any number of ranks.
 *
 * The ranks read the manifest and the headers of all files, and divide the work of hashing
 * them. From the mapped files, a rank reads only its own boxes. The ranks agree after each
 * step, so that no rank changes anything if one of them finds an error. */
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/stored.h"
#include "checkpoint/state.h"
#include "checkpoint/writer.h"
#include "data/dataset.h"
#include "nn/module.h"

enum { MAX_JOB = 1 << 20 };

static choir_status no_state(const char *path)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s has weights alone, no training state: a checkpoint's folder is needed", path);
}

choir_status choir__checkpoint_state(const char *folder, choir_train_state *state)
{
    json_t *files = NULL;
    choir_train_state read;
    if (choir__is_weights_file(folder))
        return no_state(folder);
    choir_status status = choir__state_read(folder, &read, &files);
    if (status == CHOIR_OK)
        status = choir__state_check_sizes(folder, files);
    if (status == CHOIR_OK)
        *state = read;
    json_decref(files);
    return status;
}

static bool is_of_kind(const char *name, bool moments)
{
    const char *kind = moments ? "optimizer" : "model", *end = ".safetensors";
    size_t n = strlen(name), m = strlen(end);
    return !strncmp(name, kind, strlen(kind)) && n > m && !strcmp(name + n - m, end);
}

choir_status choir__stored_open_kind(
    choir__stored *stored, const char *folder, json_t *files, bool moments)
{
    const char *name;
    json_t *entry;
    int count = 0;
    char **paths = choir__calloc(json_object_size(files) + 1, sizeof *paths);
    json_object_foreach(files, name, entry)
    {
        if (is_of_kind(name, moments))
            paths[count++] = choir__format("%s/%s", folder, name);
    }
    choir_status status = choir__stored_open(stored, folder, (const char *const *)paths, count);
    for (int i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return status;
}

typedef struct load {
    const char *folder;
    choir_train_state state;
    json_t *files;
    choir__items items;
    int weights; /* number of items; the rest are moments */
    choir__stored model, optimizer;
} load;

/* Opens the files of one kind. As the files are intact, a mismatch means that they were made
 * for something else; made_for names it. */
static choir_status open_kind(load *l, bool moments)
{
    choir__stored *stored = moments ? &l->optimizer : &l->model;
    const char *what = moments ? "optimizer" : "model";
    const char *made_for = moments ? l->state.optimizer : l->state.model;
    int first = moments ? l->weights : 0;
    int count = moments ? l->items.count - l->weights : l->weights;
    choir_status status = choir__stored_open_kind(stored, l->folder, l->files, moments);
    if (status != CHOIR_OK)
        return status;
    status = choir__stored_match(stored, &l->items, first, count, what, !moments);
    if (status == CHOIR_ERR_FORMAT) {
        char *message = choir__format(
            "%s; the checkpoint was made with %s '%s'", choir__message(), what, made_for);
        choir__set_message(message);
        free(message);
    }
    return status;
}

static choir_status open_all(load *l, choir_module *module, choir_optim *optim)
{
    choir_status status = choir__items_collect(&l->items, module, optim);
    while (l->weights < l->items.count && !l->items.list[l->weights].moment)
        l->weights++;
    if (status == CHOIR_OK)
        status = open_kind(l, false);
    if (status == CHOIR_OK && optim)
        status = open_kind(l, true);
    return status;
}

static choir_status read_manifest(load *l)
{
    choir_status status = choir__state_read(l->folder, &l->state, &l->files);
    return status == CHOIR_OK ? choir__state_check_sizes(l->folder, l->files) : status;
}

choir_status choir__checkpoint_load(
    const char *folder, choir_module *module, choir_optim *optim, choir_group *group)
{
    load l = {.folder = folder};
    if (choir__is_weights_file(folder))
        return choir__agree(group, optim ? no_state(folder) : choir_load(module, folder));
    choir_status status = choir__agree(group, read_manifest(&l));
    if (status == CHOIR_OK)
        status = choir__agree(group, choir__state_verify(folder, l.files, choir__rank_of(group),
                                         choir__world_of(group)));
    if (status == CHOIR_OK)
        status = choir__agree(group, open_all(&l, module, optim));
    if (status == CHOIR_OK)
        status = choir__stored_restore(&l.model, &l.items, 0, l.weights);
    if (status == CHOIR_OK)
        status =
            choir__stored_restore(&l.optimizer, &l.items, l.weights, l.items.count - l.weights);
    if (status == CHOIR_OK && optim)
        choir_optim_restore(optim, l.state.optimizer_steps);
    status = choir__agree(group, status); /* all ranks wait until all have restored theirs */
    if (status == CHOIR_OK)
        status = choir__items_restored(&l.items, module);
    choir__stored_close(&l.model);
    choir__stored_close(&l.optimizer);
    choir__items_free(&l.items);
    json_decref(l.files);
    return status;
}

choir_status choir__checkpoint_tokenizer(const char *folder, choir_tokenizer **tokenizer)
{
    choir_train_state state;
    json_t *files = NULL;
    *tokenizer = NULL;
    if (choir__is_weights_file(folder))
        return CHOIR_OK;
    choir_status status = choir__state_read(folder, &state, &files);
    const char *name = CHOIR__TOKENIZER_FILE;
    if (status == CHOIR_OK && !json_object_get(files, name))
        name = CHOIR__OWN_TOKENIZER_FILE;
    if (status == CHOIR_OK && json_object_get(files, name)) {
        char *path = choir__format("%s/%s", folder, name);
        status = choir__state_check_file(folder, files, name, true);
        if (status == CHOIR_OK)
            status = choir_tokenizer_load(path, tokenizer);
        free(path);
    }
    json_decref(files);
    return status;
}

choir_status choir__checkpoint_job(const char *folder, char **job)
{
    choir_train_state state;
    json_t *files = NULL;
    size_t bytes;
    *job = NULL;
    if (choir__is_weights_file(folder))
        return CHOIR_OK;
    choir_status status = choir__state_read(folder, &state, &files);
    if (status == CHOIR_OK && json_object_get(files, CHOIR__JOB_FILE)) {
        char *path = choir__format("%s/%s", folder, CHOIR__JOB_FILE);
        status = choir__state_check_file(folder, files, CHOIR__JOB_FILE, true);
        if (status == CHOIR_OK)
            status = choir__read_file(path, MAX_JOB, job, &bytes);
        free(path);
    }
    json_decref(files);
    return status;
}

choir_status choir_load(choir_module *module, const char *path)
{
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!path)
        return choir__missing(__func__, "path");
    choir__stored stored = {0};
    choir__items items;
    choir_status status = choir__items_collect(&items, module, NULL);
    if (status == CHOIR_OK)
        status = choir__stored_open(&stored, path, &path, 1);
    if (status == CHOIR_OK)
        status = choir__stored_match(&stored, &items, 0, items.count, "model", true);
    if (status == CHOIR_OK)
        status = choir__stored_restore(&stored, &items, 0, items.count);
    if (status == CHOIR_OK)
        status = choir__items_restored(&items, module);
    choir__stored_close(&stored);
    choir__items_free(&items);
    return status;
}

/* Hashing the files of a checkpoint: distributed over the ranks by size, and on each rank over
 * a few threads, which take the next file until all are taken. */

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
           choir__background_thread_start(&threads[count], run, all))
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
    int64_t *bytes = choir__calloc((size_t)world, sizeof *bytes);
    json_object_foreach(files, name, entry)
    {
        int least = 0;
        for (int r = 1; r < world; r++)
            least = bytes[r] < bytes[least] ? r : least;
        bytes[least] += bytes_of(entry) + 1;
        if (least == rank)
            all->list[all->count++].name = name;
    }
    free(bytes);
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
