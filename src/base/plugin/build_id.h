/* The identity of the build that runs: two builds of one version differ in it. */
#ifndef CHOIR_BUILD_ID_H
#define CHOIR_BUILD_ID_H

/* Returns the first 12 digits of the build id that the linker derived from the contents of the
 * program, or of the library that holds this function; "" if the linker wrote none. */
const char *choir__build_id(void);

#endif
