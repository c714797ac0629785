/* Inside a save: see save.c, and save_files.c for the files. */
#ifndef CHOIR_SAVE_H
#define CHOIR_SAVE_H

#include <pthread.h>
#include <stdatomic.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/plan.h"
#include "checkpoint/safetensors.h"

struct choir__saver {
    choir_group *group; /* its own; NULL: one process alone */
    int rank, world;

    /* The save at hand. */
    char *dir, *fresh; /* DIR, DIR/.new-PID */
    int lock;          /* of DIR, on rank 0; -1 */
    choir_train_state state;
    const choir_tokenizer *tokenizer;
    bool best;
    choir__items items;
    choir__save_plan plan;
    choir__st_digest *digests; /* (plan.file_count): zero but of files that this rank wrote */

    char *copy; /* of all that this rank is to write, or NULL: it is read from the tensors */
    size_t copy_bytes;
    size_t *copy_at; /* (plan.part_count) */

    pthread_t thread;
    bool running;
    atomic_bool done;
    choir_status status; /* of the thread, with its message */
    char message[1024];

    int64_t saved; /* the step of the last save that went well; news: nobody has asked since */
    bool news;
};

/* Copies this rank's parts. Without memory for it there is no copy, and no error: the save is
 * made at once instead. Errors: those of choir_read. */
choir_status choir__save_copy(choir__saver *s);
void choir__save_forget_copy(choir__saver *s);

/* Writes plan.files[f], which is this rank's, and notes its digest. */
choir_status choir__save_file(choir__saver *s, int f);

/* Writes the index of each kind of files of which there are several. */
choir_status choir__save_indices(choir__saver *s);

#endif
