/* Names for messages, from the debug information of the program (names.c). */
#ifndef SOFTGPU_NAMES_H
#define SOFTGPU_NAMES_H

#include "block.h"

/* Returns "file:line" of an instruction, or the object's file and the offset in it. One of two
 * buffers, in turn. */
const char *softgpu_line_of(const char *instruction);

/* Returns the name of a kernel's function, without its arguments. */
const char *softgpu_kernel_name(const softgpu_kernel *kernel);

#endif
