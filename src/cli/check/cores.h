/* The known answers on all cores of this machine at once, each core by a process of its own. */
#ifndef CHOIR_CLI_CHECK_CORES_H
#define CHOIR_CLI_CHECK_CORES_H

#include "cli/check/answers.h"

enum { CHOIR__CHECK_CLASSES = 2, CHOIR__CHECK_GPUS = 16 };

/* The classes of bits that are checked, as far as this processor has them; ended by NULL. */
extern const char *const choir__check_classes[CHOIR__CHECK_CLASSES + 1];

/* A core, as its process reports it in shared memory. */
typedef struct choir__core {
    int cpu;             /* number of the processor */
    char kind[64];       /* cores of one kind are equally fast */
    int64_t rounds;      /* all answers, once each */
    int64_t wrong;       /* answers that were wrong */
    int answer, class;   /* the first wrong answer, and its class of bits */
    uint64_t got, known; /* hash of the core, and the right one */
    struct {
        int64_t wrong;
        char hash[17]; /* hash of the first round with a wrong answer, else of the last round */
    } of[CHOIR__CHECK_CLASSES];
    double seconds, round_s; /* all rounds; least processor time of one */
    bool slow;               /* slower than other cores of its kind */
    char why[200];           /* why the core has not finished; "": it has */
} choir__core;

typedef struct choir__check {
    choir__core *cores; /* (count) */
    int count;
    char bits[CHOIR__CHECK_CLASSES]
             [17];                      /* the hash of all answers; "": the class is not here */
    bool unknown[CHOIR__CHECK_CLASSES]; /* the release has no constant of that hash */
    struct {
        char device[24], bits[17], class[24];
    } gpus[CHOIR__CHECK_GPUS]; /* hashes of GPUs, which have no constants */
    int gpu_count;
} choir__check;

/* Checks one core for some seconds, at least one round. Tests call it, too. */
void choir__check_core(choir_device *device, double seconds, choir__core *core);

/* Checks all cores that this process may use. The caller frees check->cores. Errors: io. */
choir_status choir__check_cores(double seconds, choir__check *check);

#endif
