/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.c - addresses, by dlsym. */
#include "lib/base/symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *dcpk_symbols_find(void *library, const struct dcpk_symbol *symbols, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(library, symbols[i].name);

        if (found == NULL)
            return symbols[i].name;
        memcpy(symbols[i].at, &found, sizeof found);
    }
    return NULL;
}
