/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.h - the functions of a library that is loaded at run time. */
#ifndef DCPK_LIB_BASE_SYMBOLS_H
#define DCPK_LIB_BASE_SYMBOLS_H

#include <stddef.h>

/* A function's name and the function pointer that gets its address. Borrowed. */
struct dcpk_symbol {
    const char *name;
    void *at;
};

/* The name of the argument, where a macro of the vendor's header stands for the function. */
#define DCPK_SYMBOL_NAME(function) #function

/* Set all pointers to functions of `library`, a handle of dlopen. Returns the name of the first one
 * that it lacks, those before it set; NULL: it has all. */
const char *dcpk_symbols_find(void *library, const struct dcpk_symbol *symbols, size_t n);

#endif
