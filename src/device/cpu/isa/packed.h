/* A product whose right-hand matrix is shared by many calls. oneDNN packs it once for all of
 * them; the plain product copies it in each call anyway. */
#ifndef CHOIR_ISA_PACKED_H
#define CHOIR_ISA_PACKED_H

#include "device/cpu/isa/isa.h"

#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"

typedef choir__onednn_packed packed_product;
#define packed_open   choir__onednn_pack
#define packed_matmul choir__onednn_matmul_packed
#else
typedef struct packed_product {
    void *extra; /* scratch for the caller */
} packed_product;

INLINE bool packed_open(packed_product *p, const choir__k_matmul *k, size_t extra)
{
    (void)k;
    p->extra = choir__cpu_scratch(choir__cpu_context_current(), extra);
    return true;
}

INLINE void packed_matmul(const packed_product *p, const choir__k_matmul *k)
{
    (void)p;
    KERNEL(matmul)(k);
}
#endif

#endif
