/* Known answers: what each op gives on fixed operands, as hashes that are constants of the
 * release for each class of bits (known.h). The operands are random numbers of the op's number;
 * the hash covers the result and the gradients of both operands. */
#ifndef CHOIR_CLI_CHECK_ANSWERS_H
#define CHOIR_CLI_CHECK_ANSWERS_H

#include <choir/choir.h>

enum { CHOIR__ANSWERS_MOST = 256, CHOIR__ANSWER_NAME = 64 };

/* Returns the number of answers: each op of cli/check/probes.h, in each dtype. */
int choir__answers(void);
/* Writes "conv2d 1x1, bf16" into name, and returns it. */
const char *choir__answer_name(int answer, char name[CHOIR__ANSWER_NAME]);

/* Computes an answer on the run's device. Errors: the ops' own. */
choir_status choir__answer_compute(choir_scope *run, int answer, uint64_t *hash);

/* Stores the constant of a class of bits, such as "chain"; false: the class has none. */
bool choir__answer_known(const char *bits, int answer, uint64_t *hash);

/* Returns one hash for all answers. */
uint64_t choir__answers_hash(const uint64_t *hashes, int count);

#endif
