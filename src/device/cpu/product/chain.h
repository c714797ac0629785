/* How long the chains of products are (product.h). PAIRS_CHAIN: of the class `amx`. */
#ifndef CHOIR_PRODUCT_CHAIN_H
#define CHOIR_PRODUCT_CHAIN_H

enum { CHOIR__CHAIN = 512, CHOIR__PAIRS_CHAIN = 1024 };

#endif
