/* --bits. Each class gives one result wherever it is computed, so a job has one, which its
 * summary, its checkpoints and its run folder record. `auto` is settled once, when the ranks
 * meet: AMX for bf16 where all have it, else the chain, which every processor has. So ranks
 * with different instruction sets train together. oneDNN computes only where it is asked for.
 * GPUs have a class of their own. */
#include "job/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>

#include "device/cpu/context.h"
#include "device/cpu/half.h"
#include "device/cpu/multiplier.h"
#include "job/model/amp.h"

static const char *const values[] = {"auto", "chain", "amx", "onednn", "cuda", NULL};

const char *choir__job_bits_names(size_t i)
{
    return i < CHOIR_COUNT(values) ? values[i] : NULL;
}

bool choir__job_has_gpus(const choir__job_placement *p)
{
    return strncmp(p->device_names[0], "cpu", 3) != 0;
}

/* The classes that a rank has, and the one it asks for. */
typedef struct offer {
    int32_t gpus;    /* nonzero: its devices are GPUs */
    int32_t wanted;  /* a class, or another number: any */
    int32_t amx;     /* nonzero: the job multiplies bf16, and the processor has AMX for it */
    char onednn[56]; /* version and instruction set, which its bits depend on; "": none */
} offer;

/* A job without bf16 does not ask for AMX, whose registers make signal frames larger. Without
 * other ranks oneDNN need not be loaded to be known. */
static offer own_offer(const choir__job *j, bool launched)
{
    const char *bits = j->optim.bits;
    const bool named = bits && strcmp(bits, "auto") != 0;
    const bool bf16 = choir__amp_find(j->optim.amp)->dtype == CHOIR_BF16;
    offer o = {.gpus = choir__job_has_gpus(&j->placement),
        .wanted = named ? choir__multiplier_named(bits) : choir__multiplier_wanted(),
        .amx = bf16 && choir__cpu_has_amx()};
    if (choir__multiplier_is_here(CHOIR__BY_ONEDNN)) {
        char version[32] = "oneDNN";
        if (launched)
            choir__onednn_text(version, sizeof version);
        snprintf(o.onednn, sizeof o.onednn, "%s on %s", version, choir_cpu_isa());
    }
    return o;
}

/* Returns true if all ranks have oneDNN, with the same bits. */
static bool is_one_onednn(const offer *all, int world)
{
    bool same = *all[0].onednn != '\0';
    for (int r = 1; r < world; r++)
        same = same && !strcmp(all[r].onednn, all[0].onednn);
    return same;
}

/* Returns the fastest class that all have. A library, whose versions differ, is not chosen. */
static choir__multiplier fastest(const offer *all, int world)
{
    bool amx = true;
    for (int r = 0; r < world; r++)
        amx = amx && all[r].amx;
    return amx ? CHOIR__BY_AMX : CHOIR__BY_CHAIN;
}

/* One version of oneDNN on one instruction set has the same bits. */
static choir_status check_onednn(const offer *all, int world)
{
    for (int r = 0; r < world; r++) {
        if (!*all[r].onednn)
            return choir__error(CHOIR_ERR_MISMATCH,
                "--bits onednn: expected oneDNN on all ranks, and rank %d is built without it; "
                "choose --bits chain, or auto, on all of them",
                r);
        if (strcmp(all[r].onednn, all[0].onednn) != 0)
            return choir__error(CHOIR_ERR_MISMATCH,
                "--bits onednn: expected one oneDNN on all ranks, got %s on rank 0 and %s on rank "
                "%d; choose --bits chain, or auto, on all of them",
                all[0].onednn, all[r].onednn, r);
    }
    return CHOIR_OK;
}

static choir_status choose(const offer *all, int world, choir__multiplier *class)
{
    *class = CHOIR__MULTIPLIERS;
    for (int r = 1; r < world; r++)
        if (all[r].gpus != all[0].gpus)
            return choir__error(CHOIR_ERR_MISMATCH,
                "expected GPUs or processors on all ranks, got %s on rank 0 and %s on rank %d: "
                "their bits would differ",
                all[0].gpus ? "GPUs" : "processors", all[r].gpus ? "GPUs" : "processors", r);
    for (int r = 0; r < world && !all[0].gpus; r++) {
        if (all[r].wanted < 0 || all[r].wanted >= CHOIR__MULTIPLIERS)
            continue;
        const choir__multiplier wanted = (choir__multiplier)all[r].wanted;
        if (*class != CHOIR__MULTIPLIERS && *class != wanted)
            return choir__error(CHOIR_ERR_MISMATCH,
                "expected one class of bits, got %s and, on rank %d, %s",
                choir__multiplier_name(*class), r, choir__multiplier_name(wanted));
        *class = wanted;
    }
    if (*class == CHOIR__MULTIPLIERS)
        *class = fastest(all, world);
    return *class == CHOIR__BY_ONEDNN && !all[0].gpus ? check_onednn(all, world) : CHOIR_OK;
}

static choir_status take(choir__job_rank *p, choir__multiplier class)
{
    choir_status status = choir__multiplier_take(class);
    if (status == CHOIR_OK)
        p->bits = choir__multiplier_name(class), p->holds_bits = true;
    return status;
}

choir_status choir__job_take_bits(choir__job_rank *p, bool launched)
{
    const choir__job *j = p->job;
    const int world = launched ? choir_group_world(p->env.group) : 1;
    choir_status status = CHOIR_OK;
    offer mine = own_offer(j, launched), *all = choir__calloc((size_t)world, sizeof *all);
    all[0] = mine;
    choir__multiplier class;
    if (launched)
        status = choir_group_all_gather(p->env.group, &mine, all, sizeof mine, CHOIR_U8, NULL);
    if (status == CHOIR_OK)
        status = choose(all, world, &class);
    if (status == CHOIR_OK && mine.gpus)
        p->bits = "cuda";
    else if (status == CHOIR_OK)
        status = take(p, class);
    p->one_onednn = status == CHOIR_OK && is_one_onednn(all, world);
    free(all);
    return status;
}

choir_status choir__job_keep_bits(choir__job_rank *p, const char *bits)
{
    if (!*bits || !strcmp(bits, p->bits) || !p->holds_bits)
        return CHOIR_OK;
    const choir__multiplier class = choir__multiplier_named(bits);
    if (class == CHOIR__MULTIPLIERS || !choir__multiplier_is_here(class) ||
        (class == CHOIR__BY_ONEDNN && !p->one_onednn))
        return choir__error(CHOIR_ERR_MISMATCH,
            "this job has computed in the class of bits %s, which its ranks do not have alike: "
            "begin it again with --bits chain, or use machines that have the same %s",
            bits, bits);
    choir__job_drop_bits(p);
    return take(p, class);
}

void choir__job_drop_bits(choir__job_rank *p)
{
    if (p->holds_bits)
        choir__multiplier_drop();
    p->holds_bits = false;
}
