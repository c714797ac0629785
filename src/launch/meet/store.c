/* The meeting of ranks in a store that rank 0 serves.
 *
 *   meet/head       by rank 0: version, world size, digest of the job's name, its member line
 *   meet/rank/R     the member line of rank R: the first process to claim the rank
 *   meet/fault      the first failure that a rank found, in words
 *   meet/lost       last will of every rank: it died
 *   meet/outcome    by rank 0, for all: "go", the job's secret and all members; or the fault
 *   meet/ready/R    rank R has read the outcome
 *   meet/met        by rank 0: "go", all are ready; or the fault of one that was not
 *   meet/others     number of ranks of other jobs that came
 *
 * Rank 0 alone decides, so all ranks end with the same sentence: it waits for every rank's
 * meet/rank, and checks meet/fault and meet/lost ten times a second. On a failure it stays
 * until the others have read it, or a few seconds.
 *
 * The server lives as long as the meeting. A rank that comes for the job's next group may call
 * it before rank 0 has closed it: it finds its own name there, and calls again. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/board/board.h"
#include "launch/meet/meet.h"

static const double look_s = 0.1; /* how often rank 0 checks for failures */
static const double grace_s = 3;  /* how late rank 0 may be in naming missing ranks */

enum { TEXT = CHOIR__MEMBER_TEXT, SECRET = 16 };

/* --- texts in the store --- */

static const char *key_of(const char *what, int rank, char key[32])
{
    snprintf(key, 32, "meet/%s/%d", what, rank);
    return key;
}

static choir_status put(choir__joining *j, const char *key, const char *text)
{
    return choir_store_set(j->meeting->store, key, text, strlen(text));
}

/* Returns the key's current value, or NULL. */
static char *look(choir__joining *j, const char *key)
{
    char *text = NULL;
    return choir_store_get(j->meeting->store, key, 0, &text, NULL) != CHOIR_OK ? NULL : text;
}

/* Explains a failure of the store itself: it is rank 0's. */
static choir_status of_store(choir__joining *j, choir_status status)
{
    choir__member who;
    char name[128] = "rank 0";
    if (choir__member_read(j->root, &who))
        snprintf(name, sizeof name, "rank 0 (pid %d on %s)", who.pid, who.host);
    if (status == CHOIR_ERR_TIMEOUT)
        return choir__error(
            status, "%s at %s stopped answering while the group was meeting", name, j->where);
    if (status == CHOIR_ERR_PEER_LOST)
        return choir__error(
            status, "%s at %s died or gave up while the group was meeting", name, j->where);
    return status;
}

/* Makes the sentence every rank's, unless another came first; then this rank adopts that
 * one. */
static choir_status fault(choir__joining *j, choir_status status, const char *sentence)
{
    char *text = choir__format("%d %s", (int)status, sentence), *now = NULL, *words;
    if (choir_store_compare_set(j->meeting->store, "meet/fault", NULL, text, &now) !=
            CHOIR_OK ||
        !now) {
        free(text);
        return choir__error(status, "%s", sentence);
    }
    status = (choir_status)strtol(now, &words, 10);
    choir__error(status, "%s", *words ? words + 1 : words);
    free(text);
    free(now);
    return status < 0 ? status : CHOIR_ERR_INTERNAL;
}

/* Names the ranks r whose meet/WHAT/r is missing, and returns their number. */
static int name_missing(choir__joining *j, const char *what, char names[TEXT])
{
    int missing = 0, named = 0, world = j->meeting->world;
    size_t used = 0;
    char key[32];
    names[0] = '\0';
    for (int r = 0; r < world; r++) {
        char *text = look(j, key_of(what, r, key));
        if (!text && ++missing && used < TEXT - 100) {
            used += (size_t)snprintf(names + used, TEXT - used, named++ ? ", %d" : "%d", r);
        }
        free(text);
    }
    if (missing > named)
        snprintf(names + used, TEXT - used, " and %d more", missing - named);
    return missing;
}

static choir_status never_came(choir__joining *j)
{
    char names[TEXT], sentence[2 * TEXT + 160], strangers[128] = "";
    int missing = name_missing(j, "rank", names);
    choir_store_server *server = j->meeting->server;
    choir__store_failed failed = {0};
    if (server)
        failed = choir__store_failures(server);
    char *others = look(j, "meet/others");
    if (others)
        snprintf(strangers, sizeof strangers,
            " %.19s caller%s to another job, by CHOIR_JOB: give each job its own port", others,
            strcmp(others, "1") ? "s belonged" : " belonged");
    else if (failed.keys)
        snprintf(strangers, sizeof strangers,
            " %ld caller%s turned away: give all ranks the same key file, or none", failed.keys,
            failed.keys == 1 ? " was" : "s were");
    else if (failed.strangers)
        snprintf(strangers, sizeof strangers,
            " %ld caller%s no ranks: another program or user calls this port", failed.strangers,
            failed.strangers == 1 ? " was" : "s were");
    free(others);
    if (!missing)
        snprintf(sentence, sizeof sentence,
            "all %d ranks came to %s, and rank 0 did not continue within %g s",
            j->meeting->world, j->where, j->meeting->timeout_s);
    else
        snprintf(sentence, sizeof sentence,
            "rank%s %s of %d never came to %s within %g s: were all ranks started, and can "
            "they reach it?%s",
            missing == 1 ? "" : "s", names, j->meeting->world, j->where, j->meeting->timeout_s,
            strangers);
    return fault(j, CHOIR_ERR_TIMEOUT, sentence);
}

static choir_status went_silent(choir__joining *j)
{
    char names[TEXT], sentence[2 * TEXT];
    int missing = name_missing(j, "ready", names);
    snprintf(sentence, sizeof sentence,
        "rank%s %s of %d came to %s and then fell silent: %s stopped?", missing == 1 ? "" : "s",
        names, j->meeting->world, j->where,
        missing == 1 ? "was its process" : "were their processes");
    return fault(j, CHOIR_ERR_TIMEOUT, sentence);
}

/* --- arriving --- */

static void digest_of(const char *job, char hex[2 * SECRET + 1])
{
    unsigned char hash[SECRET];
    static const unsigned char purpose[] = "choir job name";
    snprintf(hex, 2 * SECRET + 1, "-");
    if (!job || !*job)
        return;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)job, strlen(job), purpose,
        sizeof purpose - 1);
    sodium_bin2hex(hex, 2 * SECRET + 1, hash, sizeof hash);
}

static choir_status announce(choir__joining *j, const char *self)
{
    char digest[2 * SECRET + 1], text[2 * TEXT];
    digest_of(j->job, digest);
    snprintf(text, sizeof text, "%s %d %s %s", CHOIR_VERSION, j->meeting->world, digest, self);
    return put(j, "meet/head", text);
}

/* A rank of another job leaves, and this job's ranks continue without it. */
static choir_status of_another_job(choir__joining *j, bool theirs, bool mine)
{
    choir__member root;
    int64_t others;
    if (!choir__member_read(j->root, &root))
        root = (choir__member){.host = "?"};
    (void)!choir_store_add(j->meeting->store, "meet/others", 1, &others);
    return choir__error(CHOIR_ERR_MISMATCH,
        "rank 0 at %s (pid %d on %s) belongs to another job (%s): choose another port or file",
        j->where, root.pid, root.host,
        !mine     ? "it has a CHOIR_JOB, and this rank has none"
        : !theirs ? "it has no CHOIR_JOB, and this rank has one"
                  : "its CHOIR_JOB differs");
}

/* Checks that rank 0 has the same version, job and world size as this rank. */
static choir_status compare(choir__joining *j)
{
    char version[32], digest[40], mine[2 * SECRET + 1], sentence[TEXT], *head = NULL;
    int world, at = 0;
    choir__meeting *m = j->meeting;
    double left = j->deadline - choir__now();
    choir_status status =
        choir_store_get(m->store, "meet/head", left > 0 ? left : 0, &head, NULL);
    if (status != CHOIR_OK)
        return of_store(j, status);
    if (sscanf(head, "%31s %d %39s %n", version, &world, digest, &at) != 3 || !at) {
        free(head);
        return choir__error(CHOIR_ERR_MISMATCH, "the store at %s is not a group's", j->where);
    }
    snprintf(j->root, sizeof j->root, "%s", head + at);
    free(head);
    digest_of(j->job, mine);
    if (strcmp(version, CHOIR_VERSION) != 0) {
        snprintf(sentence, sizeof sentence,
            "rank %d runs Choir %s and rank 0 Choir %s: use the same release everywhere",
            m->rank, CHOIR_VERSION, version);
        return fault(j, CHOIR_ERR_MISMATCH, sentence);
    }
    if (strcmp(digest, mine) != 0)
        return of_another_job(j, digest[0] != '-', mine[0] != '-');
    if (world == m->world)
        return CHOIR_OK;
    snprintf(sentence, sizeof sentence,
        "a rank %d of %d came to %s, where rank 0 counts %d ranks: WORLD_SIZE must be the "
        "same everywhere",
        m->rank, m->world, j->where, world);
    return fault(j, CHOIR_ERR_MISMATCH, sentence);
}

/* Adopts the fault that rank 0 has published. */
static choir_status told(const char *outcome)
{
    char *words;
    long status = strtol(outcome, &words, 10);
    choir__error((choir_status)status, "%s", *words ? words + 1 : words);
    return status < 0 ? (choir_status)status : CHOIR_ERR_INTERNAL;
}

static bool is_go(const char *outcome)
{
    return !strncmp(outcome, "go ", 3);
}

static choir_status two_of_us(choir__joining *j, const char *other, const choir__member *self)
{
    char sentence[TEXT];
    choir__member o;
    if (!choir__member_read(other, &o))
        return choir__error(CHOIR_ERR_MISMATCH, "the store at %s is not a group's", j->where);
    snprintf(sentence, sizeof sentence,
        "two processes say they are rank %d: pid %d on %s and pid %d on %s; if they are of two "
        "jobs, give each its own port or CHOIR_JOB",
        j->meeting->rank, o.pid, o.host, self->pid, self->host);
    return fault(j, CHOIR_ERR_MISMATCH, sentence);
}

static bool is_us(const char *text, const choir__member *self)
{
    choir__member m;
    return text && choir__member_read(text, &m) && m.pid == self->pid &&
           !strcmp(m.machine, self->machine);
}

/* Returns true if the member was a process of this machine that has ended: a script starts the
 * program again, while rank 0's store still stands. */
static bool is_past(const char *text, const choir__member *self)
{
    choir__member m;
    if (!text || !choir__member_read(text, &m) || strcmp(m.machine, self->machine) != 0)
        return false;
    char state = choir__process_state(m.pid);
    return !state || state == 'Z';
}

/* Claims this rank's number. *again: this rank has already been at this meeting, which is
 * over. */
static choir_status claim(choir__joining *j, const choir__member *self, bool *again)
{
    char key[32], mine[TEXT], will[TEXT + 16], *now = NULL;
    choir_store *store = j->meeting->store;
    choir_status status = CHOIR_OK;
    char *outcome = look(j, "meet/outcome");
    key_of("rank", j->meeting->rank, key);
    choir__member_write(self, mine);
    snprintf(will, sizeof will, "%d %s", j->meeting->rank, mine);
    if (outcome && !is_go(outcome)) {
        status = told(outcome);
    } else if (outcome) {
        now = look(j, key);
        *again = is_us(now, self) || is_past(now, self);
        if (!now) /* rank 0 has just closed it */
            status = of_store(j, CHOIR_ERR_PEER_LOST);
        else if (!*again)
            status = two_of_us(j, now, self);
    } else {
        status = choir_store_compare_set(store, key, NULL, mine, &now);
        j->joined = status == CHOIR_OK;
        bool taken = j->joined && strcmp(now, mine) != 0;
        if (status == CHOIR_OK && !taken)
            status = choir_store_will(store, "meet/lost", will, strlen(will));
        status = taken ? two_of_us(j, now, self) : of_store(j, status);
    }
    free(outcome);
    free(now);
    return status;
}

/* --- continuing --- */

static choir_status take_note(choir__joining *j, const char *go)
{
    char key[32];
    choir__meeting *m = j->meeting;
    if (!choir__members_read(m, go))
        return choir__error(CHOIR_ERR_MISMATCH, "the store at %s is not a group's", j->where);
    return of_store(j, put(j, key_of("ready", m->rank, key), ""));
}

/* --- rank 0 --- */

/* Returns a failure that another rank found, or a rank's death; CHOIR_OK: none so far. */
static choir_status trouble(choir__joining *j, bool faults)
{
    char *text = faults ? look(j, "meet/fault") : NULL, *lost = NULL;
    choir_status status = CHOIR_OK;
    choir__member who;
    if (text) {
        status = told(text);
    } else if ((lost = look(j, "meet/lost"))) {
        char sentence[TEXT];
        int rank = 0, at = 0;
        if (sscanf(lost, "%d %n", &rank, &at) != 1 || !at ||
            !choir__member_read(lost + at, &who))
            who = (choir__member){.host = "?"};
        snprintf(sentence, sizeof sentence,
            "rank %d (pid %d on %s) died or gave up while the group was meeting", rank, who.pid,
            who.host);
        status = fault(j, CHOIR_ERR_PEER_LOST, sentence);
    }
    free(text);
    free(lost);
    return status;
}

/* Waits until meet/WHAT/R of all ranks R is there. */
static choir_status await_all(choir__joining *j, const char *what, double deadline)
{
    int world = j->meeting->world;
    bool coming = !strcmp(what, "rank");
    char key[32];
    const char **keys = choir__calloc((size_t)world, sizeof *keys);
    choir_status status = CHOIR_OK;
    for (int r = 0; r < world; r++)
        keys[r] = choir__strdup(key_of(what, r, key));
    for (;;) {
        double left = deadline - choir__now();
        status = choir_store_wait(j->meeting->store, keys, world,
            left > look_s ? look_s
            : left > 0    ? left
                          : 0);
        if (status != CHOIR_ERR_TIMEOUT)
            break;
        status = trouble(j, coming);
        if (status != CHOIR_OK)
            break;
        if (choir__now() >= deadline) {
            status = coming ? never_came(j) : went_silent(j);
            break;
        }
    }
    for (int r = 0; r < world; r++)
        free((char *)keys[r]);
    free(keys);
    return status;
}

static choir_status write_go(choir__joining *j)
{
    int world = j->meeting->world;
    unsigned char secret[SECRET];
    char key[32], hex[2 * SECRET + 1];
    choir_status status = CHOIR_OK;
    size_t room = (size_t)world * TEXT + 100, used;
    char *all = choir__alloc(room);
    randombytes_buf(secret, sizeof secret);
    sodium_bin2hex(hex, sizeof hex, secret, sizeof secret);
    used = (size_t)snprintf(all, room, "go %s", hex);
    for (int r = 0; r < world && status == CHOIR_OK; r++) {
        char *text = NULL;
        status = choir_store_get(j->meeting->store, key_of("rank", r, key), 0, &text, NULL);
        if (status == CHOIR_OK)
            used += (size_t)snprintf(all + used, room - used, "\n%.*s", TEXT - 2, text);
        free(text);
    }
    if (status == CHOIR_OK)
        status = put(j, "meet/outcome", all);
    if (status == CHOIR_OK)
        status = take_note(j, all);
    sodium_memzero(all, room);
    free(all);
    return status;
}

/* Publishes a failure, and stays until the others have read it. */
static void tell_all(choir__joining *j, choir_status status)
{
    char *message = choir__strdup(choir__message());
    char *text = choir__format("%d %s", (int)status, choir__plain_message(j->meeting->rank));
    if (put(j, "meet/outcome", text) == CHOIR_OK && put(j, "meet/met", text) == CHOIR_OK)
        choir__meeting_stay(j->meeting, grace_s);
    choir__set_message(message);
    free(message);
    free(text);
}

choir_status choir__meet_lead(choir__joining *j, const choir__member *self)
{
    char mine[TEXT];
    bool again = false;
    choir__member_write(self, mine);
    choir_status status = announce(j, mine);
    if (status == CHOIR_OK)
        status = claim(j, self, &again);
    if (status == CHOIR_OK)
        status = await_all(j, "rank", j->deadline);
    if (j->all_joined)
        j->all_joined(j);
    if (status == CHOIR_OK)
        status = write_go(j);
    if (status == CHOIR_OK) {
        double soon = choir__now() + grace_s;
        status = await_all(j, "ready", j->deadline > soon ? j->deadline : soon);
    }
    if (status == CHOIR_OK)
        status = put(j, "meet/met", "go");
    if (status != CHOIR_OK)
        tell_all(j, status);
    return status;
}

/* --- the others --- */

/* Waits until all ranks are ready; a rank that has died since is named here. Rank 0 may have
 * left in the meantime, with its store; that is no failure of the meeting. */
static choir_status all_ready(choir__joining *j)
{
    char *met = NULL;
    double left = j->deadline + grace_s - choir__now();
    choir_status status = CHOIR_OK;
    if (choir_store_get(j->meeting->store, "meet/met", left > 0 ? left : 0, &met, NULL) ==
            CHOIR_OK &&
        strcmp(met, "go") != 0)
        status = told(met);
    free(met);
    return status;
}

choir_status choir__meet_follow(choir__joining *j, const choir__member *self, bool *again)
{
    char *outcome = NULL;
    choir_status status = compare(j);
    if (status == CHOIR_OK)
        status = claim(j, self, again);
    if (status != CHOIR_OK || *again)
        return status;
    double left = j->deadline + grace_s - choir__now();
    status =
        choir_store_get(j->meeting->store, "meet/outcome", left > 0 ? left : 0, &outcome, NULL);
    if (status == CHOIR_ERR_TIMEOUT) {
        char *head = look(j, "meet/head");
        status = head ? never_came(j) : of_store(j, status);
        free(head);
    } else if (status != CHOIR_OK) {
        status = of_store(j, status);
    } else {
        status = is_go(outcome) ? take_note(j, outcome) : told(outcome);
        if (status == CHOIR_OK)
            status = all_ready(j);
    }
    free(outcome);
    return status;
}
