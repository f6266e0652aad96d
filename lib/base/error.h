/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - the one error type: a status and the sentence that goes with it. */
#ifndef DCPK_LIB_BASE_ERROR_H
#define DCPK_LIB_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* The kind of a failure: a caller can act on it. The sentence in dcpk_error has the details. */
typedef enum dcpk_status {
    DCPK_OK = 0,
    DCPK_EUSAGE,       /* the caller's options do not fit together, or an output exists */
    DCPK_EFORMAT,      /* bytes that lie or are malformed */
    DCPK_EUNSUPPORTED, /* well formed, but not something we read or write */
    DCPK_ERANGE,       /* a number from a file passes a limit or overflows */
    DCPK_EMISMATCH,    /* two things that must agree do not */
    DCPK_ENOMEM,
    DCPK_EIO,        /* the system refused: missing file, permission, no space, read error */
    DCPK_ECANCELLED, /* stopped by a signal or by another worker's failure */
} dcpk_status;

/*
 * The caller's remedies, as a set: a sentence names the fault and its place, and a caller words the
 * remedy in its own language, an option of a command line or an argument of a function.
 */
enum dcpk_fix {
    DCPK_FIX_REPLACE = 1,        /* replace the output that is there */
    DCPK_FIX_RESUME = 2,         /* continue the partial output */
    DCPK_FIX_MEMORY = 4,         /* raise the limit on memory */
    DCPK_FIX_WEIGHTS_ONLY = 8,   /* leave the optimizer state out */
    DCPK_FIX_SWIGLU = 16,        /* state which fc1 are gated */
    DCPK_FIX_GROUP_MAP = 32,     /* map parameters to parameter groups */
    DCPK_FIX_VOCAB_SIZE = 64,    /* state the model's number of tokens */
    DCPK_FIX_BUCKET_SIZE = 128,  /* state the size of DDP's buckets */
    DCPK_FIX_OTHER_SHARDS = 256, /* cut the target for another number of ranks */
    DCPK_FIX_NO_SHARDS = 512,    /* cut the target for no number of ranks */
    DCPK_FIX_NO_MESH = 1024,     /* cut the target for no mesh */
    DCPK_FIX_OWN_MAPPING = 2048, /* convert by our own mapping of keys */
    DCPK_FIX_NO_READ_BACK = 4096,
    DCPK_FIX_NO_INTEGRITY = 8192, /* write no integrity.json */
    DCPK_FIX_LIST_BUILT = 16384,  /* list what is built in */
    DCPK_FIX_LORA = 32768,        /* merge an adapter, with its base and its alpha */
    DCPK_FIX_MODEL_FLAGS = 65536, /* describe the model as the checkpoint has it, or convert that */
    DCPK_FIX_NO_LOAD_OPTIM = 131072,   /* load weights alone */
    DCPK_FIX_FINETUNE = 262144,        /* load weights alone, and begin at iteration 0 */
    DCPK_FIX_SCHEDULE = 524288,        /* choose between the run's schedule and the checkpoint's */
    DCPK_FIX_ALLOW_OVERFLOW = 1048576, /* let casts make finite elements infinite */
    DCPK_FIX_TRUST = 2097152,          /* state which of weights and masters are right */
    DCPK_FIX_REPAIR = 4194304,         /* put back what padded DDP buckets moved */
    DCPK_FIX_GTP = 8388608,       /* take weights of generalized tensor parallelism as stored */
    DCPK_FIX_ARGS = 16777216,     /* give the args that the checkpoint lacks */
    DCPK_FIX_DROP = 33554432,     /* leave out what is not recognised */
    DCPK_FIX_RENAME = 67108864,   /* give keys the names that are known */
    DCPK_FIX_PREFIX = 134217728,  /* state the prefix of the keys */
    DCPK_FIX_REWRITE = 268435456, /* ask for another form of the same format */
    DCPK_FIX_DETECT = 536870912,  /* name no format */
    DCPK_FIX_CONFIG = 1073741824, /* give the configuration of the model */
};
#define DCPK_N_FIXES 31

#define DCPK_ERROR_BYTES 2048

/*
 * An error under way. `text` holds the frames, outermost first, joined by ": ".
 * A plain value: zero it (or DCPK_ERROR_INIT) before use, nothing to release.
 */
struct dcpk_error {
    dcpk_status status;
    unsigned fixes; /* of enum dcpk_fix */
    char text[DCPK_ERROR_BYTES];
};
#define DCPK_ERROR_INIT                                                                            \
    {                                                                                              \
        DCPK_OK, 0, ""                                                                             \
    }

/*
 * Record a failure at the place that finds it; returns `status`, so that `return dcpk_fail(...)`
 * reads well. fmt: printf format of one clause without a final full stop or newline. Text that does
 * not fit is cut. Allocates nothing.
 */
dcpk_status dcpk_fail(struct dcpk_error *err, dcpk_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As dcpk_fail, and `fixes` (of enum dcpk_fix) would mend it. */
dcpk_status dcpk_fail_fix(struct dcpk_error *err, dcpk_status status, unsigned fixes,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As dcpk_fail with DCPK_EIO and the text of errno `code` (strerror_r) at the end. */
dcpk_status dcpk_fail_errno(struct dcpk_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put "<fmt>: " before the text: what the calling function was doing to which object. Returns
 * the error's status, as dcpk_fail does. */
dcpk_status dcpk_context(struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Put text after that of an error, from other memory than its own. Its status and fixes stay. */
void dcpk_append(struct dcpk_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* True for a fault of content, not of the system. */
bool dcpk_status_is_content(dcpk_status status);

/* Forget a failure. (Clearing all of `text` would cost more than most calls that may fail.) */
static inline void dcpk_error_clear(struct dcpk_error *err)
{
    err->status = DCPK_OK;
    err->fixes = 0;
    err->text[0] = '\0';
}

/* DCPK_OK for a pointer that was made; the status of `err` for NULL. */
static inline dcpk_status dcpk_made(const void *made, const struct dcpk_error *err)
{
    return made == NULL ? err->status : DCPK_OK;
}

#endif
