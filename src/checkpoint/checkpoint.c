/* Checkpoint folders: whole or not at all.
 *
 * Each moment of a save leaves one complete checkpoint under `latest`: the new folder is
 * finished and on the disk before it gets its name, and a link moves by one rename. Saving a
 * step that is there already exchanges the two folders at once; where the file system
 * cannot, the old one is .old-STEP for a moment, and readers and the next save know to look
 * there. */
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/file.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "nn/models/config.h"

/* --- folders --- */

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

static bool exists_in(const char *folder, const char *name)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    bool found = lstat(path, &info) == 0;
    free(path);
    return found;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Makes a folder and those above it. */
static choir_status make_folders(const char *path)
{
    choir_status status = CHOIR_OK;
    char *part = choir__strdup(path);
    for (char *at = part; *at && status == CHOIR_OK; at++) {
        char *end = at + strcspn(at, "/"), kept = *end;
        if (end == at)
            continue;
        *end = '\0';
        if (mkdir(part, 0777) != 0 && !is_folder(part))
            status = choir__error(CHOIR_ERR_IO, "cannot make the folder %s: %s", part,
                strerror(errno == EEXIST ? ENOTDIR : errno));
        *end = kept;
        at = end - 1;
    }
    free(part);
    return status;
}

/* Calls each(dir, name, arg) for every entry. */
static void walk(
    const char *dir, void (*each)(const char *dir, const char *name, void *arg), void *arg)
{
    DIR *stream = opendir(dir);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)))
        each(dir, entry->d_name, arg);
    if (stream)
        closedir(stream);
}

static void unlink_ours(const char *dir, const char *name, void *arg)
{
    (void)arg;
    if (!starts_with(name, CHOIR__MODEL_FILE) && !starts_with(name, CHOIR__OPTIM_FILE) &&
        !starts_with(name, CHOIR__TOKENIZER_FILE) && !starts_with(name, CHOIR__CONFIG_FILE) &&
        !starts_with(name, CHOIR__STATE_FILE))
        return;
    char *path = choir__format("%s/%s", dir, name);
    unlink(path);
    free(path);
}

/* Removes a checkpoint's folder; one that holds anything else stays, with that. The state
 * goes first, so that half of a checkpoint never looks like a whole one. */
static void remove_folder(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return;
    char *state = choir__format("%s/%s", path, CHOIR__STATE_FILE);
    unlink(state);
    free(state);
    walk(path, unlink_ours, NULL);
    rmdir(path);
}

/* --- leftovers and old steps --- */

static void clean_entry(const char *dir, const char *name, void *arg)
{
    (void)arg;
    char *path = choir__format("%s/%s", dir, name);
    if (starts_with(name, ".new-"))
        remove_folder(path);
    if (starts_with(name, ".link-"))
        unlink(path);
    if (starts_with(
            name, ".old-step-")) { /* killed between taking the old away and the new in */
        char *step = choir__format("%s/%s", dir, name + strlen(".old-"));
        if (is_folder(step) || rename(path, step) != 0)
            remove_folder(path);
        free(step);
    }
    free(path);
}

/* What links name, "" for one that is not there. */
typedef struct links {
    char latest[NAME_MAX + 1], best[NAME_MAX + 1];
} links;

static void read_link(const char *dir, const char *name, char *target)
{
    char *path = choir__format("%s/%s", dir, name);
    ssize_t n = readlink(path, target, NAME_MAX);
    target[n > 0 ? n : 0] = '\0';
    free(path);
}

static void prune_entry(const char *dir, const char *name, void *arg)
{
    const links *kept = arg;
    const char *digits = name + strlen("step-");
    if (!starts_with(name, "step-") || !*digits || digits[strspn(digits, "0123456789")])
        return;
    if (!strcmp(name, kept->latest) || !strcmp(name, kept->best))
        return;
    char *path = choir__format("%s/%s", dir, name);
    remove_folder(path);
    free(path);
}

static void prune(const char *dir)
{
    links kept;
    read_link(dir, "latest", kept.latest);
    read_link(dir, "best", kept.best);
    walk(dir, prune_entry, &kept);
}

/* --- saving --- */

static choir_status save_tokenizer(const char *folder, const choir_tokenizer *tokenizer)
{
    char *path = choir__format("%s/%s", folder, CHOIR__TOKENIZER_FILE);
    choir_status status = choir_tokenizer_save(tokenizer, path);
    if (status == CHOIR_OK)
        status = choir__sync_path(path);
    free(path);
    return status;
}

/* What others' programs read the model by. */
static choir_status save_config(const char *folder, const char *model)
{
    char *json = choir__config_json(model);
    if (!json)
        return CHOIR_OK;
    char *path = choir__format("%s/%s", folder, CHOIR__CONFIG_FILE);
    choir_status status = choir__write_file(path, json, strlen(json));
    free(path);
    free(json);
    return status;
}

/* Everything but the names: a complete folder, on the disk. */
static choir_status fill(const char *folder, const choir__train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer)
{
    choir__named_list weights = {0}, moments = {0};
    char *model_path = choir__format("%s/%s", folder, CHOIR__MODEL_FILE);
    char *optim_path = choir__format("%s/%s", folder, CHOIR__OPTIM_FILE);
    choir_status status = choir__named_module(&weights, module);
    if (status == CHOIR_OK && mkdir(folder, 0777) != 0)
        status = choir__error(
            CHOIR_ERR_IO, "cannot make the folder %s: %s", folder, strerror(errno));
    if (status == CHOIR_OK)
        status = choir__named_save(&weights, model_path, true);
    choir__named_free(&weights);
    if (status == CHOIR_OK && optim) {
        choir_optim_visit(optim, choir__named_add, &moments);
        choir__named_sort(&moments);
        status = choir__named_save(&moments, optim_path, false);
    }
    choir__named_free(&moments);
    if (status == CHOIR_OK && tokenizer)
        status = save_tokenizer(folder, tokenizer);
    if (status == CHOIR_OK)
        status = save_config(folder, state->model);
    if (status == CHOIR_OK)
        status = choir__state_write(folder, state);
    if (status == CHOIR_OK)
        status = choir__sync_path(folder);
    free(optim_path);
    free(model_path);
    return status;
}

/* Gives the finished folder its name; what had it before is a leftover then. */
static choir_status install(const char *dir, const char *fresh, const char *step)
{
    char *target = choir__format("%s/%s", dir, step);
    char *aside = choir__format("%s/.old-%s", dir, step);
    bool done = rename(fresh, target) == 0;
    if (!done && (errno == EEXIST || errno == ENOTEMPTY))
        done = renameat2(AT_FDCWD, fresh, AT_FDCWD, target, RENAME_EXCHANGE) == 0 ||
               (rename(target, aside) == 0 && rename(fresh, target) == 0);
    choir_status status = done ? choir__sync_path(dir)
                               : choir__error(CHOIR_ERR_IO, "cannot rename %s to %s: %s", fresh,
                                     target, strerror(errno));
    free(aside);
    free(target);
    return status;
}

static choir_status move_link(const char *dir, const char *name, const char *step)
{
    choir_status status = CHOIR_OK;
    char *path = choir__format("%s/%s", dir, name);
    char *temp = choir__format("%s/.link-%ld", dir, (long)getpid());
    if (symlink(step, temp) != 0 || rename(temp, path) != 0) {
        status =
            choir__error(CHOIR_ERR_IO, "cannot make the link %s: %s", path, strerror(errno));
        unlink(temp);
    }
    free(temp);
    free(path);
    return status;
}

/* One save at a time: a second would remove the first one's work. A lock dies with its
 * process. */
static choir_status lock_folder(const char *dir, int *fd)
{
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return choir__error(
            CHOIR_ERR_IO, "cannot open the folder %s: %s", dir, strerror(errno));
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return choir__error(CHOIR_ERR_IO,
            "%s: another process is saving a checkpoint there; give each run a folder of its own",
            dir);
    return CHOIR_OK; /* file systems without locks do without */
}

static choir_status save_locked(const char *dir, const choir__train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer, bool best)
{
    char *fresh = choir__format("%s/.new-%ld", dir, (long)getpid());
    char *step = choir__format("step-%08lld", (long long)state->step);
    walk(dir, clean_entry, NULL);
    choir_status status = fill(fresh, state, module, optim, tokenizer);
    if (status == CHOIR_OK)
        status = install(dir, fresh, step);
    if (status != CHOIR_OK && exists_in(dir, "latest")) {
        char *message =
            choir__format("%s; the checkpoint before is untouched", choir_error_message());
        choir__set_message(message);
        free(message);
    }
    if (status == CHOIR_OK)
        status = move_link(dir, "latest", step);
    if (status == CHOIR_OK && best)
        status = move_link(dir, "best", step);
    if (status == CHOIR_OK)
        status = choir__sync_path(dir);
    if (status == CHOIR_OK)
        prune(dir);
    walk(dir, clean_entry, NULL);
    free(step);
    free(fresh);
    return status;
}

choir_status choir__checkpoint_save(const char *dir, const choir__train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer, bool best)
{
    int lock = -1;
    if (state->step < 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "checkpoint: step %lld", (long long)state->step);
    choir_status status = make_folders(dir);
    if (status == CHOIR_OK)
        status = lock_folder(dir, &lock);
    if (status == CHOIR_OK)
        status = save_locked(dir, state, module, optim, tokenizer, best);
    if (lock >= 0)
        close(lock);
    return status;
}

/* --- finding --- */

static bool is_weights_file(const char *path)
{
    struct stat info;
    size_t length = strlen(path), end = strlen(".safetensors");
    return length > end && !strcmp(path + length - end, ".safetensors") &&
           stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Where a path leads, links followed; also while a save has its step aside. */
static choir_status resolve(const char *path, char *found)
{
    char target[PATH_MAX];
    if (realpath(path, found))
        return CHOIR_OK;
    int error = errno;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (error == ENOENT && n > 0) {
        const char *slash = strrchr(path, '/');
        target[n] = '\0';
        char *aside =
            choir__format("%.*s.old-%s", slash ? (int)(slash + 1 - path) : 0, path, target);
        char *there = realpath(aside, found);
        free(aside);
        return there ? CHOIR_OK
                     : choir__error(
                           CHOIR_ERR_IO, "%s points to %s, which is not there", path, target);
    }
    return choir__error(CHOIR_ERR_IO, "there is no checkpoint %s: %s", path, strerror(error));
}

choir_status choir__checkpoint_find(const char *path, char *found)
{
    choir_status status = resolve(path, found);
    if (status != CHOIR_OK || is_weights_file(found))
        return status;
    if (exists_in(found, "latest")) {
        char *latest = choir__format("%s/latest", found);
        status = resolve(latest, found);
        if (status == CHOIR_OK && !exists_in(found, CHOIR__STATE_FILE))
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s leads to %s, which is incomplete: it has no state.json", latest, found);
        free(latest);
        return status;
    }
    if (exists_in(found, CHOIR__STATE_FILE))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s is no checkpoint: it has neither latest, state.json nor is it a .safetensors file",
        path);
}

/* --- loading --- */

static choir_status no_state(const char *path)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s has weights alone, no training state: a checkpoint's folder is needed", path);
}

choir_status choir__checkpoint_state(const char *folder, choir__train_state *state)
{
    json_t *files = NULL;
    choir__train_state read;
    if (is_weights_file(folder))
        return no_state(folder);
    choir_status status = choir__state_read(folder, &read, &files);
    if (status == CHOIR_OK)
        status = choir__state_verify(folder, files, NULL);
    if (status == CHOIR_OK)
        *state = read;
    json_decref(files);
    return status;
}

/* One file of the folder: verified, opened, and matched with the list. Since it is whole,
 * what does not fit was made for something else: made_for says for what. */
static choir_status match_file(const char *folder, const json_t *files, const char *name,
    choir__named_list *list, const char *what, const char *made_for, choir__st_file **file)
{
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = choir__state_verify(folder, files, name);
    if (status == CHOIR_OK)
        status = choir__st_open(path, file);
    if (status == CHOIR_OK) {
        bool weights = !strcmp(name, CHOIR__MODEL_FILE);
        status = choir__named_match(list, *file, path, what, weights);
        if (status == CHOIR_ERR_FORMAT) {
            char *message = choir__format("%s; the checkpoint was made with %s '%s'",
                choir_error_message(), what, made_for);
            choir__set_message(message);
            free(message);
        }
    }
    free(path);
    return status;
}

choir_status choir__checkpoint_load(
    const char *folder, choir_module *module, choir_optim *optim)
{
    choir__train_state state;
    json_t *files = NULL;
    choir__st_file *model_file = NULL, *optim_file = NULL;
    choir__named_list weights = {0}, moments = {0};
    if (is_weights_file(folder))
        return optim ? no_state(folder) : choir_load(module, folder);
    choir_status status = choir__state_read(folder, &state, &files);
    if (status == CHOIR_OK)
        status = choir__named_module(&weights, module);
    if (status == CHOIR_OK)
        status = match_file(
            folder, files, CHOIR__MODEL_FILE, &weights, "model", state.model, &model_file);
    if (status == CHOIR_OK && optim) {
        choir_optim_visit(optim, choir__named_add, &moments);
        choir__named_sort(&moments);
        status = match_file(folder, files, CHOIR__OPTIM_FILE, &moments, "optimizer",
            state.optimizer, &optim_file);
    }
    if (status == CHOIR_OK)
        status = choir__named_restore(&weights);
    if (status == CHOIR_OK)
        status = choir__named_restore(&moments);
    if (status == CHOIR_OK && optim)
        choir_optim_restore(optim, state.optimizer_steps);
    choir__st_close(optim_file);
    choir__st_close(model_file);
    choir__named_free(&moments);
    choir__named_free(&weights);
    json_decref(files);
    return status;
}

choir_status choir__checkpoint_tokenizer(const char *folder, choir_tokenizer **tokenizer)
{
    choir__train_state state;
    json_t *files = NULL;
    *tokenizer = NULL;
    if (is_weights_file(folder))
        return CHOIR_OK;
    choir_status status = choir__state_read(folder, &state, &files);
    if (status == CHOIR_OK && json_object_get(files, CHOIR__TOKENIZER_FILE)) {
        char *path = choir__format("%s/%s", folder, CHOIR__TOKENIZER_FILE);
        status = choir__state_verify(folder, files, CHOIR__TOKENIZER_FILE);
        if (status == CHOIR_OK)
            status = choir_tokenizer_load(path, tokenizer);
        free(path);
    }
    json_decref(files);
    return status;
}
