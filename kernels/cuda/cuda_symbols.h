/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_symbols.h - functions of a library that is loaded when it is asked for. */
#ifndef DCPK_KERNELS_CUDA_CUDA_SYMBOLS_H
#define DCPK_KERNELS_CUDA_CUDA_SYMBOLS_H

#include <stddef.h>

/* A function's name and the function pointer that gets its address. Borrowed. */
struct cuda_symbol {
    const char *name;
    void *at;
};

/* The name of the argument, where a macro of the vendor's header stands for the function. */
#define CUDA_SYMBOL_NAME(function) #function

/* Set all pointers to functions of `library`, a handle of dlopen. Returns the name of the first one
 * that it lacks, those before it set; NULL: it has all. */
const char *cuda_symbols_find(void *library, const struct cuda_symbol *symbols, size_t n);

#endif
