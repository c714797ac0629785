/* Names of the files that a training leaves in the folder of its run and in its checkpoints. */
#ifndef CHOIR_BASE_RUN_FILES_H
#define CHOIR_BASE_RUN_FILES_H

#define CHOIR__JOB_FILE "job.json" /* in both */

/* In a run's folder: rows, events (record/run_folder.c) and hashes (audit/chain.h). */
#define CHOIR__METRICS_FILE "metrics.jsonl"
#define CHOIR__EVENTS_FILE  "events.jsonl"
#define CHOIR__AUDIT_FILE   "audit.jsonl"

/* In a checkpoint. */
#define CHOIR__STATE_FILE "state.json"
/* A tokenizer in its published form, or in Choir's own (characters, bytes, SentencePiece's file
 * in JSON), which other programs do not read and should not find under that name. Old
 * checkpoints have the first name for both. */
#define CHOIR__TOKENIZER_FILE     "tokenizer.json"
#define CHOIR__OWN_TOKENIZER_FILE "choir_tokenizer.json"

#endif
