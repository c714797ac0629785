/* Optuna's journal files: journal:FILE. Lines are appended, and never changed.
 *
 * A writer holds a lock, the symbolic link FILE.lock, as Optuna does; this works on network
 * file systems, too. Under the lock the file is read to its end, so the lines it appends follow
 * from all that is there. A writer that was killed leaves a part of a line, which the next one
 * cuts off, or its lock, which is broken when the file has not grown for 30 seconds. */
#include "tune/storage/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tune/storage/backend.h"

static const double GRACE_S = 30;

typedef struct journal {
    choir__study_backend base;
    char *lock;
    int fd;
    off_t read; /* bytes of whole lines that the state holds */
    int64_t lines;
    choir__journal state;
    int64_t study; /* its id */
    FILE *out;     /* lines to append */
    bool ends;     /* they wait for the disk */
} journal;

static choir_status failed(const journal *j, const char *what)
{
    return choir__error(
        CHOIR_ERR_IO, "cannot %s %s: %s", what, j->base.place, choir__why(errno));
}

static double wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- reading --- */

static choir_status apply_lines(journal *j, char *text)
{
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = '\0';
        j->lines++;
        if (!choir__journal_apply(&j->state, text))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s, line %lld: expected a line of Optuna's journals, got '%.40s'",
                j->base.place, (long long)j->lines, text);
        j->read += end + 1 - text;
    }
    return CHOIR_OK;
}

/* Reads what others have appended; a part of a line is left for later. */
static choir_status catch_up(journal *j)
{
    struct stat about;
    if (fstat(j->fd, &about))
        return failed(j, "read");
    if (about.st_size <= j->read)
        return CHOIR_OK;
    size_t bytes = (size_t)(about.st_size - j->read);
    char *text = choir__alloc(bytes + 1);
    ssize_t n = pread(j->fd, text, bytes, j->read);
    text[n > 0 ? n : 0] = '\0';
    choir_status status = n < 0 ? failed(j, "read") : apply_lines(j, text);
    free(text);
    return status;
}

/* --- the lock --- */

/* Waits for the lock. The link leads to the file, whose growth is its holder's sign of life. */
static choir_status lock(journal *j)
{
    const char *name = strrchr(j->base.place, '/');
    double since = choir__now();
    struct stat last = {0}, about;
    for (long wait_ns = 1000000; symlink(name ? name + 1 : j->base.place, j->lock);) {
        if (errno != EEXIST)
            return failed(j, "lock");
        if (!fstat(j->fd, &about) && about.st_size != last.st_size)
            last = about, since = choir__now();
        if (choir__now() - since > GRACE_S) {
            unlink(j->lock);
            since = choir__now();
        }
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
        wait_ns = wait_ns < 50000000 ? 2 * wait_ns : wait_ns;
    }
    return CHOIR_OK;
}

static choir_status append(journal *j, const char *text, size_t bytes)
{
    struct stat about;
    if (fstat(j->fd, &about) || (about.st_size > j->read && ftruncate(j->fd, j->read)))
        return failed(j, "repair"); /* a part of a line, of a writer that was killed */
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(j->fd, text + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            choir_status status = failed(j, "write");
            (void)!ftruncate(j->fd, j->read);
            return status;
        }
        done += (size_t)n;
    }
    return j->ends && fdatasync(j->fd) ? failed(j, "write") : CHOIR_OK;
}

/* Under the lock: calls `compose`, which prints lines to j->out, and appends them. */
static choir_status transact(journal *j, void (*compose)(journal *, void *), void *arg)
{
    choir_status status = lock(j);
    if (status != CHOIR_OK)
        return status;
    char *text = NULL;
    size_t bytes = 0;
    off_t read = j->read;
    status = catch_up(j);
    if (status == CHOIR_OK) {
        read = j->read;
        j->ends = false;
        j->out = open_memstream(&text, &bytes);
        compose(j, arg);
        fclose(j->out);
        status = append(j, text, bytes);
    }
    unlink(j->lock);
    j->read = read + (status == CHOIR_OK ? (off_t)bytes : 0);
    if (status != CHOIR_OK) { /* the state is ahead of the file */
        choir__journal_clear(&j->state);
        j->read = j->lines = 0;
    }
    free(text);
    return status;
}

/* --- lines --- */

/* Returns a number as Python's JSON has it. */
static const char *real(char text[32], double x)
{
    if (isfinite(x))
        snprintf(text, 32, "%.17g", x);
    else
        snprintf(text, 32, "%s", isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
    return text;
}

static const char *now(char text[48])
{
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    size_t n = strftime(text, 48, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, 48 - n, ".%06ld+00:00", t.tv_nsec / 1000);
    return text;
}

static char *quoted(const char *text)
{
    json_t *string = json_stringn_nocheck(text, strlen(text));
    char *json = json_dumps(string, JSON_ENCODE_ANY);
    json_decref(string);
    return json;
}

/* Prints a line, and applies it; `members` is on the heap. */
static void put(journal *j, choir__journal_op op, char *members)
{
    char *line = choir__format(
        "{\"op_code\":%d,\"worker_id\":\"choir-%d\",%s}", (int)op, (int)getpid(), members);
    choir__journal_apply(&j->state, line);
    j->lines++;
    fprintf(j->out, "%s\n", line);
    free(line);
    free(members);
}

static void put_attribute(
    journal *j, int64_t id, bool of_trial, bool system, const char *key, const char *json)
{
    char *name = quoted(key);
    int op = (of_trial ? CHOIR__JOURNAL_TRIAL_USER : CHOIR__JOURNAL_STUDY_USER) + system;
    put(j, (choir__journal_op)op,
        choir__format("\"%s_id\":%lld,\"%s_attr\":{%s:%s}", of_trial ? "trial" : "study",
            (long long)id, system ? "system" : "user", name, json));
    free(name);
}

static void put_beat(journal *j, int64_t id)
{
    char text[32];
    put_attribute(j, id, true, true, CHOIR__BEAT_KEY, real(text, wall_s()));
}

/* --- changes --- */

static void begin_waiting(journal *j, const choir__change *c, int64_t id)
{
    char text[48];
    put(j, CHOIR__JOURNAL_STATE,
        choir__format("\"trial_id\":%lld,\"state\":0,\"values\":null,\"datetime_start\":\"%s\"",
            (long long)id, now(text)));
    for (int i = 0; i < c->param_count; i++) {
        char *name = quoted(c->params[i].name), *dist = quoted(c->params[i].dist);
        put(j, CHOIR__JOURNAL_PARAM,
            choir__format("\"trial_id\":%lld,\"param_name\":%s,\"param_value_internal\":%s,"
                          "\"distribution\":%s",
                (long long)id, name, real(text, c->params[i].value), dist));
        free(name);
        free(dist);
    }
    put_attribute(j, id, true, true, CHOIR__WORKER_KEY, c->worker);
    put_beat(j, id);
}

static void begin_new(journal *j, const choir__change *c)
{
    char *members = NULL, text[48];
    size_t bytes;
    FILE *out = open_memstream(&members, &bytes);
    fprintf(out,
        "\"study_id\":%lld,\"datetime_start\":\"%s\",\"state\":0,\"value\":null,"
        "\"values\":null,\"user_attrs\":{},\"intermediate_values\":{},\"distributions\":{",
        (long long)j->study, now(text));
    for (int i = 0; i < c->param_count; i++) {
        char *name = quoted(c->params[i].name), *dist = quoted(c->params[i].dist);
        fprintf(out, "%s%s:%s", i ? "," : "", name, dist);
        free(name);
        free(dist);
    }
    fprintf(out, "},\"params\":{");
    for (int i = 0; i < c->param_count; i++) {
        char *name = quoted(c->params[i].name);
        fprintf(out, "%s%s:%s", i ? "," : "", name, real(text, c->params[i].value));
        free(name);
    }
    fprintf(out, "},\"system_attrs\":{\"%s\":%s,\"%s\":%s%s}", CHOIR__WORKER_KEY, c->worker,
        CHOIR__BEAT_KEY, real(text, wall_s()),
        c->given ? ",\"" CHOIR__GIVEN_KEY "\":true" : "");
    fclose(out);
    put(j, CHOIR__JOURNAL_TRIAL, members);
}

static void end_trial(journal *j, const choir__change *c, int64_t id)
{
    char *values = choir__strdup("null"), text[48];
    for (int i = 0; i < c->value_count; i++) {
        char *more = i ? choir__format("%.*s,%s]", (int)strlen(values) - 1, values,
                             real(text, c->values[i]))
                       : choir__format("[%s]", real(text, c->values[i]));
        free(values);
        values = more;
    }
    put(j, CHOIR__JOURNAL_STATE,
        choir__format("\"trial_id\":%lld,\"state\":%d,\"values\":%s,\"datetime_complete\":"
                      "\"%s\"",
            (long long)id, c->state, values, now(text)));
    free(values);
    j->ends = true;
}

static void change_trial(journal *j, choir__change *c)
{
    const choir__journal_study *s = &j->state.study[j->study];
    bool begins = c->kind == CHOIR__CHANGE_BEGIN;
    if (begins && !c->waits && c->number == s->trials.count) {
        begin_new(j, c);
        c->lost = false;
        return;
    }
    if (c->number >= s->trials.count)
        return;
    const choir__record *r = &s->trials.at[c->number];
    int64_t id = s->ids[c->number];
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    bool ours = worker && c->worker && !strcmp(worker, c->worker); /* a repeated call */
    bool runs = r->state == CHOIR_TRIAL_RUNNING;
    char text[32];
    switch (c->kind) {
    case CHOIR__CHANGE_BEGIN:
        c->lost = !ours;
        if (c->waits && r->state == CHOIR__STORED_WAITING)
            begin_waiting(j, c, id), c->lost = false;
        break;
    case CHOIR__CHANGE_TAKE:
        c->lost = !ours;
        if (runs && worker && !strcmp(worker, c->former)) {
            put_attribute(j, id, true, true, CHOIR__WORKER_KEY, c->worker);
            put_beat(j, id);
            c->lost = false;
        }
        break;
    case CHOIR__CHANGE_REPORT:
        put(j, CHOIR__JOURNAL_REPORT,
            choir__format("\"trial_id\":%lld,\"step\":%lld,\"intermediate_value\":%s",
                (long long)id, (long long)c->step, real(text, c->values[0])));
        break;
    case CHOIR__CHANGE_ATTRIBUTE:
        put_attribute(j, id, true, c->attribute.system, c->attribute.key, c->attribute.json);
        break;
    case CHOIR__CHANGE_END:
        if (runs)
            end_trial(j, c, id);
        break;
    case CHOIR__CHANGE_BEAT: put_beat(j, id); break;
    case CHOIR__CHANGE_LEAVE:
        if (ours)
            put_attribute(j, id, true, true, CHOIR__WORKER_KEY, CHOIR__WORKER_LEFT);
        break;
    }
}

typedef struct batch {
    choir__change *const *changes;
    int count;
} batch;

static void compose_changes(journal *j, void *arg)
{
    const batch *b = arg;
    for (int i = 0; i < b->count; i++) {
        choir__change *c = b->changes[i];
        if (c->number >= 0)
            change_trial(j, c);
        else
            put_attribute(
                j, j->study, false, c->attribute.system, c->attribute.key, c->attribute.json);
    }
}

static choir_status write_journal(
    choir__study_backend *b, choir__change *const *changes, int count)
{
    batch all = {changes, count};
    return transact((journal *)(void *)b, compose_changes, &all);
}

/* --- the study --- */

static void compose_study(journal *j, void *arg)
{
    const choir__stored_study *s = arg;
    if (choir__journal_find(&j->state, s->name) >= 0)
        return;
    char *name = quoted(s->name), directions[4 * CHOIR_STUDY_OBJECTIVES] = "";
    for (int i = 0; i < s->objectives; i++)
        sprintf(directions + strlen(directions), "%s%d", i ? "," : "", s->most[i] ? 2 : 1);
    put(j, CHOIR__JOURNAL_STUDY,
        choir__format("\"study_name\":%s,\"directions\":[%s]", name, directions));
    free(name);
    j->ends = true;
}

static choir_status find_only(const journal *j, int64_t *id)
{
    char *names = NULL;
    for (int64_t i = 0; i < j->state.study_count; i++) {
        if (j->state.study[i].deleted)
            continue;
        *id = i;
        const char *name = j->state.study[i].about.name;
        char *more = names ? choir__format("%s, %s", names, name) : choir__strdup(name);
        free(names);
        names = more;
    }
    choir_status status = CHOIR_OK;
    if (names && strcmp(names, j->state.study[*id].about.name) != 0)
        status = choir__backend_several(&j->base, names);
    free(names);
    return status;
}

static choir_status study(choir__study_backend *b, bool create, choir__stored_study *s)
{
    journal *j = (journal *)(void *)b;
    int64_t id = -1;
    choir_status status = catch_up(j);
    if (status == CHOIR_OK && !s->name)
        status = find_only(j, &id);
    else if (status == CHOIR_OK)
        id = choir__journal_find(&j->state, s->name);
    if (status == CHOIR_OK && id < 0 && create) {
        status = transact(j, compose_study, s);
        if (status == CHOIR_OK)
            id = choir__journal_find(&j->state, s->name);
    }
    if (status != CHOIR_OK)
        return status;
    if (id < 0)
        return choir__backend_none(b, s->name);
    j->study = id;
    const choir__stored_study *from = &j->state.study[id].about;
    free(s->name);
    s->name = choir__strdup(from->name);
    s->objectives = from->objectives;
    memcpy(s->most, from->most, sizeof s->most);
    choir__attributes_free(&s->attributes);
    for (int i = 0; i < from->attributes.count; i++) {
        const choir__stored_attribute *a = &from->attributes.at[i];
        choir__attribute_set(&s->attributes, a->system, a->key, a->json);
    }
    return CHOIR_OK;
}

static choir_status load(choir__study_backend *b, int64_t from, choir__records *records)
{
    journal *j = (journal *)(void *)b;
    choir_status status = catch_up(j);
    if (status != CHOIR_OK)
        return status;
    const choir__journal_study *s = &j->state.study[j->study];
    double now_s = wall_s();
    for (int64_t i = from; i < s->trials.count; i++)
        choir__journal_copy(&s->trials.at[i], now_s, choir__records_add(records, i));
    return CHOIR_OK;
}

static void close_journal(choir__study_backend *b)
{
    journal *j = (journal *)(void *)b;
    if (j->fd >= 0)
        close(j->fd);
    choir__journal_clear(&j->state);
    free(j->lock);
    free(b->place);
    free(j);
}

static choir_status open_journal(const char *place, bool create, choir__study_backend **backend)
{
    journal *j = choir__calloc(1, sizeof *j);
    j->base = (choir__study_backend){&choir__backend_journal, choir__strdup(place)};
    j->lock = choir__format("%s.lock", place);
    j->fd = open(place, O_CLOEXEC | O_APPEND | (create ? O_RDWR | O_CREAT : O_RDONLY), 0666);
    choir_status status = j->fd < 0 ? failed(j, "open") : catch_up(j);
    if (status == CHOIR_OK)
        *backend = &j->base;
    else
        close_journal(&j->base);
    return status;
}

const choir__study_backend_ops choir__backend_journal = {
    .name = "journal",
    .open = open_journal,
    .study = study,
    .load = load,
    .write = write_journal,
    .close = close_journal,
};
