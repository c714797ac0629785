/* Status codes: every call that can fail returns one.
 *
 * 0 is success and negative values are failures, grouped by the thing that failed: an argument,
 * this step, a peer, the process. The first function that notices a failure writes one sentence
 * for people. The library keeps it per thread (choir_error_message) and, for work in a scope,
 * in that scope; callers pass the code on.
 *
 * Threads: choir_error_message belongs to the calling thread; the other functions are pure. */
#ifndef CHOIR_STATUS_H
#define CHOIR_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define CHOIR_STATUS_LIST(X)                                                                   \
    X(OK, 0, "success")                                                                        \
    /* an argument: the call was wrong and nothing happened */                                 \
    X(ERR_ARGUMENT, -1, "invalid argument")                                                    \
    X(ERR_SHAPE, -2, "shapes do not fit")                                                      \
    X(ERR_DTYPE, -3, "wrong data type")                                                        \
    X(ERR_DEVICE, -4, "wrong or missing device")                                               \
    X(ERR_SCOPE, -5, "tensors of unrelated or closed scopes")                                  \
    X(ERR_UNSUPPORTED, -6, "not supported")                                                    \
    X(ERR_IO, -7, "file or system call failed")                                                \
    X(ERR_FORMAT, -8, "malformed file")                                                        \
    X(ERR_END, -9, "no more data")                                                             \
    /* this step: the run may continue with the next */                                        \
    X(ERR_MEMORY, -20, "out of memory")                                                        \
    X(ERR_NONFINITE, -21, "a value is not finite")                                             \
    X(ERR_RANGE, -22, "an index is out of range")                                              \
    X(ERR_STATE, -23, "called in the wrong state")                                             \
    /* a peer: the group is lost */                                                            \
    X(ERR_PEER_LOST, -40, "a peer is gone")                                                    \
    X(ERR_TIMEOUT, -41, "a peer did not answer in time")                                       \
    X(ERR_MISMATCH, -42, "ranks disagree")                                                     \
    /* the process */                                                                          \
    X(ERR_INTERRUPTED, -60, "interrupted")                                                     \
    X(ERR_INTERNAL, -61, "internal error")

typedef enum choir_status {
#define X(name, value, text) CHOIR_##name = value,
    CHOIR_STATUS_LIST(X)
#undef X
} choir_status;

/** Makes the compiler warn of a call whose status is ignored. To turn the warnings off, define
 * CHOIR_CHECKED as nothing. */
#ifndef CHOIR_CHECKED
#define CHOIR_CHECKED __attribute__((warn_unused_result))
#endif

/** Returns the constant's name, such as "CHOIR_ERR_SHAPE"; never NULL. */
const char *choir_status_name(choir_status status);

/** Returns a short description, such as "shapes do not fit"; never NULL. */
const char *choir_status_text(choir_status status);

/** Returns the sentence that describes this thread's latest failure; "" if nothing has failed.
 */
const char *choir_error_message(void);

/** On failure, prints the message to stderr and exits with 1. For programs, not for libraries.
 */
void choir_check(choir_status status);

#ifdef __cplusplus
}
#endif
#endif
