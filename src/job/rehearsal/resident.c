/* The resident memory of a job's processes on CPU devices: what their devices take, the samples
 * that wait for a step, and the program itself.
 *
 * The program is one number: its code and its libraries' (6 MiB), tables, tapes, queues and the
 * room of products (2 to 5 MiB). It differs from job to job by some MiB, and a rehearsal
 * cannot know by how many. */
#include "job/rehearsal/rehearsal.h"

enum { PROGRAM = 9 << 20 };

size_t choir__rehearsal_resident(const choir__rehearsal *r)
{
    size_t bytes = (size_t)r->world * PROGRAM;
    for (int i = 0; i < r->device_count; i++)
        bytes += (size_t)r->devices[i].alike *
                 (r->devices[i].counts.bytes_resident + r->devices[i].staged);
    return bytes;
}
