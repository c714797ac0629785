/* The file of file:// as text: a title with a version, the holder's process, the key, the
 * addresses. A reader refuses everything that is not exactly that, and keys are wiped from
 * memory. */
#include "launch/meet/file.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char title[] = "choir meeting 1\n";

void choir__meet_note_write(
    const choir__meet_note *note, const choir__store_key *key, char text[CHOIR__NOTE_TEXT])
{
    char hex[2 * sizeof key->bytes + 1];
    sodium_bin2hex(hex, sizeof hex, key->bytes, sizeof key->bytes);
    int used = snprintf(text, CHOIR__NOTE_TEXT, "%sholder %d %llu %s %s\nkey %s\n", title,
        note->holder.pid, note->began, note->holder.host, note->holder.machine, hex);
    for (int i = 0; i < note->address_count; i++)
        used += snprintf(text + used, (size_t)(CHOIR__NOTE_TEXT - used), "address %s %d\n",
            note->addresses[i].host, note->addresses[i].port);
    sodium_memzero(hex, sizeof hex);
}

/* Reads the holder's line and the key's. Returns the text behind them, or NULL. */
static const char *read_head(const char *text, choir__meet_note *note, choir__store_key *key)
{
    char hex[2 * sizeof key->bytes + 1];
    size_t bytes = 0;
    int at = 0;
    bool fine =
        sscanf(text, "holder %d %llu %63s %79s key %64s %n", &note->holder.pid, &note->began,
            note->holder.host, note->holder.machine, hex, &at) == 5 &&
        at &&
        !sodium_hex2bin(key->bytes, sizeof key->bytes, hex, strlen(hex), NULL, &bytes, NULL) &&
        bytes == sizeof key->bytes;
    sodium_memzero(hex, sizeof hex);
    return fine ? text + at : NULL;
}

bool choir__meet_note_read(const char *text, choir__meet_note *note, choir__store_key *key)
{
    int more = 0;
    *note = (choir__meet_note){0};
    if (strncmp(text, title, sizeof title - 1) != 0)
        return false;
    text = read_head(text + sizeof title - 1, note, key);
    if (!text)
        return false;
    for (; *text; text += more) {
        int i = note->address_count;
        more = 0;
        if (i == CHOIR__FILE_ADDRESSES ||
            sscanf(text, "address %63s %d %n", note->addresses[i].host,
                &note->addresses[i].port, &more) != 2 ||
            !more || note->addresses[i].port < 1 || note->addresses[i].port > 65535)
            return false;
        note->address_count++;
    }
    return note->address_count > 0 && note->holder.pid > 0;
}
