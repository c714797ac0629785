/* The chain of hashes in RUN/audit.jsonl: a line for each beginning, also of a resumed run, and
 * one per audited step.
 *
 *     {"begin":0,"audit":1,"every":50,"build":"Choir 0.1.0
 * (8c1f...)","bits":"chain","job":{...}, "modules":["fc1","fc2"],"chain":"5e0f..."}
 *     {"step":50,"loss":"0x40857a78","key":"91b0...","read_weights":["12ab...",null],
 *      "read_state":[...],"batch":[...],"samples":[...],"losses":[...],"gradients":[...],
 *      "weights":[...],"state":[...],"chain":"77d1..."}
 *
 * Hashes have 16 hexadecimal digits, and null is a hash that is not known. "chain" is the
 * SHA-256 of the chain of the line before, and of the line up to its own "chain". */
#ifndef CHOIR_AUDIT_CHAIN_H
#define CHOIR_AUDIT_CHAIN_H

#include <jansson.h>

#include "audit/parts.h"
#include "base/files/run_files.h"
#include "checkpoint/format/sha256.h"

/* --- writing --- */

typedef struct choir__chain_writer choir__chain_writer;

typedef struct choir__chain_begin {
    int64_t step, every; /* step: steps done before */
    const char *bits;    /* class of bits */
    const char *job;     /* a JSON object, or NULL */
    char **modules;      /* (module_count) */
    int module_count;
} choir__chain_begin;

typedef struct choir__chain_line {
    int64_t step;
    uint64_t key;
    char *loss; /* the bits of the loss as text; NULL: not known */
    choir__audit_hash *hash[CHOIR__AUDIT_KINDS];
    int count[CHOIR__AUDIT_KINDS];
} choir__chain_line;

/* Opens FOLDER/audit.jsonl, drops lines of steps after begin->step (all, if it is 0), and adds
 * a line for the beginning. Errors: I/O, format. */
choir_status choir__chain_open(
    const char *folder, const choir__chain_begin *begin, choir__chain_writer **writer);
/* Adds the line of a step, unless the chain has it already. Error: I/O. */
choir_status choir__chain_add(choir__chain_writer *w, const choir__chain_line *line);
/* NULL is fine. Error: I/O. */
choir_status choir__chain_close(choir__chain_writer *w);

/* Frees the line's hashes, but not its loss. */
void choir__chain_line_free(choir__chain_line *line);

/* --- reading --- */

/* A chain as a file has it. Lines of steps ascend; each follows the beginning before it. */
typedef struct choir__chain {
    json_t *lines; /* list of objects */
    json_t *begin; /* the first line; one of `lines` */
} choir__chain;

/* Reads FOLDER/audit.jsonl and follows its links. *chain has no lines if there is no such file.
 * Errors: I/O, format, with the number of the first line that does not follow the line
 * before. */
choir_status choir__chain_read(const char *folder, choir__chain *chain);
void choir__chain_free(choir__chain *chain);

/* Returns whether a line (bytes, without its end) follows the line before it, whose link is
 * given
 * ("": it is the first one), and stores its own link. */
bool choir__chain_follows(const char *line, size_t bytes, char link[CHOIR__SHA256_HEX]);

/* Returns the line of a step, or NULL. */
const json_t *choir__chain_at(const choir__chain *chain, int64_t step);
/* Returns the step of the chain's last line; 0: no line. */
int64_t choir__chain_last(const choir__chain *chain);

#endif
