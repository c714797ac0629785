/* The runs, studies and plans of the page, each at a place that readers know. A path is known
 * by name or by the folder that it leads to, since links may lead there twice; when all places
 * are taken, one whose folder is gone gives up its place. */
#include "cli/watch/run.h"
#include "cli/watch/shown.h"
#include "cli/tune/search.h"
#include "cli/watch/study.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Functions that get each run, each study and each plan. The file is the run's folder or the
 * study's or plan's file: its st_dev and st_ino are the same for each path that leads to it. */
typedef struct finders {
    void (*run)(void *arg, const char *path, const struct stat *file);
    void (*study)(void *arg, const char *path, const struct stat *file);
    void (*plan)(void *arg, const char *path, const struct stat *file);
    void *arg;
} finders;

/* --- the search for runs ---
 *
 * Folders wait in queues, and folders of the first non-empty queue come first:
 *
 *     NEAR    the first folders of each folder, level by level
 *     LINKS   symbolic links to folders: a run is found by its own path before by a link
 *     REST    the further folders of a large one
 *
 * So thousands of folders with images do not hide a run that is beside them. */

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
    const finders *finds;
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
    int count = fd >= 0 ? scandir(path, &list, may_be_folder, versionsort) : -1;
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

/* A folder's plan is in plan.jsonl. */
static bool find_plan(search *s, const char *path)
{
    struct stat file;
    char *inside =
        strcmp(path, ".") ? choir__format("%s/plan.jsonl", path) : choir__strdup("plan.jsonl");
    const bool is = choir__watch_is_plan(path, &file);
    if (is || choir__watch_is_plan(inside, &file))
        s->finds->plan(s->finds->arg, is ? path : inside, &file);
    free(inside);
    return is;
}

static void look_at(search *s, const char *path, int depth)
{
    struct stat file;
    if (find_plan(s, path))
        return;
    if (choir__tune_in_file(path, &file)) /* the file's folder may hold runs, too */
        s->finds->study(s->finds->arg, path, &file);
    if (choir__watch_is_run(path) && stat(path, &file) == 0)
        s->finds->run(s->finds->arg, path, &file);
    else if (depth)
        put_folders_of(s, path, depth - 1);
}

/* Looks at the place, which may be a study's file, too, and if it is no run at the folders up
 * to three levels below it, those that are near first; a symbolic link to a folder comes after
 * the folders. Of a very large tree some folders are left out; returns their number. */
static int64_t search_place(const char *place, const finders *finds)
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

/* --- places --- */

static choir__watch_source *source_of(
    choir__watch_shown *shown, choir__watch_kind kind, int place)
{
    return kind == CHOIR__WATCH_RUN     ? &shown->runs[place]->source
           : kind == CHOIR__WATCH_STUDY ? &shown->studies[place]->source
                                        : &shown->plans[place]->source;
}

static void note_file(choir__watch_source *s, const struct stat *file)
{
    s->device = file->st_dev;
    s->inode = file->st_ino;
}

/* Returns whether the source's path still leads to this file. A file system gives the number of
 * a removed folder to a new one, so a number alone says little. */
static bool is_at(const choir__watch_source *s, choir__watch_kind kind, const struct stat *file)
{
    struct stat now;
    return s->inode == file->st_ino && s->device == file->st_dev &&
           (kind == CHOIR__WATCH_STUDY ? choir__tune_in_file(s->path, &now)
                                       : stat(s->path, &now) == 0) &&
           now.st_dev == s->device && now.st_ino == s->inode;
}

static bool is_gone(const choir__watch_source *source)
{
    struct stat s;
    return !source->far && stat(source->path, &s) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* Returns whether something of this path is known, or of a path that leads to the same file.
 * file NULL: the path is a URL. */
static bool knows(choir__watch_shown *shown, choir__watch_kind kind, const char *path,
    const struct stat *file)
{
    for (int i = 0; i < shown->count[kind]; i++) {
        choir__watch_source *s = source_of(shown, kind, i);
        if (strcmp(s->path, path) != 0)
            continue;
        if (file) /* the path may lead to another file now */
            note_file(s, file);
        return true;
    }
    for (int i = 0; i < shown->count[kind] && file; i++)
        if (is_at(source_of(shown, kind, i), kind, file))
            return true;
    return false;
}

/* Returns a place: a free one, or the place of something that is gone; -1: none. */
static int place_for(choir__watch_shown *shown, choir__watch_kind kind)
{
    static const int most[] = {[CHOIR__WATCH_RUN] = CHOIR__WATCH_RUNS,
        [CHOIR__WATCH_STUDY] = CHOIR__WATCH_STUDIES,
        [CHOIR__WATCH_PLAN] = CHOIR__WATCH_PLANS};
    if (shown->count[kind] < most[kind])
        return shown->count[kind]++;
    while (shown->next[kind] < most[kind])
        if (is_gone(source_of(shown, kind, shown->next[kind]++)))
            return shown->next[kind] - 1;
    shown->counts.left_out[kind]++;
    return -1;
}

static void add_run(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    const int at =
        knows(shown, CHOIR__WATCH_RUN, path, file) ? -1 : place_for(shown, CHOIR__WATCH_RUN);
    if (at < 0)
        return;
    choir__watch_run *made = choir__watch_run_new(path), *gone = shown->runs[at];
    note_file(&made->source, file);
    made->generation = gone ? gone->generation + 1 : 0; /* readers forget the other run */
    choir__watch_run_free(gone);
    shown->runs[at] = made;
}

/* file NULL: the path is the URL of a storage. */
static void add_study(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    const int at = knows(shown, CHOIR__WATCH_STUDY, path, file)
                       ? -1
                       : place_for(shown, CHOIR__WATCH_STUDY);
    if (at < 0)
        return;
    choir__watch_study *made = choir__watch_study_new(path, !file, at),
                       *gone = shown->studies[at];
    if (file)
        note_file(&made->source, file);
    made->news.version = gone ? gone->news.version : 0; /* readers wait for the next one */
    choir__watch_study_free(gone);
    shown->studies[at] = made;
}

static void add_plan(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    const int at =
        knows(shown, CHOIR__WATCH_PLAN, path, file) ? -1 : place_for(shown, CHOIR__WATCH_PLAN);
    if (at < 0)
        return;
    choir__watch_plan *made = choir__watch_plan_new(path, at), *gone = shown->plans[at];
    note_file(&made->source, file);
    made->news.version = gone ? gone->news.version : 0; /* readers wait for the next one */
    choir__watch_plan_free(gone);
    shown->plans[at] = made;
}

void choir__watch_shown_find(choir__watch_shown *shown, char *const *places, int count)
{
    const finders finds = {.run = add_run, .study = add_study, .plan = add_plan, .arg = shown};
    shown->counts = (choir__watch_counts){0};
    memset(shown->next, 0, sizeof shown->next);
    for (int i = 0; i < count; i++)
        if (choir__watch_is_storage(places[i]))
            add_study(shown, places[i], NULL);
        else
            shown->counts.folders_left_out += search_place(places[i], &finds);
    for (int kind = 0; kind < CHOIR__WATCH_KINDS; kind++)
        shown->counts.shown[kind] = shown->count[kind];
}

/* Adds the event if the reader does not know it. */
static void tell(const choir__watch_news *news, int64_t *told, choir__text_buffer *out)
{
    if (*told != news->version && news->event.used)
        choir__text_buffer_put(out, news->event.bytes);
    *told = news->version;
}

void choir__watch_shown_news(
    choir__watch_shown *shown, choir__watch_told *told, choir__text_buffer *out)
{
    for (int i = 0; i < shown->count[CHOIR__WATCH_STUDY] && !out->used; i++) {
        choir__watch_study_look(shown->studies[i]);
        tell(&shown->studies[i]->news, &told->studies[i], out);
    }
    for (int i = 0; i < shown->count[CHOIR__WATCH_PLAN] && !out->used; i++) {
        choir__watch_plan_look(shown->plans[i]);
        tell(&shown->plans[i]->news, &told->plans[i], out);
    }
}

void choir__watch_shown_free(choir__watch_shown *shown)
{
    for (int i = 0; i < shown->count[CHOIR__WATCH_RUN]; i++)
        choir__watch_run_free(shown->runs[i]);
    for (int i = 0; i < shown->count[CHOIR__WATCH_STUDY]; i++)
        choir__watch_study_free(shown->studies[i]);
    for (int i = 0; i < shown->count[CHOIR__WATCH_PLAN]; i++)
        choir__watch_plan_free(shown->plans[i]);
}
