/* Internals of a save: save.c has the steps, save_files.c the files. */
#ifndef CHOIR_SAVE_H
#define CHOIR_SAVE_H

#include <choir/group.h>
#include <pthread.h>
#include <stdatomic.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/items.h"

/* The plan of a save: every entry of every item is written once, by a rank that holds it, to a
 * file that the plan names.
 *
 *     rank 0 has   a rows 0-3    b        a of 8 rows is sharded, b is on both ranks
 *     rank 1 has   a rows 4-7    b
 *     files        model-00001-of-00002.safetensors   a rows 0-3
 *                  model-00002-of-00002.safetensors   a rows 4-7, b
 *
 * Ranks exchange lists of the boxes that they hold. A part that several ranks hold goes to the
 * rank with the least to write so far, so replicas save in parallel too. A file has at most one
 * part of each tensor, so that tensors keep their names: a rank's second box of a tensor goes
 * to its second file. Every rank computes the same plan. */

typedef struct choir__save_plan_part {
    int item;
    choir__box_region region;
    int64_t bytes;
    int owner, box; /* the owner's items[item].boxes[box] */
    int layer;      /* number of earlier parts of this item with the same owner */
    int file;       /* index in files */
} choir__save_plan_part;

typedef struct choir__save_plan_file {
    bool moments; /* optimizer's state, not weights */
    int layer, owner;
    bool parted; /* this file, or another of its kind, holds parts of tensors */
    char name[64];
} choir__save_plan_file;

typedef struct choir__save_plan {
    choir__save_plan_part *parts; /* sorted by item */
    int part_count;
    choir__save_plan_file *files; /* weights, then moments */
    int file_count;
} choir__save_plan;

/* least: tensors that several ranks hold are distributed over the first ranks, over as many (at
 * least one) as each receive this many bytes. Collective. Errors: mismatch (ranks with
 * different items; entries that no rank holds, or that are in overlapping parts), the group's.
 */
choir_status choir__save_plan_make(
    choir__save_plan *plan, const choir__items *items, choir_group *group, int64_t least);
void choir__save_plan_free(choir__save_plan *plan);

struct choir__saver {
    choir_group *group; /* a group of its own; NULL: one process alone */
    int rank, world;

    /* The current save. */
    char *dir, *fresh; /* DIR, DIR/.new-MARK */
    int64_t mark;      /* rank 0's, of that name */
    int lock;          /* lock on DIR, on rank 0; else -1 */
    choir_train_state state;
    bool workers; /* ranks step with optimizers and loss scales of their own, which are tensors
                   */
    const choir_tokenizer *tokenizer;
    const choir_class_names *classes; /* NULL: none */
    const choir_beside *beside;       /* NULL: none */
    char *job;                        /* the text of job.json; NULL: none */
    bool best;
    int64_t keep; /* newest checkpoints that stay; 0: 1 */
    choir__items items;
    choir__save_plan plan;
    /* (plan.file_count): zero except for files that this rank wrote */
    choir__digest *digests;

    /* All parts that this rank writes, if copied; else they are read from the tensors. The
     * memory stays for the next save. */
    bool copied;
    char *copy;
    size_t copy_bytes;
    size_t *copy_at;       /* (plan.part_count) offsets in copy */
    choir__proof_fn *know; /* NULL: nothing is known about the numbers */
    void *know_arg;
    choir__proof *proofs;               /* (plan.part_count) */
    int own_parts;                      /* this rank's parts, if there are proofs */
    char state_hash[CHOIR__SHA256_HEX]; /* hash of `state` when the save began */
    pthread_t toucher;                  /* touches the memory before it is needed */
    bool touching;
    atomic_bool enough;

    pthread_t thread;
    bool running;
    atomic_bool done;
    choir_status status; /* status of the thread, with its message */
    char message[1024];

    /* The step of the last successful save; news: no caller has asked since then. */
    int64_t saved;
    bool news;
};

/* Copies this rank's parts. If memory is not sufficient there is no copy and no error: the save
 * then happens at once instead. Errors: as choir_read. */
choir_status choir__save_copy(choir__saver *s);
/* Makes room for a copy by the plan, and starts to touch its pages on a thread. */
void choir__save_touch_copy(choir__saver *s);
void choir__save_free_copy(choir__saver *s);

/* choir__save_note_proofs collects the proofs of this rank's parts. choir__save_prove reads
 * this rank's files again and compares them with the proofs. Errors: state, io, format. */
void choir__save_note_proofs(choir__saver *s);
choir_status choir__save_prove(const choir__saver *s);

/* choir__save_note_state notes the hash of the state's numbers, which all ranks have; where
 * proofs are known, ranks compare it. choir__save_prove_state reads the finished state.json
 * again. Errors: state, argument, the group's. */
choir_status choir__save_note_state(choir__saver *s);
choir_status choir__save_prove_state(const choir__saver *s);

/* Writes the files of the plan that this rank owns, records their digests, and proves them. */
choir_status choir__save_files(choir__saver *s);

/* Writes an index for each kind of files (weights, optimizer's state) that has several. */
choir_status choir__save_indices(choir__saver *s);

#endif
