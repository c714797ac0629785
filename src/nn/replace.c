/* A module takes the place of another in a tree. The tree is named again at its next use;
 * values that were drawn stay, and new parameters draw theirs. */
#include <stdlib.h>

#include "nn/module.h"
#include "tensor/run.h"

/* Parameters of the old module are named again wherever they get to. */
static void forget_names(choir_module *m)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            forget_names(e->child);
        if (e->kind == CHOIR__PARAM)
            e->tensor->param->name = "";
    }
}

/* Drops marks about sums between the old module and its neighbours. */
static void drop_marks(choir_module *m, const choir_module *old)
{
    choir__contraction **link = &m->inside->contractions;
    while (*link)
        if ((*link)->up == old || (*link)->down == old)
            *link = (*link)->next;
        else
            link = &(*link)->next;
}

/* Returns an error if anything has been made for the parameters as they are. */
static choir_status still_free(choir_module *root, const char *path)
{
    int count;
    choir__param **params = choir__module_named_params(root, &count);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        if (params[i]->book || params[i]->boxes || params[i]->local != params[i]->tensor)
            status = choir__error(CHOIR_ERR_STATE,
                "choir_module_replace: '%s' is part of a model that trains or is distributed: "
                "replace modules before an optimizer, a strategy or a backward",
                path);
    free(params);
    return status;
}

static choir_status replaceable(
    choir_module *module, const char *path, const choir_module *old, const choir_module *with)
{
    if (!old || old == module)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_module_replace: '%s' has no module at '%s'", module->type->name, path);
    if (with->run != module->run)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_module_replace: expected a module of the same run for '%s'", path);
    if (with->parent)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_module_replace: the module for '%s' is already a part of another, as '%s'",
            path, with->name);
    return CHOIR_OK;
}

choir_status choir_module_replace(
    choir_module *module, const char *path, choir_module *with, choir_module **old)
{
    choir_status status = choir__use_module(module, __func__);
    if (status == CHOIR_OK)
        status = choir__use_module(with, __func__);
    if (status != CHOIR_OK)
        return status;
    if (!path)
        return choir__missing(__func__, "path");
    choir_module *was = choir_module_at(module, path), *root = module;
    status = replaceable(module, path, was, with);
    while (root->parent)
        root = root->parent;
    if (status == CHOIR_OK)
        status = root == with
                     ? choir__error(CHOIR_ERR_ARGUMENT,
                           "choir_module_replace: a module cannot be a part of itself, "
                           "as '%s'",
                           path)
                     : still_free(root, path);
    if (status != CHOIR_OK)
        return status;
    for (choir_module *m = was->parent; m; m = m->parent)
        drop_marks(m, was);
    choir__module_entry *e = was->parent->inside->entries;
    while (e->kind != CHOIR__CHILD || e->child != was)
        e = e->next;
    *(choir_module **)((char *)was->parent + e->field) = e->child = with;
    choir__step_turned(module->run, was);
    choir__step_turned(module->run, with);
    with->parent = was->parent;
    with->name = e->name;
    choir_module_train(with, was->training);
    forget_names(with);
    was->parent = NULL;
    was->name = was->path = "";
    forget_names(was);
    choir__module_grown(with);
    if (old)
        *old = was;
    return CHOIR_OK;
}
