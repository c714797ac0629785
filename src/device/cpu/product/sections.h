/* K as chains, and as sections: the chains that are packed together.
 *
 * Leaf after leaf (device/kernels/cut.h), chain after chain. A section has several chains if
 * leaves are short, so that a tile adds most of them while they are near, in the first cache;
 * the sums of others wait in memory until a later section takes them (levels.h). */
#ifndef CHOIR_PRODUCT_SECTIONS_H
#define CHOIR_PRODUCT_SECTIONS_H

#include "device/cpu/product/levels.h"
#include "device/cpu/product/matrix.h"
#include "device/cpu/product/product.h"

/* LEAST_RUN: shorter runs of a leaf are gathered before they are packed. */
enum { MOST_CHAINS = 16, LEAST_RUN = 32, MOST_SPANS = 2 * (MOST_CHAINS + CHAIN / LEAST_RUN) };

typedef struct chain {
    int64_t first, depth; /* terms [first, first + depth) of its leaf */
    int64_t run_at, run;  /* the leaf's run of each block of K */
    int64_t at;           /* the place of its first term in a panel */
    int span, spans;      /* the first span, and their number */
    uint64_t takes;       /* levels that are added to its sum */
    uint64_t near;        /* taken levels that this section filled */
    int level;            /* level that receives the sum; -1: C receives it */
    bool kept;            /* a later section takes that level */
} chain;

typedef struct section {
    chain chains[MOST_CHAINS];
    span spans[MOST_SPANS]; /* unless terms are gathered */
    int count, span_count;
    int64_t block;    /* terms of a block of K */
    int64_t depth;    /* terms of all chains */
    int64_t at, deep; /* places of panels, in whole steps: before this section, and its own */
    bool gathers;
} section;

/* The place of a chain in K: in a leaf of the node, the chain's number. */
typedef struct position {
    int64_t leaf, chain;
} position;

/* All of K, or the node of it that the product computes. */
typedef struct terms {
    const choir__k_matmul *k;
    choir__node node;
    int chain_levels, levels;
    int64_t deep; /* places of a panel */
    int64_t most; /* most places in a section of several chains */
    bool several; /* there are several sections */
    bool gathers; /* terms are gathered before they are packed */
} terms;

/* A leaf's run of each block of K, its terms, and its chains. */
typedef struct leaf {
    int64_t at, run, terms, chains;
} leaf;

INLINE leaf leaf_of(const terms *t, int64_t i)
{
    const choir__k_matmul *k = t->k;
    leaf l;
    int64_t to;
    choir__cut_leaf(k->cut, k->k, t->node.start + i, &l.at, &to);
    l.run = to - l.at;
    l.terms = l.run * choir__cut_outer(k->cut);
    l.chains = choir__max(1, (l.terms + CHAIN - 1) / CHAIN);
    return l;
}

static terms terms_of(const choir__k_matmul *k)
{
    terms t = {.k = k, .node = choir__cut_node(k->cut, k->node), .most = most_deep(k)};
    t.chain_levels = levels_of(leaf_of(&t, 0).chains); /* no leaf is longer than the first */
    t.levels = t.chain_levels + levels_of(t.node.leaves);
    int64_t chains = 0;
    for (int64_t i = 0; i < t.node.leaves; i++) {
        const leaf l = leaf_of(&t, i);
        chains += l.chains;
        t.deep += whole(l.terms, STEP);
        t.gathers |= l.run < l.terms && (l.run % STEP || (l.run && l.run < LEAST_RUN));
    }
    t.several = chains > 1 && (t.deep > t.most || chains > MOST_CHAINS);
    return t;
}

/* Returns the chain at p, and moves p to the next. */
static chain take_chain(const terms *t, position *p)
{
    const leaf l = leaf_of(t, p->leaf);
    const bool last = p->chain == l.chains - 1, end = last && p->leaf == t->node.leaves - 1;
    chain c = {.first = p->chain * CHAIN,
        .run_at = l.at,
        .run = l.run,
        .takes = levels_before(p->chain, last)};
    c.depth = choir__min(CHAIN, l.terms - c.first);
    if (last)
        c.takes |= levels_before(p->leaf, end) << t->chain_levels;
    c.level = end ? -1 : last ? t->chain_levels + level_after(p->leaf) : level_after(p->chain);
    *p = last ? (position){p->leaf + 1, 0} : (position){p->leaf, p->chain + 1};
    return c;
}

/* Returns the number of levels that wait at p. */
INLINE int waiting_at(position p)
{
    return __builtin_popcountll((uint64_t)p.leaf) + __builtin_popcountll((uint64_t)p.chain);
}

/* Says which levels are near. */
static void settle(section *s)
{
    uint64_t here = 0;
    for (int i = 0; i < s->count; i++) {
        chain *c = &s->chains[i];
        c->near = c->takes & here;
        c->kept = c->level >= 0;
        for (int j = i + 1; c->kept && j < s->count; j++)
            c->kept = !(s->chains[j].takes >> c->level & 1);
        here &= ~c->takes;
        here |= c->kept || c->level < 0 ? 0 : UINT64_C(1) << c->level;
    }
}

/* Returns the span of chain c that begins with its term `done`. */
INLINE span span_of(const section *s, const chain *c, int64_t done)
{
    const int64_t l = c->first + done, i = l < c->run ? 0 : l / c->run, in_run = l - i * c->run;
    return (span){i * s->block + c->run_at + in_run, c->at + done,
        choir__min(c->depth - done, c->run - in_run)};
}

static void list_spans(section *s)
{
    s->span_count = 0;
    for (int i = 0; i < s->count; i++) {
        chain *c = &s->chains[i];
        c->span = s->span_count;
        for (int64_t done = 0; done < c->depth; done += s->spans[s->span_count++].some)
            s->spans[s->span_count] = span_of(s, c, done);
        c->spans = s->span_count - c->span;
    }
}

/* Makes the section from p on, behind the section that s was, and moves p behind it: as many
 * chains as fit, or fewer, down to a half, if fewer levels wait then. */
static bool next_section(const terms *t, position *p, section *s)
{
    position ends[MOST_CHAINS], next = *p;
    int64_t deep = 0;
    if (p->leaf == t->node.leaves)
        return false;
    s->at = p->leaf || p->chain ? s->at + s->deep : 0;
    s->block = t->k->k / choir__cut_outer(t->k->cut);
    for (s->count = 0; s->count < MOST_CHAINS && next.leaf < t->node.leaves;) {
        chain *c = &s->chains[s->count];
        *c = take_chain(t, &next);
        c->at = deep;
        deep += whole(c->depth, STEP);
        if (s->count && deep > t->most)
            break;
        ends[s->count++] = next;
    }
    int best = s->count;
    for (int n = s->count; ends[s->count - 1].leaf < t->node.leaves && 2 * n > s->count; n--)
        if (waiting_at(ends[n - 1]) < waiting_at(ends[best - 1]))
            best = n;
    s->count = best;
    s->deep = s->chains[best - 1].at + whole(s->chains[best - 1].depth, STEP);
    *p = ends[best - 1];
    s->depth = 0;
    for (int i = 0; i < best; i++)
        s->depth += s->chains[i].depth;
    s->gathers = t->gathers;
    if (!s->gathers)
        list_spans(s);
    settle(s);
    return true;
}

#endif
