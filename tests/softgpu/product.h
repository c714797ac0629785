/* A product of matrices as an operation of a stream (product.c). */
#ifndef SOFTGPU_PRODUCT_H
#define SOFTGPU_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct softgpu_matrix {
    void *p;
    int type;             /* cudaDataType */
    int64_t down, across; /* elements between two rows, between two columns */
    int64_t batch;
} softgpu_matrix;

typedef struct softgpu_product {
    softgpu_matrix a, b, c, d; /* (m, k), (k, n), (m, n); c.p NULL: beta is 0 */
    const void *bias;          /* (m), of d's type; or NULL */
    int64_t bias_batch;
    void *a_sums, *b_sums;  /* (m), (n), of d's type: the operand's sums over k; or NULL */
    softgpu_matrix gelu_in; /* p: its slope at each element is a factor of d; or NULL */
    int64_t m, n, k, batch;
    double alpha, beta;
    bool tf32;   /* operands of f32 are rounded to 11 bits */
    void *space; /* workspace, which is overwritten */
    size_t space_bytes;
} softgpu_product;

size_t softgpu_size_of(int type);
void softgpu_run_product(const void *args); /* a softgpu_task */

#endif
