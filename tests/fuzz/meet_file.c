/* The file of file://, as a crash, an older release or another program may have left it. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "launch/meet/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), again[CHOIR__NOTE_TEXT];
    choir__meet_note note, same;
    choir__store_key key, same_key;
    memcpy(text, data, size);
    text[size] = '\0';
    if (choir__meet_note_read(text, &note, &key)) {
        choir__meet_note_write(&note, &key, again);
        if (!choir__meet_note_read(again, &same, &same_key) ||
            memcmp(&note, &same, sizeof note) != 0 || memcmp(&key, &same_key, sizeof key) != 0)
            abort();
    }
    free(text);
    return 0;
}
