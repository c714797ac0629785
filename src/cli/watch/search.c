/* The search for runs: see search.h.
 *
 * Folders wait in queues, and folders of the first non-empty queue come first:
 *
 *     NEAR    the first folders of each folder, level by level
 *     LINKS   symbolic links to folders: a run is found by its own path before by a link
 *     REST    the further folders of a large one
 *
 * So thousands of folders with images do not hide a run that is beside them. */
#include "cli/watch/search.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/watch/run.h"
#include "cli/watch/study.h"

enum { DEPTH = 3, MOST_FOLDERS = 4096, FIRST = 256 /* folders of a folder that are NEAR */ };
enum { NEAR, LINKS, REST, QUEUES };

typedef struct folder {
    char *path;
    int depth; /* levels that may be looked at below it */
} folder;

typedef struct queue {
    folder *folders; /* (count); the first `taken` are done */
    int count, taken;
} queue;

typedef struct search {
    queue queues[QUEUES];
    const choir__watch_finds *finds;
    int64_t left_out;
} search;

static void put(search *s, int kind, char *path, int depth)
{
    queue *q = &s->queues[kind];
    if (q->count == MOST_FOLDERS) {
        s->left_out++;
        free(path);
        return;
    }
    CHOIR__GROW(q->folders, q->count);
    q->folders[q->count++] = (folder){path, depth};
}

/* Returns the next folder, or NULL. */
static folder *take(search *s)
{
    for (int kind = 0; kind < QUEUES; kind++) {
        queue *q = &s->queues[kind];
        if (q->taken < q->count)
            return &q->folders[q->taken++];
    }
    return NULL;
}

/* --- one folder --- */

static int may_be_folder(const struct dirent *entry)
{
    return entry->d_name[0] != '.' &&
           (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK);
}

/* Returns the queue of a folder's entry, or -1 if it is no folder. */
static int queue_of(int fd, const struct dirent *entry)
{
    struct stat s;
    if (entry->d_type == DT_DIR)
        return NEAR;
    if (fstatat(fd, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode))
        return NEAR;
    return fstatat(fd, entry->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode) ? LINKS : -1;
}

static void put_folders_of(search *s, const char *path, int depth)
{
    struct dirent **list;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), folders = 0;
    int count = fd >= 0 ? scandir(path, &list, may_be_folder, alphasort) : -1;
    for (int i = 0; i < count; i++) {
        const char *name = list[i]->d_name;
        int kind = queue_of(fd, list[i]);
        if (kind >= 0)
            put(s, folders++ < FIRST ? kind : REST,
                strcmp(path, ".") ? choir__format("%s/%s", path, name) : choir__strdup(name),
                depth);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    if (fd >= 0)
        close(fd);
}

static void look_at(search *s, const char *path, int depth)
{
    struct stat file;
    if (choir__watch_is_study(path, &file)) /* the file's folder may hold runs, too */
        s->finds->study(s->finds->arg, path, &file);
    if (choir__watch_is_run(path) && stat(path, &file) == 0)
        s->finds->run(s->finds->arg, path, &file);
    else if (depth)
        put_folders_of(s, path, depth - 1);
}

int64_t choir__watch_search(const char *place, const choir__watch_finds *finds)
{
    search s = {.finds = finds};
    put(&s, NEAR, choir__strdup(place), DEPTH);
    int looked_at = 0;
    for (folder *f; (f = take(&s));) {
        char *path = f->path;
        if (looked_at++ < MOST_FOLDERS)
            look_at(&s, path, f->depth);
        else
            s.left_out++;
        free(path);
    }
    for (int kind = 0; kind < QUEUES; kind++)
        free(s.queues[kind].folders);
    return s.left_out;
}
