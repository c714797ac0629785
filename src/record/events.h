/* Events of a training, made from the table in events.def: for each a struct, which the trainer
 * fills, and a kind, with which recorders write it without knowing its members. */
#ifndef CHOIR_RECORD_TOLD_H
#define CHOIR_RECORD_TOLD_H

#include <jansson.h>

#include "base/text.h"

/* Where an event or a field is written: standard output with --json, run folders and logs. A
 * field that is missing is left out with CHOIR__IF_KNOWN, and else null. */
enum { CHOIR__TO_OUT = 1, CHOIR__TO_LOGS = 2, CHOIR__TO_BOTH = 3, CHOIR__IF_KNOWN = 4 };

/* Types of fields. Standard output rounds numbers, files have them in full. */
typedef int64_t choir__event_count;    /* missing: negative */
typedef bool choir__event_truth;       /* never missing */
typedef const char *choir__event_text; /* missing: NULL */
typedef double choir__event_number;    /* 9 digits; missing: NaN */
typedef double choir__event_rate;      /* 6 digits */
typedef double choir__event_share;     /* 3 digits behind the point */
typedef double choir__event_single;    /* a float's value, 9 digits */
typedef double choir__event_setting;   /* a float's value, 7 digits */

typedef enum choir__field_type {
    CHOIR__FIELD_count,
    CHOIR__FIELD_truth,
    CHOIR__FIELD_text,
    CHOIR__FIELD_number,
    CHOIR__FIELD_rate,
    CHOIR__FIELD_share,
    CHOIR__FIELD_single,
    CHOIR__FIELD_setting,
    CHOIR__FIELD_list,
} choir__field_type;

typedef struct choir__event_field {
    const char *key;
    choir__field_type type;
    unsigned where;
    size_t at, count_at; /* offset in the struct; count_at: offset of a list's length */
    const struct choir__event_kind *items; /* kind of a list's items, or NULL */
} choir__event_field;

typedef struct choir__event_kind {
    const char *name;
    unsigned where; /* 0: a record */
    size_t bytes;   /* size of the struct */
    const choir__event_field *fields;
    int count;
} choir__event_kind;

/* The structs: choir__told_eval with its members step, loss, ... A list has its length in
 * KEY_count. A member that an initialiser leaves out is 0, false or NULL, so every count and
 * number is named, also one that is missing. */
#define EVENT(event, where, sentence)            typedef struct choir__told_##event {
#define RECORD(record, sentence)                 typedef struct choir__told_##record {
#define FIELD(event, type, key, where, sentence) choir__event_##type key;
#define LIST(event, record, key, where, sentence)                                              \
    const struct choir__told_##record *key;                                                    \
    int key##_count;
#define END(event)                                                                             \
    }                                                                                          \
    choir__told_##event;                                                                       \
    extern const choir__event_kind choir__kind_##event;
#include "record/events.def"
#undef EVENT
#undef RECORD
#undef FIELD
#undef LIST
#undef END

/* An event and its kind, as two arguments: CHOIR__TOLD(eval, .step = 4, .loss = 2.5). */
#define CHOIR__TOLD(event, ...)                                                                \
    &choir__kind_##event, &(const choir__told_##event)                                         \
    {                                                                                          \
        __VA_ARGS__                                                                            \
    }

/* A key of an event, for readers: CHOIR__KEY(eval, loss) is "loss". */
#define CHOIR__KEY(event, key)                                                                 \
    ((const char *)(sizeof(((const choir__told_##event *)0)->key) ? #key : ""))

/* Returns whether a number with this key is measured, rather than a count or the head of a
 * line. Keys that the table lacks belong to other programs' events. */
bool choir__event_is_measured(const choir__event_kind *kind, const char *key);

/* Returns the name under which logs and pages show a number of an evaluation: --metric gives a
 * name of its own, which is among the fields. */
const char *choir__eval_name(const json_t *fields, const char *key);

/* Stores the value of a field that is a number, as logs have it. Returns false if the field is
 * not a number, is missing, or is not for logs. */
bool choir__event_measure(const choir__event_field *field, const void *event, double *value);

/* Adds an event as an object for standard output or for logs. */
void choir__event_write(
    choir__text_buffer *out, unsigned where, const choir__event_kind *kind, const void *event);
/* Prints an event as a line of standard output. */
void choir__event_print(const choir__event_kind *kind, const void *event);

#endif
