/* Names of collectives and algorithms, and the text of a call. */
#include "comm/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/named.h"

static const char *const kinds[CHOIR__KIND_COUNT] = {
    [CHOIR__BARRIER] = "barrier",
    [CHOIR__BROADCAST] = "broadcast",
    [CHOIR__REDUCE] = "reduce",
    [CHOIR__ALL_REDUCE] = "all_reduce",
    [CHOIR__GATHER] = "gather",
    [CHOIR__ALL_GATHER] = "all_gather",
    [CHOIR__SCATTER] = "scatter",
    [CHOIR__REDUCE_SCATTER] = "reduce_scatter",
    [CHOIR__ALL_TO_ALL] = "all_to_all",
    [CHOIR__SEND] = "send",
    [CHOIR__RECEIVE] = "receive",
    [CHOIR__TREE_REDUCE] = "tree_reduce",
    [CHOIR__SHARE] = "the making of shared memory",
    [CHOIR__TREE_SCATTER] = "tree_scatter",
    [CHOIR__GATHER_ROWS] = "gather_rows",
};

static const char *const algorithms[CHOIR__ALGORITHM_COUNT] = {
    [CHOIR__AUTO] = "auto",
    [CHOIR__EXCHANGE] = "exchange",
    [CHOIR__DIRECT] = "direct",
    [CHOIR__BINOMIAL] = "binomial",
    [CHOIR__HALVING] = "halving",
    [CHOIR__HIERARCHICAL] = "hierarchical",
    [CHOIR__RING] = "ring",
    [CHOIR__DOUBLE_TREE] = "double_tree",
    [CHOIR__NATIVE] = "native",
};

static const choir__name_table algorithm_table = CHOIR__NAME_TABLE(algorithms);

static const char *const reduce_ops[CHOIR_REDUCE_OP_COUNT] = {
    [CHOIR_SUM] = "",
    [CHOIR_MEAN] = " (mean)",
    [CHOIR_MIN] = " (min)",
    [CHOIR_MAX] = " (max)",
    [CHOIR_PRODUCT] = " (product)",
    [CHOIR_BAND] = " (bitwise and)",
    [CHOIR_BOR] = " (bitwise or)",
    [CHOIR_BXOR] = " (bitwise xor)",
};

choir_status choir__kind_parse(const char *name, choir__kind *kind)
{
    static const choir__name_table table = {&kinds[CHOIR__BROADCAST],
        CHOIR__ALL_TO_ALL - CHOIR__BROADCAST + 1, sizeof *kinds, false};
    int at = choir__find_named(&table, name);
    if (at < 0)
        return choir__unknown_name(&table, "collective", name);
    *kind = (choir__kind)(CHOIR__BROADCAST + at);
    return CHOIR_OK;
}

const char *choir__kind_name(choir__kind kind)
{
    return (unsigned)kind < CHOIR__KIND_COUNT ? kinds[kind] : "?";
}

const char *choir__reduce_op_text(choir_reduce_op op)
{
    return (unsigned)op < CHOIR_REDUCE_OP_COUNT ? reduce_ops[op] : " (?)";
}

const char *choir__algorithm_name(choir__algorithm algorithm)
{
    return (unsigned)algorithm < CHOIR__ALGORITHM_COUNT ? algorithms[algorithm] : "?";
}

choir_status choir__algorithm_parse(const char *name, choir__algorithm *algorithm)
{
    int at = choir__find_named(&algorithm_table, name);
    if (at < 0)
        return choir__unknown_name(&algorithm_table, "algorithm", name);
    *algorithm = (choir__algorithm)at;
    return CHOIR_OK;
}

choir__sums choir__algorithm_sums(choir__algorithm algorithm)
{
    switch (algorithm) {
    case CHOIR__BINOMIAL:
    case CHOIR__HALVING: return CHOIR__SUMS_BY_RANK;
    case CHOIR__RING:
    case CHOIR__DOUBLE_TREE:
    case CHOIR__NATIVE: return CHOIR__SUMS_BY_PLACE;
    default: return CHOIR__SUMS_OF_TREE;
    }
}

const char *choir__stamp_text(const choir__stamp *stamp, char text[CHOIR__STAMP_TEXT])
{
    const char *kind = choir__kind_name((choir__kind)stamp->kind);
    const char *dtype = choir_dtype_name((choir_dtype)stamp->dtype);
    const char *op = choir__reduce_op_text((choir_reduce_op)stamp->op);
    int used = snprintf(text, CHOIR__STAMP_TEXT, "%s", kind);
    char *rest = text + used;
    size_t room = CHOIR__STAMP_TEXT - (size_t)used;
    switch ((choir__kind)stamp->kind) {
    case CHOIR__BARRIER:
    case CHOIR__SHARE:
    case CHOIR__KIND_COUNT: break;
    case CHOIR__REDUCE:
    case CHOIR__GATHER:
        snprintf(rest, room, " of %" PRIu64 " %s%s to rank %d", stamp->count, dtype, op,
            stamp->root);
        break;
    case CHOIR__SEND:
        snprintf(rest, room, " of %" PRIu64 " %s%s to rank %d", stamp->count, dtype, op,
            stamp->peer);
        break;
    case CHOIR__BROADCAST:
    case CHOIR__SCATTER:
        snprintf(
            rest, room, " of %" PRIu64 " %s from rank %d", stamp->count, dtype, stamp->root);
        break;
    case CHOIR__RECEIVE:
        used = snprintf(rest, room, " of %" PRIu64 " %s", stamp->count, dtype);
        if (stamp->peer != CHOIR__SOMEBODY)
            snprintf(rest + used, room - (size_t)used, " from rank %d", stamp->peer);
        break;
    case CHOIR__TREE_REDUCE:
    case CHOIR__TREE_SCATTER:
        snprintf(rest, room, " of %" PRIu64 " %s over %d micro-batches (layout %08x)",
            stamp->count, dtype, stamp->leaves, stamp->layout);
        return text;
    case CHOIR__GATHER_ROWS:
        snprintf(
            rest, room, " of %" PRIu64 " %s (layout %08x)", stamp->count, dtype, stamp->layout);
        return text;
    case CHOIR__ALL_REDUCE:
    case CHOIR__ALL_GATHER:
    case CHOIR__REDUCE_SCATTER:
        snprintf(rest, room, " of %" PRIu64 " %s%s", stamp->count, dtype, op);
        break;
    case CHOIR__ALL_TO_ALL:
        if (stamp->layout == 1)
            snprintf(rest, room, " of uneven parts of %s", dtype);
        else
            snprintf(rest, room, " of %" PRIu64 " %s", stamp->count, dtype);
        break;
    }
    used = (int)strlen(text);
    if (stamp->layout >> 16 == CHOIR__PIECE_MARK)
        snprintf(text + used, CHOIR__STAMP_TEXT - (size_t)used, ", a piece of data on a GPU");
    else if (stamp->layout >> 16 == CHOIR__TENSOR_MARK ||
             stamp->layout >> 16 == CHOIR__TENSOR_MARK + 1)
        snprintf(text + used, CHOIR__STAMP_TEXT - (size_t)used,
            ", a tensor with%s gradient (digest of its shape %04x)",
            stamp->layout >> 16 == CHOIR__TENSOR_MARK ? "out" : "", stamp->layout & 0xffff);
    else if (stamp->layout > 1) /* several calls of a batch, packed into one */
        snprintf(text + used, CHOIR__STAMP_TEXT - (size_t)used, " in parts (layout %08x)",
            stamp->layout);
    return text;
}
