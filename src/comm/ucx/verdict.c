/* One sentence for all ranks.
 *
 * A group has one key in the store for its failure. The first rank to find a failure writes the
 * sentence there, by compare-and-set; all others read it from there, at the latest at their
 * next check (wait.c: every 50 ms). A killed rank cannot write: its last will does, into a key
 * of the whole net, and the ranks that read it write the sentence.
 *
 * Which rank is late? A rank whose time is over cannot know: the rank that it waits for may
 * itself be waiting. So it asks: it writes a question instead of a sentence. Every waiting rank
 * answers with its call and the ranks that it waits for. After a moment the asker follows these
 * answers, starting from itself: ranks that it reaches and that gave none are late. If all gave
 * one, they wait for each other, in different calls or in a circle.
 *
 * Rank 0 keeps the store: after a failure it stays for a moment (choir__meeting_linger), so
 * that the others read the sentence there instead of finding rank 0 gone.
 *
 *     PREFIX/GROUP/fault      "?2" rank 2 asks; "-41 rank 3 ..." the verdict
 *     PREFIX/GROUP/waits/R    rank R's answer
 *     PREFIX/dead             a rank of the net: its last will */
#include "comm/ucx/ucx.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/flight/flight.h"

static const double answers_s = 1; /* time for ranks to answer; they check every 50 ms */
static const double agree_s = 0.3; /* time for ranks that see a failure at once */

/* An answer: the call, then one byte per rank of the group: awaited or not. */
typedef struct answer {
    choir__stamp stamp;
    char awaited[];
} answer;

/* --- the store --- */

/* A store that is slow is cut off or stopped; asking again would take as long. */
static void give_up_store(choir__ucx *g, choir_status status)
{
    g->net->store_lost = true;
    g->net->store_silent = status == CHOIR_ERR_TIMEOUT;
}

/* Returns the key's value; NULL: none, or the store is out of reach. */
static char *peek(choir__ucx *g, const char *key, size_t *bytes)
{
    char *value = NULL;
    if (!g->net->store || g->net->store_lost)
        return NULL;
    double since = choir__now();
    choir_status status = choir_store_get(g->net->store, key, 0, &value, bytes);
    if (status == CHOIR_OK)
        return value;
    if (status != CHOIR_ERR_TIMEOUT || choir__now() - since > 2)
        give_up_store(g, status);
    return NULL;
}

static const char *key_of(const choir__ucx *g, const char *what, char key[160])
{
    snprintf(key, 160, "%s/%s", g->prefix, what);
    return key;
}

static bool is_sentence(const char *value)
{
    return value && *value == '-';
}

static choir_status adopt(choir__ucx *g, const char *sentence)
{
    int status = 0, used = 0;
    if (sentence != g->sentence)
        snprintf(g->sentence, sizeof g->sentence, "%s", sentence);
    if (sscanf(sentence, "%d %n", &status, &used) < 1 || status >= 0)
        return choir__engine_fail(&g->base, CHOIR_ERR_PEER_LOST, "%s", sentence);
    return choir__engine_fail(&g->base, (choir_status)status, "%s", sentence + used);
}

static void tell_all(choir__ucx *g)
{
    for (int r = 0; r < g->base.world; r++)
        if (r != g->base.rank && !g->peers[r].left &&
            g->net->far[g->peers[r].net_rank].lost == UCS_OK)
            choir__ucx_tell(g, r, CHOIR__UCX_FAILED);
}

/* Agrees without a store: all ranks send their sentence, and adopt the lowest rank's. */
static void agree(choir__ucx *g)
{
    choir__ucx_net *net = g->net;
    double until = choir__now() + agree_s;
    pthread_mutex_lock(&net->lock);
    tell_all(g);
    while (choir__now() < until) {
        while (ucp_worker_progress(net->worker))
            ;
        pthread_mutex_unlock(&net->lock);
        poll(NULL, 0, 5);
        pthread_mutex_lock(&net->lock);
    }
    if (*g->told && g->told_by < g->base.rank)
        memcpy(g->sentence, g->told, sizeof g->told);
    pthread_mutex_unlock(&net->lock);
}

static bool telling(const choir__ucx *g)
{
    const choir__ucx_op *op = g->under_way;
    while (op && op->header.kind != CHOIR__UCX_FAILED)
        op = op->next;
    return op != NULL;
}

void choir__ucx_spread(choir__ucx *g)
{
    double until = choir__now() + agree_s;
    tell_all(g);
    while (telling(g) && choir__now() < until)
        ucp_worker_progress(g->net->worker);
}

choir_status choir__ucx_fail(choir__ucx *g, choir_status status, const char *format, ...)
{
    char key[160], text[sizeof g->base.message];
    va_list args;
    if (g->base.failed != CHOIR_OK)
        return g->base.failed;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(g->sentence, sizeof g->sentence, "%d %s", (int)status, text);
    key_of(g, "fault", key);
    char *there = peek(g, key, NULL);
    for (int i = 0; i < 10 && !is_sentence(there) && g->net->store && !g->net->store_lost;
         i++) {
        char *now = NULL; /* the key may hold a question, and another one may come in between */
        choir_status lost =
            choir_store_compare_set(g->net->store, key, there, g->sentence, &now);
        if (lost != CHOIR_OK)
            give_up_store(g, lost);
        free(there);
        there = now;
    }
    if (!is_sentence(there))
        agree(g);
    adopt(g, is_sentence(there) ? there : g->sentence);
    free(there);
    return g->base.failed;
}

bool choir__ucx_dead(choir__ucx *g, int rank)
{
    const choir__ucx_net *net = g->net;
    int net_rank = g->peers[rank].net_rank;
    bool closed = net->store_lost && !net->store_silent; /* rank 0 had the other end */
    return net->dead_rank == net_rank || (closed && net_rank == 0) ||
           choir__ucx_gone(&net->far[net_rank]);
}

/* --- questions and answers --- */

static void give_answer(choir__ucx *g, const bool *awaited)
{
    char key[160], what[32];
    size_t bytes = sizeof(answer) + (size_t)g->base.world;
    answer *a = choir__calloc(1, bytes);
    a->stamp = g->now;
    for (int r = 0; r < g->base.world; r++)
        a->awaited[r] = awaited[r];
    snprintf(what, sizeof what, "waits/%d", g->base.rank);
    choir_status lost = choir_store_set(g->net->store, key_of(g, what, key), a, bytes);
    if (lost != CHOIR_OK)
        give_up_store(g, lost);
    free(a);
}

/* Adopts the sentence of a rank that has lost the store. */
static choir_status pass_on(choir__ucx *g)
{
    char told[sizeof g->told];
    int status = 0, used = 0;
    pthread_mutex_lock(&g->net->lock);
    memcpy(told, g->told, sizeof told);
    pthread_mutex_unlock(&g->net->lock);
    if (sscanf(told, "%d %n", &status, &used) < 1 || status >= 0)
        return choir__ucx_fail(g, CHOIR_ERR_PEER_LOST, "%s", told);
    return choir__ucx_fail(g, (choir_status)status, "%s", told + used);
}

choir_status choir__ucx_ask_store(choir__ucx *g, const bool *awaited)
{
    char key[160];
    if (*g->told)
        return pass_on(g);
    snprintf(key, sizeof key, "%s/dead", g->net->prefix);
    char *dead = peek(g, key, NULL);
    if (dead)
        g->net->dead_rank = atoi(dead);
    free(dead);
    char *there = peek(g, key_of(g, "fault", key), NULL);
    if (is_sentence(there))
        adopt(g, there);
    else if (there && *there == '?')
        give_answer(g, awaited);
    free(there);
    return g->base.failed;
}

/* Collects all answers; NULL for a rank that gave none. */
static void collect(choir__ucx *g, answer **answers)
{
    char key[160], what[32];
    for (int r = 0; r < g->base.world; r++) {
        size_t bytes = 0;
        snprintf(what, sizeof what, "waits/%d", r);
        char *value = answers[r] ? NULL : peek(g, key_of(g, what, key), &bytes);
        if (value && bytes == sizeof(answer) + (size_t)g->base.world)
            answers[r] = (answer *)value;
        else
            free(value);
    }
}

/* Follows the answers, starting from this rank. reached (world): the ranks that are awaited,
 * directly or indirectly. */
static void follow(const choir__ucx *g, answer *const *answers, bool *reached)
{
    bool more = true;
    reached[g->base.rank] = true;
    while (more) {
        more = false;
        for (int r = 0; r < g->base.world; r++)
            for (int to = 0; reached[r] && answers[r] && to < g->base.world; to++)
                if (answers[r]->awaited[to] && !reached[to])
                    reached[to] = more = true;
    }
}

/* --- the verdict --- */

/* Describes the last message from a rank whose flight recorder is out of reach. */
static void last_message(const choir__ucx *g, int rank, char text[300])
{
    const choir__ucx_peer *peer = &g->peers[rank];
    char call[CHOIR__CALL_TEXT];
    *text = '\0';
    if (strcmp(g->base.members[rank].machine, g->base.members[g->base.rank].machine) == 0)
        return;
    if (peer->heard)
        snprintf(text, 300, "; its last message came %.1f s ago, of %s",
            choir__now() - peer->heard_at, choir__call_text(&peer->last, call));
    else
        snprintf(text, 300, "; nothing ever came from it");
}

/* Returns the rank whose process keeps the store, if it runs on this machine and is silent;
 * -1. */
static int silent_keeper(const choir__ucx *g)
{
    const choir__member *all = g->base.members;
    for (int r = 0; r < g->base.world && g->net->store_silent; r++)
        if (g->peers[r].net_rank == 0 && !g->peers[r].left &&
            strcmp(all[r].machine, all[g->base.rank].machine) == 0)
            return r;
    return -1;
}

/* If rank 0 itself is silent, no answers can be read, and rank 0 is certainly late. */
static choir_status blame_late(choir__ucx *g, const bool *reached, answer *const *answers)
{
    char silent[CHOIR__SILENT_TEXT], last[300] = "";
    int *late = choir__calloc((size_t)g->base.world, sizeof *late), count = 0;
    int keeper = silent_keeper(g);
    for (int r = 0; r < g->base.world; r++)
        if (keeper < 0 ? reached[r] && !answers[r] : r == keeper)
            late[count++] = r;
    if (count == 1)
        last_message(g, late[0], last);
    choir__engine_silent(&g->base, late, count, false, &g->now, silent);
    free(late);
    return choir__ucx_fail(g, CHOIR_ERR_TIMEOUT,
        "%s%s%s: see what it is doing, or raise timeout_s", silent, last,
        g->net->store_lost && keeper < 0
            ? "; nor does the store answer, which rank 0 keeps, so it may be this machine that "
              "is cut off"
            : "");
}

/* Returns the lowest rank below r that is in another call of the same number; r: none. */
static int first_that_differs(const bool *reached, answer *const *answers, int r)
{
    const choir__stamp *mine = &answers[r]->stamp;
    for (int o = 0; o < r; o++)
        if (reached[o] && answers[o] && answers[o]->stamp.seq == mine->seq &&
            memcmp(&answers[o]->stamp, mine, sizeof *mine) != 0)
            return o;
    return r;
}

/* All ranks wait. Calls of one number that differ are a mismatch. Calls of different numbers
 * may differ: one rank may be a call ahead of another. */
static choir_status blame_each_other(choir__ucx *g, const bool *reached, answer *const *answers)
{
    char who[160] = "", here[CHOIR__CALL_TEXT], there[CHOIR__CALL_TEXT];
    size_t used = 0;
    int first = -1;
    for (int r = 0; r < g->base.world; r++) {
        if (!reached[r] || !answers[r])
            continue;
        int other = first_that_differs(reached, answers, r);
        if (other < r) {
            choir__stamp mine = choir__stamp_of(answers[r]->stamp, r, CHOIR__SOMEBODY);
            choir__stamp theirs =
                choir__stamp_of(answers[other]->stamp, other, CHOIR__SOMEBODY);
            return choir__ucx_fail(g, CHOIR_ERR_MISMATCH,
                "rank %d called %s while rank %d called %s", choir__engine_number(&g->base, r),
                choir__call_text(&mine, there), choir__engine_number(&g->base, other),
                choir__call_text(&theirs, here));
        }
        if (used + 16 < sizeof who)
            used += (size_t)snprintf(who + used, sizeof who - used, first < 0 ? "%d" : ", %d",
                choir__engine_number(&g->base, r));
        first = first < 0 ? r : first;
    }
    return choir__ucx_fail(g, CHOIR_ERR_TIMEOUT,
        "ranks %s all wait for each other in %s, for %g s now: is the network slow? Raise "
        "timeout_s",
        who, choir__call_text(&g->now, here), g->base.timeout_s);
}

static choir_status judge(choir__ucx *g, answer *const *answers)
{
    bool *reached = choir__calloc((size_t)g->base.world, sizeof *reached), late = false;
    follow(g, answers, reached);
    for (int r = 0; r < g->base.world; r++)
        late |= reached[r] && !answers[r];
    choir_status status =
        late ? blame_late(g, reached, answers) : blame_each_other(g, reached, answers);
    free(reached);
    return status;
}

/* Returns true if a question is in the store, from this rank or another. */
static bool ask(choir__ucx *g)
{
    char key[160], mine[16], *now = NULL;
    snprintf(mine, sizeof mine, "?%d", g->base.rank);
    if (!g->net->store || g->net->store_lost)
        return false;
    choir_status lost =
        choir_store_compare_set(g->net->store, key_of(g, "fault", key), NULL, mine, &now);
    if (lost != CHOIR_OK)
        give_up_store(g, lost);
    if (is_sentence(now))
        adopt(g, now);
    free(now);
    return !g->net->store_lost;
}

choir_status choir__ucx_late(choir__ucx *g, const bool *awaited)
{
    answer **answers = choir__calloc((size_t)g->base.world, sizeof *answers);
    double until = choir__now() + answers_s;
    if (ask(g)) {
        give_answer(g, awaited);
        while (g->base.failed == CHOIR_OK && choir__now() < until) {
            poll(NULL, 0, 50);
            choir__ucx_ask_store(g, awaited);
        }
        collect(g, answers);
    }
    if (!answers[g->base.rank]) { /* without the store: only this rank's own answer */
        answers[g->base.rank] = choir__calloc(1, sizeof(answer) + (size_t)g->base.world);
        for (int r = 0; r < g->base.world; r++)
            answers[g->base.rank]->awaited[r] = awaited[r];
    }
    choir_status status = g->base.failed != CHOIR_OK ? g->base.failed : judge(g, answers);
    for (int r = 0; r < g->base.world; r++)
        free(answers[r]);
    free(answers);
    return status;
}
