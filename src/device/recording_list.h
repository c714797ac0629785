/* The list of a recording, for recording.c, which records and replays it, and graphs.c, which
 * replays parts of it as graphs. */
#ifndef CHOIR_RECORDING_LIST_H
#define CHOIR_RECORDING_LIST_H

#include "device/recording.h"
#include "device/stream.h"

enum kind { TASK, EVENT, WAIT, MOVED, HOST };

typedef struct entry {
    enum kind kind;
    uint32_t bytes; /* TASK: of arguments, which follow in `args` at args_at */
    size_t args_at;
    choir__queue *queue;
    union {
        choir__queue_task *fn;
        int event; /* EVENT, WAIT: its number */
        struct {
            choir__queue *from;
            uint64_t bytes;
        } moved;
        struct {
            choir_status (*fn)(void *);
            void *arg;
        } host;
    } as;
} entry;

struct choir__recording {
    entry *entries;
    int count;
    unsigned char *args;
    size_t args_used, args_capacity;
    choir__event *events; /* events as recorded or last replayed */
    int event_count;
    struct choir__graph_part *parts; /* used by graphs.c; NULL: not searched for yet */
    int part_count;
    bool lost; /* a queue of the recording was freed */
    choir__recording *next;
};

/* If a part that is a graph begins at entry i, launches it and returns the index of the entry
 * after it; otherwise returns i. */
int choir__graphs_launch(choir__recording *recording, int i);

void choir__graphs_free(choir__recording *recording);

#endif
