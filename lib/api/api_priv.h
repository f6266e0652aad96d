/* SPDX-License-Identifier: Apache-2.0 */
/* api_priv.h - the structs of the handles of dcpkit.h. */
#ifndef DCPK_LIB_API_API_PRIV_H
#define DCPK_LIB_API_API_PRIV_H

#include "lib/api/dcpkit.h"
#include "lib/exec/exec.h"

struct dcpkit {
    struct dcpk_env env;
    struct dcpkit_options options;
    const char *stage; /* of the progress that is reported now */
    struct dcpk_error err;
};

struct dcpkit_checkpoint {
    dcpkit *session;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_exec *exec; /* NULL until something is read or hashed */
};

/* Begins a call of the session: clears the last failure. Returns its error. */
static inline struct dcpk_error *api_begin(dcpkit *session)
{
    session->err.status = DCPK_OK;
    session->err.text[0] = '\0';
    session->err.fixes = 0;
    return &session->err;
}

/*
 * Copy a struct of options that begins with its size: of a caller that was built with an earlier
 * header the end is missing, and is zero then. Errors: DCPK_EUSAGE for one of a later header.
 */
dcpk_status api_take(void *to, size_t most, const void *from, size_t n_bytes,
                     struct dcpk_error *err);

/* Checks that n_bytes, of a caller's struct, is a size that this library knows, whose struct has
 * `most`. Errors: DCPK_EUSAGE. */
dcpk_status api_check_size(size_t most, size_t n_bytes, struct dcpk_error *err);
/* Fill a caller's struct of figures, which begins with its checked size, that stays. */
void api_give(void *to, const void *from, size_t n_bytes);

/* Hand the bytes over as text that ends with a NUL; the caller of the library frees it. */
dcpk_status api_give_text(struct dcpk_bytes *bytes, char **text, struct dcpk_error *err);

#endif
