/* Passwords in URLs. They are used where they are given, and neither stored nor shown:
 * sentences (choir__error), records of jobs and studies, and command lines of other processes
 * leave them out. */
#ifndef CHOIR_BASE_SECRET_H
#define CHOIR_BASE_SECRET_H

#include <stdbool.h>

/* Takes the passwords out of the URLs of a text: http://me:secret@host becomes http://me@host,
 * and ?password=secret loses its value. Returns text. */
char *choir__hide_passwords(char *text);

/* Returns whether a URL names a user and no password, as one that was stored does. */
bool choir__lacks_password(const char *url);

#endif
