/* Shapes of tables, which must be constant: S2(3, 4) is choir_dims(3, 4). */
#ifndef CHOIR_TESTS_SHAPES_H
#define CHOIR_TESTS_SHAPES_H

#define S1(a)                                                                                  \
    {                                                                                          \
        1,                                                                                     \
        {                                                                                      \
            a                                                                                  \
        }                                                                                      \
    }
#define S2(a, b)                                                                               \
    {                                                                                          \
        2,                                                                                     \
        {                                                                                      \
            a, b                                                                               \
        }                                                                                      \
    }
#define S3(a, b, c)                                                                            \
    {                                                                                          \
        3,                                                                                     \
        {                                                                                      \
            a, b, c                                                                            \
        }                                                                                      \
    }
#define S4(a, b, c, d)                                                                         \
    {                                                                                          \
        4,                                                                                     \
        {                                                                                      \
            a, b, c, d                                                                         \
        }                                                                                      \
    }

#define S5(a, b, c, d, e)                                                                      \
    {                                                                                          \
        5,                                                                                     \
        {                                                                                      \
            a, b, c, d, e                                                                      \
        }                                                                                      \
    }

#endif
