/* Far memory: what processors cannot read. A backend whose devices keep their tensors there
 * says how it is copied from and to the host's, and passed between processes. */
#ifndef CHOIR_FAR_H
#define CHOIR_FAR_H

#include "device/device.h"

enum { CHOIR__FAR_HANDLE = 64 };

/* Memory of one process that another may open. */
typedef struct choir__far_handle {
    unsigned char bytes[CHOIR__FAR_HANDLE];
    char device[64]; /* whose memory it is, the same in all processes: a PCI bus id */
} choir__far_handle;

typedef struct choir__far {
    bool (*owns)(const void *p);
    /* Blocking copies. The caller has waited for what devices do with far. Errors: the GPU's.
     */
    choir_status (*get)(void *host, const void *far, size_t bytes);
    choir_status (*put)(void *far, const void *host, size_t bytes);
    choir_status (*move)(void *to, const void *from, size_t bytes); /* both far */
    /* Host memory that copies fast; NULL: there is none. */
    void *(*pinned)(size_t bytes);
    void (*unpin)(void *p);
    /* Host memory of somebody's, from page borders, that devices are to reach (tests'
     * operands): its address for them, or NULL. */
    void *(*reach)(void *p, size_t bytes);
    void (*unreach)(void *p);
    /* A device's memory in other processes: p must be what came of a choir__block, or in it;
     * *offset is where, in what the other process opens. open's result ends with close. */
    choir_status (*show)(const void *p, choir__far_handle *handle, size_t *offset);
    void *(*open)(choir_device *device, const choir__far_handle *handle);
    void (*close)(void *p);
} choir__far;

/* Whose memory p is in; NULL: the host's. */
const choir__far *choir__far_of(const void *p);

#endif
