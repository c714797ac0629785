/* Device meshes: the ranks of a group as a grid with named dimensions, such as 2 x 4 of "data"
 * x "tensor", and a group along each dimension.
 *
 *     mesh 2x4            "tensor" of rank 5: ranks 4 5 6 7
 *     0 1 2 3             "data"   of rank 5: ranks 1 5
 *     4 5 6 7
 *
 * Ranks count in row-major order: ranks along the last dimension are neighbours, so use it for
 * the strategy that communicates most.
 *
 * Threads: as for groups. */
#ifndef CHOIR_MESH_H
#define CHOIR_MESH_H

#include <choir/group.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_MESH_MAX_DIMS = 8 };

typedef struct choir_mesh choir_mesh;

/**
 * Arranges the ranks of group in a grid. Collective. The mesh borrows the group and owns the
 * groups along its dimensions; free it before or after the group.
 *
 * @param names  (dims) names of the dimensions, outermost first: distinct, not empty
 * @param sizes  (dims) at least 1; one may be -1 and is then computed. Their product is the
 *               world size
 *
 * Errors: argument, and as choir_group_split.
 */
CHOIR_CHECKED choir_status choir_mesh_new(choir_group *group, int dims,
    const char *const *names, const int *sizes, choir_mesh **mesh);
void choir_mesh_free(choir_mesh *mesh); /* NULL is fine */

/** Returns the group of the ranks that differ from this one only in the named dimension,
 * ordered along it. The mesh owns it. NULL, with a message, if the dimension does not
 * exist. */
choir_group *choir_mesh_group(const choir_mesh *mesh, const char *name);

/** choir_mesh_size returns the size of a dimension, and choir_mesh_coordinate this rank's
 * position along it. Both return -1, with a message, if the dimension does not exist. */
int choir_mesh_size(const choir_mesh *mesh, const char *name);
int choir_mesh_coordinate(const choir_mesh *mesh, const char *name);

#ifdef __cplusplus
}
#endif
#endif
