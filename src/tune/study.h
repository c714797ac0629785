/* The study behind choir_study, and as its trials see it. */
#ifndef CHOIR_TUNE_STUDY_H
#define CHOIR_TUNE_STUDY_H

#include <pthread.h>
#include <choir/study.h>

#include "tune/scheduler/scheduler.h"
#include "tune/study_sync.h"

/* Parameters that choir_study_enqueue gave for a later trial. */
typedef struct choir__given {
    double *params; /* (space->count) NaN: to be suggested */
    struct choir__given *next;
} choir__given;

struct choir_study {
    pthread_mutex_t lock;
    choir_space *space;
    choir__tune_sampler *sampler;
    uint64_t key;
    int64_t window, trials;
    int objectives;
    double sign[CHOIR_STUDY_OBJECTIVES]; /* 1: less is better */
    choir_trial **trial;                 /* (count) by number */
    int64_t count;
    /* The rule of order (next_segment.c). */
    choir__scheduler *scheduler;
    bool free;                     /* results count as they come */
    bool forked;                   /* the study is a copy in a trial's fork */
    choir__trial_segment *segment; /* (segment_count) */
    int64_t segment_count;
    int64_t work_count; /* up to the last one that is not empty */
    int64_t ended;      /* segments 0 ... ended - 1 have ended, segment `ended` has not */
    int64_t known;      /* segments whose results are known; not counted where `free` */
    int64_t runs;       /* segments that have not ended */
    int64_t *news;      /* (news_count) see choir__history */
    int64_t news_count;
    bool has_turn;
    choir__next_segment turn; /* the next one, if it is decided */
    choir__given *queue;
    choir__study_sync *kept; /* NULL: in memory alone */
    choir__stored_attributes attributes;
};

typedef enum choir__prospect {
    CHOIR__PROSPECT_TURN, /* s->turn is the next one */
    CHOIR__PROSPECT_WAIT, /* for the end of a segment */
    CHOIR__PROSPECT_END,  /* nothing is left to be done */
} choir__prospect;

/* --- next_segment.c --- */

/* Returns the known results. */
choir__history choir__study_history(const choir_study *s);
/* Decides on the next turn. */
choir__prospect choir__study_look_ahead(choir_study *s);
/* Returns whether another trial may begin, now or later; trials that go on are not counted. */
bool choir__study_has_more(const choir_study *s);
/* Begins the segment that s->turn says, of this trial. */
void choir__study_begin_segment(choir_study *s, choir_trial *t);
/* Ends the trial's segment, whose result is in the trial. */
void choir__study_end_segment(choir_study *s, choir_trial *t);
/* Begins the trial's segment again, which has the reports t->later already. */
void choir__study_restart_segment(choir_study *s, choir_trial *t);

/* Adds a report of a trial that runs, and decides whether it is to stop. False: the report does
 * not count for this segment, since its step is an earlier one's, or the trial is to stop. */
bool choir__study_report(choir_study *s, choir_trial *t, int64_t step, double value);

/* --- ask.c --- */

/* Appends the trial of the next turn, whose parameters are to be filled in; its first segment
 * begins. */
choir_trial *choir__study_append(choir_study *s);
/* Gives the next new trial. */
choir_status choir__study_ask(choir_study *s, choir_trial **trial);
bool choir__study_ready(choir_study *s);
/* Draws the parameters that are not given (NaN). */
void choir__space_take_given(
    const choir_space *space, const double *given, choir__draws *draws, double *params);

/* --- enqueue.c --- */

/* Drops the parameters that were given for the next trial. */
void choir__study_drop_given(choir_study *s);
/* Drops the point of a trial, which another worker has begun. */
void choir__study_forget_given(choir_study *s, const choir_trial *t);
/* Gives a trial its point as JSON, on the heap, which it owns; NULL: none. */
void choir__trial_give(choir_trial *t, char *point);
/* Keeps the point of a trial, which this study gave it, for the next one. */
void choir__study_give_back(choir_study *s, const choir_trial *t);
/* Returns a point (space->count) as JSON, on the heap, without the parameters that are NaN. */
char *choir__point_json(const choir_space *space, const double *point);
/* Reads a point from JSON. *others: the JSON has parameters that the space lacks. Error:
 * argument (a value outside of its distribution; it becomes NaN, and the others are read). */
choir_status choir__point_read(
    const choir_space *space, const char *json, double *point, bool *others);

#endif
