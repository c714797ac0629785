/* Event files of TensorBoard: a record is its length and the message, each with a checksum
 * (CRC-32C, rotated and shifted as TensorFlow's files have it). */
#ifndef CHOIR_RECORD_EVENTS_H
#define CHOIR_RECORD_EVENTS_H

#include "base/base.h"
#include "tensorboard.pb-c.h"

/* Returns the CRC-32C (Castagnoli) of the bytes. Tests call it, too. */
uint32_t choir__crc32c(const void *data, size_t bytes);

typedef struct choir__event_file {
    char *path;
    int fd;
    unsigned char *record; /* bytes of the latest event */
    size_t room;
} choir__event_file;

/* Makes a new file in the folder, whose name sorts after the names of earlier files. Errors:
 * io. */
choir_status choir__event_file_open(choir__event_file *file, const char *folder, double time);
/* Adds an event by one write(). Errors: io. */
choir_status choir__event_file_add(choir__event_file *file, const ChoirTb__Event *event);
/* Errors: io. */
choir_status choir__event_file_close(choir__event_file *file);

#endif
