/* --bits. Each class gives one result wherever it is computed, so a job has one, which its
 * summary, its checkpoints and its run folder record. `auto` is settled once, when the ranks
 * meet: AMX for bf16 where all have it; oneDNN where all have the same; else the chain, which
 * every processor has. So ranks with different instruction sets train together. GPUs have a
 * class of their own. */
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

const char *choir__cli_bits_names(size_t i)
{
    return i < CHOIR_COUNT(values) ? values[i] : NULL;
}

/* The classes that a rank has, and the one it asks for. */
typedef struct offer {
    int32_t wanted;  /* a class, or CHOIR__MULTIPLIERS: any */
    int32_t amx;     /* nonzero: the processor has AMX's instructions */
    char onednn[56]; /* version and instruction set, which its bits depend on; "": none */
} offer;

/* Without other ranks oneDNN need not be loaded to be known. */
static offer own_offer(const choir__job *j, bool launched)
{
    const char *bits = j->optim.bits;
    const bool named = bits && strcmp(bits, "auto") != 0;
    offer o = {.wanted = named ? choir__multiplier_named(bits) : choir__multiplier_wanted(),
        .amx = choir__cpu_has_amx()};
    if (choir__multiplier_is_here(CHOIR__BY_ONEDNN)) {
        char version[32] = "oneDNN";
        if (launched)
            choir__onednn_text(version, sizeof version);
        snprintf(o.onednn, sizeof o.onednn, "%s on %s", version, choir_cpu_isa());
    }
    return o;
}

/* Returns the fastest class that all have. */
static choir__multiplier fastest(const offer *all, int world, bool bf16)
{
    bool amx = bf16, same = *all[0].onednn != '\0';
    for (int r = 0; r < world; r++) {
        amx = amx && all[r].amx;
        same = same && !strcmp(all[r].onednn, all[0].onednn);
    }
    return amx ? CHOIR__BY_AMX : same ? CHOIR__BY_ONEDNN : CHOIR__BY_CHAIN;
}

/* oneDNN's bits depend on its version and on the instruction set. */
static choir_status check_onednn(const offer *all, int world)
{
    for (int r = 0; r < world; r++)
        if (!*all[r].onednn || strcmp(all[r].onednn, all[0].onednn))
            return choir__error(CHOIR_ERR_MISMATCH,
                "--bits onednn: expected one oneDNN on all ranks, got %s on rank 0 and %s on rank "
                "%d; choose --bits chain, or auto, on all of them",
                *all[0].onednn ? all[0].onednn : "none",
                *all[r].onednn ? all[r].onednn : "none", r);
    return CHOIR_OK;
}

static choir_status choose(const offer *all, int world, bool bf16, choir__multiplier *class)
{
    *class = CHOIR__MULTIPLIERS;
    for (int r = 0; r < world; r++) {
        const choir__multiplier wanted = (choir__multiplier)all[r].wanted;
        if (wanted == CHOIR__MULTIPLIERS)
            continue;
        if (*class != CHOIR__MULTIPLIERS && *class != wanted)
            return choir__error(CHOIR_ERR_MISMATCH,
                "expected one class of bits, got %s and, on rank %d, %s",
                choir__multiplier_name(*class), r, choir__multiplier_name(wanted));
        *class = wanted;
    }
    if (*class == CHOIR__MULTIPLIERS)
        *class = fastest(all, world, bf16);
    return *class == CHOIR__BY_ONEDNN ? check_onednn(all, world) : CHOIR_OK;
}

static choir_status take(choir__job_rank *p, choir__multiplier class)
{
    choir_status status = choir__multiplier_take(class);
    if (status == CHOIR_OK)
        p->bits = choir__multiplier_name(class), p->holds_bits = true;
    return status;
}

/* Devices other than processors: their kind is their class. A recorded class of another kind of
 * devices has no use; a note says that the devices are others. */
static choir_status take_kind(choir__job_rank *p, const char *kind)
{
    const char *bits = p->job->optim.bits;
    p->bits = kind;
    if (!bits || !strcmp(bits, "auto") || !strcmp(bits, kind) ||
        !choir__job_was_given(p->job, "bits"))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--bits %s: these devices compute in the class %s; choose it, or auto", bits, kind);
}

choir_status choir__job_take_bits(choir__job_rank *p, bool launched)
{
    const choir__job *j = p->job;
    if (strncmp(j->placement.device_names[0], "cpu", 3))
        return take_kind(p, "cuda");
    if (j->optim.bits && !strcmp(j->optim.bits, "cuda") && choir__job_was_given(j, "bits"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--bits cuda: expected GPUs, got processors; choose chain, amx, onednn or auto");
    const bool bf16 = choir__amp_find(j->optim.amp)->dtype == CHOIR_BF16;
    const int world = launched ? choir_group_world(p->env.group) : 1;
    offer mine = own_offer(j, launched), *all = choir__calloc((size_t)world, sizeof *all);
    all[0] = mine;
    choir__multiplier class;
    choir_status status =
        launched ? choir_group_all_gather(p->env.group, &mine, all, sizeof mine, CHOIR_U8, NULL)
                 : CHOIR_OK;
    if (status == CHOIR_OK)
        status = choose(all, world, bf16, &class);
    if (status == CHOIR_OK)
        status = take(p, class);
    free(all);
    return status;
}

choir_status choir__job_keep_bits(choir__job_rank *p, const char *bits)
{
    if (!*bits || !strcmp(bits, p->bits) || !p->holds_bits)
        return CHOIR_OK;
    const choir__multiplier class = choir__multiplier_named(bits);
    if (class == CHOIR__MULTIPLIERS || !choir__multiplier_is_here(class))
        return choir__error(CHOIR_ERR_MISMATCH,
            "this job computes in the class of bits %s, which this machine lacks: begin it again "
            "with --bits chain, or use machines that have %s",
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
