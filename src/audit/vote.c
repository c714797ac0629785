/* The vote of ranks: testimonies are sorted by question, rank and value, so that the answers to
 * one question lie together, and within it the answers of one rank. */
#include "audit/vote.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_question(const void *a, const void *b)
{
    const choir__testimony *x = a, *y = b;
    int order = ORDER(x->question, y->question);
    order = order ? order : ORDER(x->rank, y->rank);
    return order ? order : ORDER(x->value, y->value);
}

static int by_value(const void *a, const void *b)
{
    const choir__testimony *x = a, *y = b;
    int order = ORDER(x->value, y->value);
    return order ? order : ORDER(x->rank, y->rank);
}

bool choir__judgement_names(const choir__judgement *v, int rank)
{
    for (int i = 0; i < v->count; i++)
        if (v->ranks[i] == rank)
            return true;
    return false;
}

char *choir__judgement_ranks(const choir__judgement *v, const char *machines, size_t room)
{
    choir__text_buffer t = {0};
    for (int i = 0; i < v->count; i++) {
        const char *before = i == 0 ? "" : i + 1 == v->count ? " and " : ", ";
        choir__text_format(&t, "%srank %d", before, v->ranks[i]);
        if (machines)
            choir__text_format(&t, " on %s", machines + (size_t)v->ranks[i] * room);
    }
    choir__text_buffer_add(&t, "", 1);
    return t.bytes;
}

/* Adds a rank, unless it is named already. */
static void name(choir__judgement *v, int rank)
{
    int at = v->count;
    if (at == CHOIR__VERDICT_NAMES || choir__judgement_names(v, rank))
        return;
    v->count++;
    for (; at > 0 && v->ranks[at - 1] > rank; at--)
        v->ranks[at] = v->ranks[at - 1];
    v->ranks[at] = rank;
}

/* Notes what a question says. The graver verdict stays; equal ones name their ranks together.
 */
static void note(choir__judgement *v, choir__agreement how, uint64_t question)
{
    if (how <= v->how)
        return;
    *v = (choir__judgement){.how = how, .question = question};
}

/* Judges ranks (count) that are each consistent, one testimony per rank. */
static void count_votes(choir__judgement *v, choir__testimony *list, int64_t count)
{
    int64_t most = 0, second = 0, right = 0;
    qsort(list, (size_t)count, sizeof *list, by_value);
    for (int64_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && list[next].value == list[first].value;)
            next++;
        if (next - first > most) {
            second = most;
            most = next - first;
            right = first;
        } else {
            second = choir__max(second, next - first);
        }
    }
    if (most == count)
        return;
    choir__agreement how = most > second ? CHOIR__VOTE_DECIDED : CHOIR__VOTE_TIED;
    note(v, how, list->question);
    for (int64_t i = 0; i < count; i++)
        if (v->how == how && (how == CHOIR__VOTE_TIED || list[i].value != list[right].value))
            name(v, list[i].rank);
}

/* Judges the answers (count) to one question. */
static void judge(choir__judgement *v, const choir__testimony *list, int64_t count)
{
    choir__testimony *once = choir__calloc((size_t)count, sizeof *once);
    int64_t steady = 0, ranks = 0;
    for (int64_t first = 0, next; first < count; first = next, ranks++) {
        for (next = first + 1; next < count && list[next].rank == list[first].rank;)
            next++;
        if (list[first].value == list[next - 1].value)
            once[steady++] = list[first];
    }
    if (steady < ranks && steady == 0 && ranks > 1) {
        note(v, CHOIR__VOTE_SHARED, list->question);
    } else {
        if (steady < ranks)
            note(v, CHOIR__VOTE_DECIDED, list->question);
        for (int64_t i = 1; i < count; i++)
            if (list[i].rank == list[i - 1].rank && list[i].value != list[i - 1].value)
                name(v, list[i].rank);
        count_votes(v, once, steady);
    }
    free(once);
}

void choir__vote(const choir__testimony *list, int64_t count, choir__judgement *verdict)
{
    int64_t n = 0;
    choir__testimony *sorted = choir__calloc((size_t)count + 1, sizeof *sorted);
    for (int64_t i = 0; i < count; i++)
        if (!list[i].nothing)
            sorted[n++] = list[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_question);
    *verdict = (choir__judgement){.how = CHOIR__VOTE_AGREED};
    for (int64_t first = 0, next; first < n; first = next) {
        for (next = first + 1; next < n && sorted[next].question == sorted[first].question;)
            next++;
        judge(verdict, sorted + first, next - first);
    }
    free(sorted);
}
