/* The runs and studies of the page, each at a place that readers know. A path is known by name
 * or by the folder that it leads to, since links may lead there twice; when all places are
 * taken, one whose folder is gone gives up its place. */
#include "cli/watch/shown.h"

#include <errno.h>
#include <string.h>

#include "cli/watch/search.h"

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

void choir__watch_shown_find(choir__watch_shown *shown, char *const *places, int count)
{
    const choir__watch_finds finds = {.run = add_run, .study = add_study, .arg = shown};
    shown->counts = (choir__watch_counts){0};
    shown->next_run = shown->next_study = 0;
    for (int i = 0; i < count; i++)
        if (choir__watch_is_storage(places[i]))
            add_storage(shown, places[i]);
        else
            shown->counts.folders_left_out += choir__watch_search(places[i], &finds);
    shown->counts.runs = shown->run_count;
    shown->counts.studies = shown->study_count;
}

void choir__watch_shown_free(choir__watch_shown *shown)
{
    for (int i = 0; i < shown->run_count; i++)
        choir__watch_run_free(shown->runs[i]);
    for (int i = 0; i < shown->study_count; i++)
        choir__watch_study_free(shown->studies[i]);
}
