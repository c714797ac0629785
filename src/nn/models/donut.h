/* Donut's published form. */
#ifndef CHOIR_DONUT_H
#define CHOIR_DONUT_H

#include "nn/models/published.h"

extern const choir__published choir__donut_published;

#endif
