/* Frozen weights that are held in fewer bits than ops compute with.
 *
 * Such a parameter (rows, cols) is a tensor of 32-bit words: (rows, words of a row). So ranks,
 * files and strategies move and cut it like any other tensor, and only ops that know `held`
 * read values: products, and lookups of a table's rows. Products on processors expand
 * values as they pack them; others have them in memory of their own while they run, in the
 * dtype in which they compute. A value has one formula everywhere (base/quant), so the op has
 * the bits of the same op on a tensor of the expanded values. */
#ifndef CHOIR_HELD_H
#define CHOIR_HELD_H

#include "base/quant/quant.h"
#include "tensor/scope.h"

struct choir__held {
    choir__quant type;
    int64_t cols; /* values of a row; the tensor's own columns are words */
};

/* Returns the words in which a row of cols values is held; 0: its blocks do not fit. */
int64_t choir__held_words(choir__quant type, int64_t cols);

/* Returns the shape of t's values. */
choir_shape choir__values_shape(const choir_tensor *t);

/* Turns a box of t's words into one of its values. */
void choir__held_box(const choir_tensor *t, int64_t *from, int64_t *at, int64_t *size);

/* Makes t, of a run, hold words of that type from now on; t has no memory. */
void choir__hold_as(choir_tensor *t, choir__quant type, int64_t cols);

/* Write and read a held tensor's values, row-major on the host: all of them, or `rows` rows
 * from `first` on. The device's cores encode. Errors: memory; as choir_write and choir_read. */
choir_status choir__held_write(choir_tensor *t, const float *values);
choir_status choir__held_write_rows(
    choir_tensor *t, int64_t first, int64_t rows, const float *values);
/* Sets rows to zero, in any type. */
choir_status choir__held_clear_rows(choir_tensor *t, int64_t first, int64_t rows);
choir_status choir__held_read(choir_tensor *t, float *values);

/* Reads the values (rows, cols) of w, and writes them to rows of t from `first` on. room: for
 * them; CHOIR__HELD_SLAB values, and a row, are enough at a time. */
enum { CHOIR__HELD_SLAB = 1 << 20 };
choir_status choir__held_round_rows(
    choir_tensor *t, int64_t first, choir_tensor *w, int64_t rows, float *room);
choir_status choir__held_no_room(int64_t values);

/* Makes *seen a handle of t's memory as files have it: 16-bit types as their dtype, others as
 * bytes. t itself if it is not held. */
void choir__held_as_stored(choir_tensor *seen, const choir_tensor *t);

/* Sets operand B of a product to w (rows, cols), or its transpose if `turned`. A held weight is
 * read where it is, if the device can, or expanded. The caller passes the result, which is NULL
 * if the scope has an error, to choir__held_done once the product is launched. */
choir_tensor *choir__held_operand(
    choir_scope *scope, choir__k_matmul *product, choir_tensor *w, bool turned);
void choir__held_done(choir_tensor *operand, const choir_tensor *w);

/* Copies row ids[i] of the table to row i of y. of: the table is a part of a larger one. */
void choir__held_rows(choir_tensor *y, const choir_tensor *table, const choir_tensor *ids,
    int64_t first, int64_t whole);

#endif
