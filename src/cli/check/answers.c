/* Computes an answer: runs one op forward and backward on fixed random operands, and hashes
 * the result and the gradients. The loss is a sum with random weights, so that gradients
 * differ from element to element and a wrong order of additions shows. */
#include "cli/check/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "cli/check/known.h"
#include "cli/check/probes.h"

int choir__answers(void)
{
    int count = 0;
    while (choir__probes[count].name)
        count++;
    return count * CHOIR__PROBE_DTYPES;
}

const char *choir__answer_name(int answer, char name[CHOIR__ANSWER_NAME])
{
    snprintf(name, CHOIR__ANSWER_NAME, "%s, %s",
        choir__probes[answer / CHOIR__PROBE_DTYPES].name,
        choir_dtype_name(choir__probe_dtypes[answer % CHOIR__PROBE_DTYPES]));
    return name;
}

/* Adds the bytes of a tensor; NULL: the op has no such operand. */
static choir_status add(uint64_t *hash, const choir_tensor *t)
{
    if (!t)
        return CHOIR_OK;
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    void *data = choir__alloc(bytes);
    choir_status status = choir_read(t, data, bytes);
    if (status == CHOIR_OK)
        *hash = choir__hash_bytes(*hash, data, bytes);
    free(data);
    return status;
}

static choir_status compute(
    choir_scope *step, const choir__probe *p, choir_dtype dtype, uint64_t *hash)
{
    choir_tensor *sources[2] = {NULL, NULL}, *w = NULL;
    choir_tensor *x = choir__probe_operand(step, p->x, "x", dtype, true, &sources[0]);
    if (p->w.ndim)
        w = choir__probe_operand(step, p->w, "w", dtype, true, &sources[1]);
    choir_tensor *y = p->op(x, w), *wide = choir_cast(y, CHOIR_F32);
    choir_tensor *r = choir_rand(step, choir_tensor_shape(wide), "r", -1, 1);
    choir_tensor *loss = choir_sum(choir_mul(wide, r));
    *hash = CHOIR__HASH_SEED;
    choir_status status = add(hash, y); /* backward frees it */
    if (status == CHOIR_OK)
        status = choir_backward(loss);
    for (int i = 0; i < 2 && status == CHOIR_OK; i++)
        status = add(hash, sources[i] ? choir_grad(sources[i]) : NULL);
    return status == CHOIR_OK ? choir_scope_status(step) : status;
}

choir_status choir__answer_compute(choir_scope *run, int answer, uint64_t *hash)
{
    choir_scope *step = choir_step_open(run, (uint64_t)answer);
    choir_status status = compute(step, &choir__probes[answer / CHOIR__PROBE_DTYPES],
                     choir__probe_dtypes[answer % CHOIR__PROBE_DTYPES], hash),
                 closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

bool choir__answer_known(const char *bits, int answer, uint64_t *hash)
{
    for (size_t i = 0; i < CHOIR_COUNT(known); i++)
        if (!strcmp(known[i].bits, bits) && answer < known[i].count) {
            *hash = known[i].hash[answer];
            return true;
        }
    return false;
}

uint64_t choir__answers_hash(const uint64_t *hashes, int count)
{
    uint64_t hash = CHOIR__HASH_SEED;
    for (int i = 0; i < count; i++)
        for (int byte = 0; byte < 8; byte++)
            hash = choir__hash_step(hash, hashes[i] >> 8 * byte & 255);
    return hash;
}
