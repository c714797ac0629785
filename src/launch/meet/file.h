/* The content of the file behind file://path, and whether it is still valid. */
#ifndef CHOIR_LAUNCH_MEET_FILE_H
#define CHOIR_LAUNCH_MEET_FILE_H

#include "base/base.h"
#include "launch/meet/meeting.h"
#include "launch/store/key.h"

enum { CHOIR__FILE_ADDRESSES = 8 };

typedef struct choir__meet_note {
    choir__member holder; /* rank 0: pid, host, machine */
    unsigned long long began;
    int address_count;
    struct {
        char host[64];
        int port;
    } addresses[CHOIR__FILE_ADDRESSES];
} choir__meet_note;

enum { CHOIR__NOTE_TEXT = 2048 };

void choir__meet_note_write(
    const choir__meet_note *note, const choir__store_key *key, char text[CHOIR__NOTE_TEXT]);
bool choir__meet_note_read(const char *text, choir__meet_note *note, choir__store_key *key);

#endif
