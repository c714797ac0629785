/* A mesh is a group that is split once per dimension: the color of a rank is its position
 * without that dimension's coordinate. */
#include <choir/mesh.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/group.h"

struct choir_mesh {
    int dims;
    struct dimension {
        char *name;
        int size, coordinate, stride; /* stride: distance of neighbors, in ranks */
        choir_group *group;
    } dim[CHOIR_MESH_MAX_DIMS];
};

static choir_status check_names(int dims, const char *const *names)
{
    if (dims < 1 || dims > CHOIR_MESH_MAX_DIMS)
        return choir__error(CHOIR_ERR_ARGUMENT, "a mesh: expected 1 to %d dimensions, got %d",
            CHOIR_MESH_MAX_DIMS, dims);
    if (!names)
        return choir__missing("choir_mesh_new", "names");
    for (int d = 0; d < dims; d++) {
        if (!names[d] || !*names[d])
            return choir__error(
                CHOIR_ERR_ARGUMENT, "mesh: dimension %d needs a name, as \"data\"", d);
        for (int e = 0; e < d; e++)
            if (strcmp(names[d], names[e]) == 0)
                return choir__error(
                    CHOIR_ERR_ARGUMENT, "mesh: two dimensions are named '%s'", names[d]);
    }
    return CHOIR_OK;
}

/* Computes the one size that is not given. */
static choir_status complete(int world, int dims, const int *given, int *sizes)
{
    int64_t known = 1;
    int open = -1;
    char text[96] = "";
    for (int d = 0; d < dims; d++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%d", d ? "x" : "", given[d]);
    }
    for (int d = 0; d < dims; d++) {
        if (given[d] == -1 && open < 0)
            open = d;
        else if (given[d] < 1)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "mesh: dimension %d: expected a size of 1 or more, or one -1, got %d", d,
                given[d]);
        else if ((known *= given[d]) > world)
            break;
        sizes[d] = given[d];
    }
    if (open >= 0 && known <= world && world % known == 0)
        sizes[open] = (int)(world / known);
    else if (open >= 0 || known != world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a mesh of %s does not fit %d ranks: their number must be "
            "the product of the sizes",
            text, world);
    return CHOIR_OK;
}

choir_status choir_mesh_new(
    choir_group *group, int dims, const char *const *names, const int *given, choir_mesh **mesh)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!mesh)
        return choir__missing(__func__, "mesh");
    int sizes[CHOIR_MESH_MAX_DIMS] = {0}, rank = choir_group_rank(group), stride = 1;
    choir_status status = check_names(dims, names);
    if (status == CHOIR_OK && !given)
        status = choir__missing(__func__, "sizes");
    if (status == CHOIR_OK)
        status = complete(choir_group_world(group), dims, given, sizes);
    if (status != CHOIR_OK)
        return status;
    choir_mesh *m = choir__calloc(1, sizeof *m);
    m->dims = dims;
    for (int d = dims - 1; d >= 0; d--) {
        m->dim[d] = (struct dimension){.name = choir__strdup(names[d]),
            .size = sizes[d],
            .coordinate = rank / stride % sizes[d],
            .stride = stride};
        stride *= sizes[d];
    }
    for (int d = 0; d < dims && status == CHOIR_OK; d++) {
        struct dimension *dim = &m->dim[d];
        const choir__coordinate of = {dim->stride, dim->size};
        status = choir__group_split_by(group, choir__color_without, &of, names[d], &dim->group);
    }
    if (status == CHOIR_OK)
        *mesh = m;
    else
        choir_mesh_free(m);
    return status;
}

void choir_mesh_free(choir_mesh *mesh)
{
    for (int d = 0; mesh && d < mesh->dims; d++) {
        choir_group_free(mesh->dim[d].group);
        free(mesh->dim[d].name);
    }
    free(mesh);
}

static const struct dimension *find(const choir_mesh *mesh, const char *name)
{
    char list[200] = "";
    for (int d = 0; d < mesh->dims; d++) {
        size_t used = strlen(list);
        if (strcmp(mesh->dim[d].name, name) == 0)
            return &mesh->dim[d];
        snprintf(list + used, sizeof list - used, "%s%s", d ? ", " : "", mesh->dim[d].name);
    }
    choir__error(CHOIR_ERR_ARGUMENT, "the mesh has no dimension '%s': it has %s", name, list);
    return NULL;
}

choir_group *choir_mesh_group(const choir_mesh *mesh, const char *name)
{
    if (choir__lacks(mesh, __func__, "mesh"))
        return NULL;
    if (choir__lacks(name, __func__, "name"))
        return NULL;
    const struct dimension *d = find(mesh, name);
    return d ? d->group : NULL;
}

int choir_mesh_size(const choir_mesh *mesh, const char *name)
{
    if (choir__lacks(mesh, __func__, "mesh") || choir__lacks(name, __func__, "name"))
        return -1;
    const struct dimension *d = find(mesh, name);
    return d ? d->size : -1;
}

int choir_mesh_coordinate(const choir_mesh *mesh, const char *name)
{
    if (choir__lacks(mesh, __func__, "mesh") || choir__lacks(name, __func__, "name"))
        return -1;
    const struct dimension *d = find(mesh, name);
    return d ? d->coordinate : -1;
}
