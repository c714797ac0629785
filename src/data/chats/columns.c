/* Other names for the columns of records, "prompt=question,completion=answer": reads the
 * list, and finds a member of a record by the name that it has there. */
#include "data/chats/columns.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"

choir_status choir__columns_parse(const char *text, choir__columns *columns)
{
    memset(columns, 0, sizeof *columns);
    const choir__option known[] = {
#define CHOIR__COLUMN(name) {#name, CHOIR__TEXT, columns->name, 0, 0},
        CHOIR__COLUMNS(CHOIR__COLUMN)
#undef CHOIR__COLUMN
            {0}};
    if (!text)
        return CHOIR_OK;
    char *named = choir__format("columns:%s", text);
    choir_status status = choir__options_parse(named, "columns", known);
    free(named);
    return status;
}

const choir__json *choir__column_named(
    const choir__json *record, const char *own, const char *name)
{
    const choir__json *value = choir__json_get(record, *own ? own : name);
    return value && value->type != CHOIR__JSON_NULL ? value : NULL;
}
