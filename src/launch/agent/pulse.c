/* Beating, and listening to the other agents' beats: see pulse.h. */
#include "launch/agent/pulse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "launch/store/client.h"

static const double beat_s = 1;

/* Node 0 keeps one per node. */
typedef struct ear {
    char last[32]; /* its newest beat */
    double quiet_s;
} ear;

static const char *key_of(const char *what, int node, char key[32])
{
    snprintf(key, 32, "%s/%d", what, node);
    return key;
}

/* Returns the key's value, or NULL. */
static char *look(const choir__pulse *p, const char *what, int node)
{
    char key[32], *text = NULL;
    bool there = choir_store_get(p->store, key_of(what, node, key), 0, &text, NULL) == CHOIR_OK;
    return there ? text : NULL;
}

/* "17", or "17 done" */
static void beat(choir__pulse *p, int number)
{
    char key[32], text[32];
    snprintf(text, sizeof text, "%d%s", number, atomic_load(&p->done) ? " done" : "");
    (void)!choir_store_set(p->store, key_of("beat", p->node, key), text, strlen(text));
}

static void post(const choir__pulse *p, const char *verdict)
{
    char *now = NULL;
    (void)!choir_store_compare_set(p->store, "verdict", NULL, verdict, &now);
    free(now);
}

static void accuse(const choir__pulse *p, int node, double quiet_s)
{
    char *who = look(p, "node", node);
    char *verdict = choir__format(
        "1\nchoir run: node %d fell silent: its agent, %s, has given no sign for %.0f s, while "
        "other nodes are done: was it stopped?",
        node, who ? who : "?", quiet_s);
    post(p, verdict);
    free(verdict);
    free(who);
}

/* Node 0 listens. passed: seconds since the last time. An agent that was stopped when the last
 * ranks were done may have counted them without looking at the count. */
static void listen(const choir__pulse *p, ear *ears, double passed)
{
    int64_t done = 0;
    if (choir_store_add(p->store, "done", 0, &done) != CHOIR_OK || !done)
        return;
    if (done == p->nodes)
        post(p, "0\n");
    for (int k = 1; k < p->nodes; k++) {
        char *now = look(p, "beat", k);
        const char *text = now ? now : "";
        bool heard = strcmp(text, ears[k].last) != 0 || strstr(text, " done");
        ears[k].quiet_s = heard ? 0 : ears[k].quiet_s + passed;
        snprintf(ears[k].last, sizeof ears[k].last, "%s", text);
        free(now);
        if (ears[k].quiet_s > p->timeout_s)
            accuse(p, k, ears[k].quiet_s);
    }
}

static choir_status node_0_silent(const char *who, double quiet_s)
{
    return choir__error(CHOIR_ERR_TIMEOUT,
        "node 0 fell silent: its agent, %s, has not answered for %.0f s: was it stopped?", who,
        quiet_s);
}

choir_status choir__pulse_await(choir__pulse *p, char **verdict)
{
    ear *ears = choir__calloc((size_t)p->nodes, sizeof *ears);
    char *root = look(p, "node", 0);
    choir_status status = CHOIR_ERR_TIMEOUT;
    double quiet_s = 0; /* of node 0 */
    for (int number = 0; status == CHOIR_ERR_TIMEOUT; number++) {
        const double late_s = beat_s + CHOIR__STORE_SLACK_S;
        double since = choir__now();
        status = choir_store_get(p->store, "verdict", beat_s, verdict, NULL);
        double passed = choir__now() - since;
        if (status != CHOIR_ERR_TIMEOUT)
            break;
        if (passed < late_s) {
            quiet_s = 0;
            beat(p, number);
            if (p->node == 0)
                listen(p, ears, passed);
            continue;
        }
        /* a longer pause was this agent's own: it was stopped, too */
        quiet_s += passed < 2 * late_s ? passed : late_s;
        if (atomic_load(&p->done) && quiet_s > p->timeout_s) {
            status = node_0_silent(root ? root : "?", quiet_s);
            break;
        }
    }
    free(root);
    free(ears);
    return status;
}
