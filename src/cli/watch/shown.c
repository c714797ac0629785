/* The runs, studies and plans of the page, each at a place that readers know. A path is known
 * by name or by the folder that it leads to, since links may lead there twice; when all places
 * are taken, one whose folder is gone gives up its place. */
#include "cli/watch/run.h"
#include "cli/watch/shown.h"
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
    if (choir__watch_is_study(path, &file)) /* the file's folder may hold runs, too */
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

static bool is_at(const char *path, dev_t device, ino_t inode)
{
    struct stat s;
    return stat(path, &s) == 0 && s.st_dev == device && s.st_ino == inode;
}

static bool is_gone(const char *path)
{
    struct stat s;
    return stat(path, &s) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* Returns whether a run of this path, or of a path that leads to the same folder, is known. A
 * file system gives the number of a removed folder to a new one, so a number alone says little.
 */
static bool knows_run(choir__watch_shown *shown, const char *path, const struct stat *file)
{
    for (int i = 0; i < shown->run_count; i++)
        if (!strcmp(shown->runs[i]->path, path)) {
            shown->runs[i]->device =
                file->st_dev; /* current device: the folder may be another one */
            shown->runs[i]->inode = file->st_ino;
            return true;
        }
    for (int i = 0; i < shown->run_count; i++) {
        const choir__watch_run *r = shown->runs[i];
        if (r->inode == file->st_ino && r->device == file->st_dev &&
            is_at(r->path, r->device, r->inode))
            return true;
    }
    return false;
}

/* Returns a place for a run: a free one, or the place of a run whose folder is gone; -1: none.
 */
static int place_for_run(choir__watch_shown *shown)
{
    if (shown->run_count < CHOIR__WATCH_RUNS)
        return shown->run_count++;
    while (shown->next_run < CHOIR__WATCH_RUNS)
        if (is_gone(shown->runs[shown->next_run++]->path))
            return shown->next_run - 1;
    return -1;
}

static void add_run(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    if (knows_run(shown, path, file))
        return;
    int at = place_for_run(shown);
    if (at < 0) {
        shown->counts.runs_left_out++;
        return;
    }
    choir__watch_run *made = choir__watch_run_new(path), *gone = shown->runs[at];
    made->device = file->st_dev;
    made->inode = file->st_ino;
    made->generation = gone ? gone->generation + 1 : 0; /* readers forget the other run */
    choir__watch_run_free(gone);
    shown->runs[at] = made;
}

static bool knows_study(choir__watch_shown *shown, const char *path, const struct stat *file)
{
    for (int i = 0; i < shown->study_count; i++) {
        choir__watch_study *s = shown->studies[i];
        if (!strcmp(s->path, path)) {
            s->device = file->st_dev;
            s->inode = file->st_ino;
            return true;
        }
    }
    for (int i = 0; i < shown->study_count; i++) {
        const choir__watch_study *s = shown->studies[i];
        struct stat now;
        if (s->inode == file->st_ino && s->device == file->st_dev &&
            choir__watch_is_study(s->path, &now) && now.st_ino == s->inode &&
            now.st_dev == s->device)
            return true;
    }
    return false;
}

/* Returns a place for a study: a free one, or the place of a study that is gone; -1: none. */
static int place_for_study(choir__watch_shown *shown)
{
    if (shown->study_count < CHOIR__WATCH_STUDIES)
        return shown->study_count++;
    while (shown->next_study < CHOIR__WATCH_STUDIES) {
        const choir__watch_study *s = shown->studies[shown->next_study++];
        if (!s->far && is_gone(s->path))
            return shown->next_study - 1;
    }
    shown->counts.studies_left_out++;
    return -1;
}

static choir__watch_study *make_study(choir__watch_shown *shown, const char *path, bool far)
{
    int at = place_for_study(shown);
    if (at < 0)
        return NULL;
    choir__watch_study *made = choir__watch_study_new(path, far, at),
                       *gone = shown->studies[at];
    made->version = gone ? gone->version : 0; /* readers wait for the next one */
    choir__watch_study_free(gone);
    shown->studies[at] = made;
    return made;
}

static void add_study(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    if (knows_study(shown, path, file))
        return;
    choir__watch_study *made = make_study(shown, path, false);
    if (!made)
        return;
    made->device = file->st_dev;
    made->inode = file->st_ino;
}

static void add_storage(choir__watch_shown *shown, const char *url)
{
    bool known = false;
    for (int i = 0; i < shown->study_count; i++)
        known |= !strcmp(shown->studies[i]->path, url);
    if (!known)
        make_study(shown, url, true);
}

/* Returns a place for a plan: a free one, or the place of a plan that is gone; -1: none. */
static int place_for_plan(choir__watch_shown *shown)
{
    if (shown->plan_count < CHOIR__WATCH_PLANS)
        return shown->plan_count++;
    while (shown->next_plan < CHOIR__WATCH_PLANS)
        if (is_gone(shown->plans[shown->next_plan++]->path))
            return shown->next_plan - 1;
    shown->counts.plans_left_out++;
    return -1;
}

static void add_plan(void *arg, const char *path, const struct stat *file)
{
    choir__watch_shown *shown = arg;
    for (int i = 0; i < shown->plan_count; i++) {
        const choir__watch_plan *p = shown->plans[i];
        if (!strcmp(p->path, path) || (p->inode == file->st_ino && p->device == file->st_dev &&
                                          is_at(p->path, p->device, p->inode)))
            return;
    }
    const int at = place_for_plan(shown);
    if (at < 0)
        return;
    choir__watch_plan *made = choir__watch_plan_new(path, at), *gone = shown->plans[at];
    made->device = file->st_dev;
    made->inode = file->st_ino;
    made->version = gone ? gone->version : 0; /* readers wait for the next one */
    choir__watch_plan_free(gone);
    shown->plans[at] = made;
}

void choir__watch_shown_find(choir__watch_shown *shown, char *const *places, int count)
{
    const finders finds = {.run = add_run, .study = add_study, .plan = add_plan, .arg = shown};
    shown->counts = (choir__watch_counts){0};
    shown->next_run = shown->next_study = shown->next_plan = 0;
    for (int i = 0; i < count; i++)
        if (choir__watch_is_storage(places[i]))
            add_storage(shown, places[i]);
        else
            shown->counts.folders_left_out += search_place(places[i], &finds);
    shown->counts.runs = shown->run_count;
    shown->counts.studies = shown->study_count;
    shown->counts.plans = shown->plan_count;
}

void choir__watch_shown_news(
    choir__watch_shown *shown, choir__watch_told *told, choir__text_buffer *out)
{
    for (int i = 0; i < shown->study_count && !out->used; i++) {
        choir__watch_study_look(shown->studies[i]);
        if (told->studies[i] != shown->studies[i]->version && shown->studies[i]->news.used)
            choir__text_buffer_put(out, shown->studies[i]->news.bytes);
        told->studies[i] = shown->studies[i]->version;
    }
    for (int i = 0; i < shown->plan_count && !out->used; i++) {
        choir__watch_plan_look(shown->plans[i]);
        if (told->plans[i] != shown->plans[i]->version && shown->plans[i]->news.used)
            choir__text_buffer_put(out, shown->plans[i]->news.bytes);
        told->plans[i] = shown->plans[i]->version;
    }
}

void choir__watch_shown_free(choir__watch_shown *shown)
{
    for (int i = 0; i < shown->run_count; i++)
        choir__watch_run_free(shown->runs[i]);
    for (int i = 0; i < shown->study_count; i++)
        choir__watch_study_free(shown->studies[i]);
    for (int i = 0; i < shown->plan_count; i++)
        choir__watch_plan_free(shown->plans[i]);
}
