/* Double tree: two binary trees; each carries half of the data in a stream of pieces.
 *
 * In a single binary tree the inner ranks pass on twice as much as the leaves. With two trees
 * in which every rank is inner in at most one, all links are equally busy (Sanders, Speck and
 * Träff, 2009). The root of the collective is above the tops of both; the other ranks are the
 * places 1 to n of a tree whose shape follows from the numbers: the lowest set bit of a place
 * is the width of the subtree below it, so odd places are leaves. The second tree is the first
 * one mirrored (n even) or shifted by one (n odd), which makes odd places even.
 *
 *      places 1 to 6:          4              mirrored:      3
 *                           2     6                       5     1
 *                          1 3   5                       6 4   2
 *
 * Data are streamed: in each round a rank receives one piece from below and passes on the piece
 * of the previous round. All-reduce goes up and, as pieces reach the root, down: the first
 * piece arrives after log2 p rounds, then one piece arrives per round. Additions have the order
 * of the trees: deterministic, but not the fixed tree. */
#include "comm/pattern/build.h"

enum { PIECE = 1024, PIECES_MAX = 1024 }; /* cache lines per piece; maximum number of pieces */

/* A rank's position in one of the trees. */
typedef struct knot {
    int parent, children[2], count; /* ranks; -1: none */
    int depth;                      /* 0: the root */
} knot;

typedef struct stream {
    const choir__pattern_collective *p;
    choir__move_schedule *s;
    int root, pieces, depth; /* depth: the maximum */
    int down_from;           /* the round in which the root sends its first piece down */
    knot knots[2];
    choir__sum sums[2][2]; /* tree, child */
    choir__chunk_span up,
        down;      /* `up`: this rank's sums to send; `down`: the data to broadcast */
    int64_t piece; /* size of a piece, in elements */
} stream;

/* --- the trees --- */

static int lowest_bit(int place)
{
    return place & -place;
}

static int top(int n)
{
    int place = 1;
    while (2 * place <= n)
        place *= 2;
    return place;
}

static int parent_of(int place, int n)
{
    int bit = lowest_bit(place), parent = (place ^ bit) | bit << 1;
    return place == top(n) ? 0 : parent <= n ? parent : place ^ bit;
}

/* to_place maps a rank, counted from the root, to its place in tree 0 or 1; from_place is the
 * inverse. */
static int to_place(int v, int n, int tree)
{
    return tree == 0 ? v : n % 2 == 0 ? n + 1 - v : v == 1 ? n : v - 1;
}

static int from_place(int place, int n, int tree)
{
    return tree == 0 ? place : n % 2 == 0 ? n + 1 - place : place == n ? 1 : place + 1;
}

static int rank_of(int place, int tree, int root, int world)
{
    return place == 0 ? root : (root + from_place(place, world - 1, tree)) % world;
}

static int depth_of(int place, int n)
{
    int depth = 0;
    for (; place; place = parent_of(place, n))
        depth++;
    return depth;
}

static knot knot_of(int rank, int root, int world, int tree)
{
    const int n = world - 1, v = (rank - root + world) % world;
    const int place = v ? to_place(v, n, tree) : 0;
    knot k = {.parent = -1, .depth = depth_of(place, n)};
    if (place)
        k.parent = rank_of(parent_of(place, n), tree, root, world);
    for (int other = 1; other <= n; other++)
        if (parent_of(other, n) == place)
            k.children[k.count++] = rank_of(other, tree, root, world);
    return k;
}

/* --- the streams --- */

static choir__slice piece_of(const stream *t, int tree, int piece)
{
    choir__slice half = choir__slice_of((choir__slice){0, t->p->count}, t->p->align, tree, 2);
    if (piece < 0 || piece >= t->pieces)
        return (choir__slice){0};
    return choir__slice_of(half, t->p->align, piece, t->pieces);
}

/* Return the number of the piece that a rank at `depth` sends in a round: goes_up upwards,
 * goes_down downwards. */
static int goes_up(const stream *t, int round, int depth)
{
    return round - (t->depth - depth);
}

static int goes_down(const stream *t, int round, int depth)
{
    return round - t->down_from - depth;
}

static void up_messages(const stream *t, int round, int tree)
{
    const knot *k = &t->knots[tree];
    choir__slice comes = piece_of(t, tree, goes_up(t, round, k->depth + 1));
    for (int i = 0; i < k->count; i++)
        choir__sum_receive(&t->sums[tree][i], t->s, round, k->children[i], comes);
    choir__slice goes = piece_of(t, tree, goes_up(t, round, k->depth));
    if (k->parent >= 0)
        choir__add_send(t->s, round, k->parent,
            choir__past(k->count ? t->up : choir__in(0), goes.at), goes.count);
}

static void up_sums(const stream *t, int round, int tree)
{
    const knot *k = &t->knots[tree];
    choir__slice comes = piece_of(t, tree, goes_up(t, round, k->depth + 1));
    for (int i = 0; i < k->count; i++)
        choir__sum_combine(&t->sums[tree][i], t->s, round, comes, true);
    if (t->p->mean && t->p->rank == t->root)
        choir__add_rescale(t->s, round, choir__past(t->up, comes.at), comes.count);
}

static void down_messages(const stream *t, int round, int tree)
{
    const knot *k = &t->knots[tree];
    choir__slice comes = piece_of(t, tree, goes_down(t, round, k->depth - 1));
    choir__slice goes = piece_of(t, tree, goes_down(t, round, k->depth));
    if (k->parent >= 0)
        choir__add_receive(t->s, round, k->parent, choir__out(comes.at), comes.count);
    for (int i = 0; i < k->count; i++)
        choir__add_send(t->s, round, k->children[i],
            choir__past(t->p->rank == t->root ? t->down : choir__out(0), goes.at), goes.count);
}

static void init(
    stream *t, const choir__pattern_collective *p, choir__move_schedule *s, int root)
{
    const int64_t piece = PIECE * (int64_t)p->align, half = (p->count + 1) / 2;
    *t = (stream){.p = p, .s = s, .root = root, .down = choir__in(0)};
    t->pieces = (int)choir__min(choir__max((half + piece - 1) / piece, 1), PIECES_MAX);
    t->piece = choir__slice_most(choir__slice_most(p->count, p->align, 2), p->align, t->pieces);
    for (int place = 1; place < p->world; place++)
        t->depth = (int)choir__max(t->depth, depth_of(place, p->world - 1));
    for (int tree = 0; tree < 2; tree++)
        t->knots[tree] = knot_of(p->rank, root, p->world, tree);
}

/* Chooses where the children's pieces are received: in scratch; unless sums are in place, the
 * first child's are received directly at their destination. */
static void init_sums(stream *t, choir__chunk_span to, bool in_place)
{
    t->up = to;
    for (int tree = 0; tree < 2; tree++)
        for (int i = 0; i < t->knots[tree].count; i++) {
            bool first = i == 0 && !in_place;
            t->sums[tree][i] = (choir__sum){
                first ? choir__in(0) : to, to, first ? to : choir__add_scratch(t->s, t->piece)};
        }
}

static void run(const stream *t, bool up, bool down)
{
    const int rounds = t->pieces + t->depth - 1 + t->down_from;
    for (int round = 0; round < rounds; round++) {
        for (int tree = 0; tree < 2 && up; tree++)
            up_messages(t, round, tree);
        for (int tree = 0; tree < 2 && down; tree++)
            down_messages(t, round, tree);
        for (int tree = 0; tree < 2 && up; tree++)
            up_sums(t, round, tree);
    }
}

static void alone(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (!p->in_place)
        choir__add_copy(s, 0, choir__in(0), choir__out(0), p->count);
}

static void all_reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    stream t;
    init(&t, p, s, 0);
    t.down = choir__out(0);
    t.down_from = t.depth;
    init_sums(&t, choir__out(0), p->in_place);
    run(&t, true, true);
}

static void reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    stream t;
    init(&t, p, s, p->root);
    bool root = p->rank == p->root, inner = t.knots[0].count + t.knots[1].count > 0;
    choir__chunk_span to = choir__out(0);
    if (!root)
        to = choir__add_scratch(s, inner ? p->count : 0);
    init_sums(&t, to, root && p->in_place);
    run(&t, true, false);
}

static void broadcast(const choir__pattern_collective *p, choir__move_schedule *s)
{
    stream t;
    init(&t, p, s, p->root);
    run(&t, false, true);
    if (p->rank == p->root && !p->in_place)
        choir__add_copy(s, s->rounds - 1, choir__in(0), choir__out(0), p->count);
}

bool choir__pattern_double_tree(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (p->world == 1 || p->count == 0)
        alone(p, s);
    else if (p->kind == CHOIR__ALL_REDUCE)
        all_reduce(p, s);
    else if (p->kind == CHOIR__REDUCE)
        reduce(p, s);
    else
        broadcast(p, s);
    return true;
}
