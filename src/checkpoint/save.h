/* Internals of a save: save.c has the steps, save_files.c the files. */
#ifndef CHOIR_SAVE_H
#define CHOIR_SAVE_H

#include <pthread.h>
#include <stdatomic.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "checkpoint/format/safetensors.h"

struct choir__saver {
    choir_group *group; /* a group of its own; NULL: one process alone */
    int rank, world;

    /* The current save. */
    char *dir, *fresh; /* DIR, DIR/.new-PID */
    int lock;          /* lock on DIR, on rank 0; else -1 */
    choir_train_state state;
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
    size_t *copy_at;   /* (plan.part_count) offsets in copy */
    pthread_t toucher; /* touches the memory before it is needed */
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

/* Writes the files of the plan that this rank owns, and records their digests. */
choir_status choir__save_files(choir__saver *s);

/* Writes an index for each kind of files (weights, optimizer's state) that has several. */
choir_status choir__save_indices(choir__saver *s);

#endif
