/* The exchange of a worker's words with the master's.
 *
 *     snapshot   the word as of the last exchange
 *     mine       the worker's; differs from the snapshot if its optimizer has stepped
 *     master     shared; differs from the snapshot if other workers have written
 *
 *                      mine is the snapshot    mine has changed
 *     master is it     nothing                 master = mine, bit by bit
 *     master has       mine = master           master += mine - snapshot, mine = master
 *
 * The master's words are accessed only by relaxed atomic loads and stores of their own width,
 * one of each. Another worker's store between the two may be lost, but no word is ever a
 * mixture of two. A word that is only read does not invalidate other cores' cache lines. */

#include "parallel/hogwild/hogwild.h"

/* The bits of floats in memory. */
typedef uint32_t __attribute__((may_alias)) word;
typedef uint64_t __attribute__((may_alias)) wide;

static float value(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t load(const word *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static bool add_f32(word *master, word *mine, word *snapshot, int64_t count)
{
    bool changed = false;
    for (int64_t i = 0; i < count; i++) {
        uint32_t here = mine[i], before = snapshot[i], now = load(&master[i]);
        if (here != before) {
            now = now == before ? here : bits_of(value(now) + (value(here) - value(before)));
            __atomic_store_n(&master[i], now, __ATOMIC_RELAXED);
            changed = true;
        }
        mine[i] = snapshot[i] = now;
    }
    return changed;
}

static bool put_f32(word *master, word *mine, word *snapshot, int64_t count)
{
    bool changed = false;
    for (int64_t i = 0; i < count; i++) {
        uint32_t here = mine[i], now = load(&master[i]);
        if (here != snapshot[i]) {
            now = here;
            __atomic_store_n(&master[i], now, __ATOMIC_RELAXED);
            changed = true;
        }
        mine[i] = snapshot[i] = now;
    }
    return changed;
}

static bool add_i64(wide *master, wide *mine, wide *snapshot, int64_t count)
{
    bool changed = false;
    for (int64_t i = 0; i < count; i++) {
        uint64_t now = __atomic_load_n(&master[i], __ATOMIC_RELAXED);
        if (mine[i] != snapshot[i]) {
            now += mine[i] - snapshot[i];
            __atomic_store_n(&master[i], now, __ATOMIC_RELAXED);
            changed = true;
        }
        mine[i] = snapshot[i] = now;
    }
    return changed;
}

bool choir__hogwild_exchange(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count)
{
    switch (rule) {
    case CHOIR__ADD_F32: return add_f32(master, mine, snapshot, count);
    case CHOIR__PUT_F32: return put_f32(master, mine, snapshot, count);
    case CHOIR__ADD_I64: return add_i64(master, mine, snapshot, count);
    }
    return false;
}

void choir__hogwild_take(
    choir__hogwild_rule rule, void *master, void *mine, void *snapshot, int64_t count)
{
    if (rule == CHOIR__ADD_I64) {
        wide *from = master, *to = mine, *kept = snapshot;
        for (int64_t i = 0; i < count; i++)
            to[i] = kept[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    } else {
        word *from = master, *to = mine, *kept = snapshot;
        for (int64_t i = 0; i < count; i++)
            to[i] = kept[i] = load(&from[i]);
    }
}
