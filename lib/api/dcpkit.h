/* SPDX-License-Identifier: Apache-2.0 */
/* dcpkit.h - the library: open, read, hash and convert checkpoints of Megatron. For C and C++. */
/*
 *     dcpkit *session;
 *     dcpkit_checkpoint *ckpt;
 *     size_t i;
 *
 *     if (dcpkit_new(NULL, &session) != DCPKIT_OK)
 *         return 1;
 *     if (dcpkit_open(session, "run/iter_0000004", NULL, &ckpt) != DCPKIT_OK ||
 *         dcpkit_tensor_find(ckpt, "decoder.final_layernorm.weight", &i) != DCPKIT_OK ||
 *         dcpkit_read(ckpt, i, NULL, NULL, weights, sizeof weights) != DCPKIT_OK)
 *         complain(dcpkit_error(session));
 *     dcpkit_close(ckpt);
 *     dcpkit_free(session);
 *
 * A session is what the program has of the library: how many threads and how much memory it may
 * use, how it hears of progress, and the sentence of the last failure. One thread uses a session,
 * and the checkpoints that it opened, at a time; other sessions are independent of it.
 *
 * Functions that can fail return a status, of enum dcpkit_status. Outputs are set on success only.
 * After a failure dcpkit_error says what was wrong and where.
 * NULL is a no-op for what closes and frees. What a handle gives out is borrowed from it, unless
 * said otherwise; text is UTF-8 and ends with a NUL. Nothing is printed, no signal is caught and no
 * global state is kept. A checkpoint that is read is never written to.
 *
 * Structs that a caller fills begin with their size, so that later versions of the library can tell
 * earlier ones apart: DCPKIT_INIT(struct dcpkit_options) sets it, and everything else to zero,
 * which stands for the default.
 */
#ifndef DCPKIT_H
#define DCPKIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define DCPKIT_INIT(type)                                                                          \
    ([] {                                                                                          \
        type made = {};                                                                            \
        made.size = sizeof made;                                                                   \
        return made;                                                                               \
    }())
#else
#define DCPKIT_INIT(type) ((type){.size = sizeof(type)})
#endif

#if defined(__GNUC__)
#define DCPKIT_API __attribute__((visibility("default")))
#else
#define DCPKIT_API
#endif

#define DCPKIT_VERSION_MAJOR 0
#define DCPKIT_VERSION_MINOR 1
#define DCPKIT_VERSION_PATCH 0

/* What went wrong, coarsely. */
enum dcpkit_status {
    DCPKIT_OK = 0,
    DCPKIT_EUSAGE,       /* arguments do not fit together, or an output exists */
    DCPKIT_EFORMAT,      /* bytes of a file are malformed */
    DCPKIT_EUNSUPPORTED, /* well formed, but neither read nor written */
    DCPKIT_ERANGE,       /* a number of a file passes a limit */
    DCPKIT_EMISMATCH,    /* two things that must agree do not */
    DCPKIT_ENOMEM,
    DCPKIT_EIO,       /* the system refused: missing file, permission, no space, read error */
    DCPKIT_ECANCELLED /* `progress` asked to stop */
};

/* "0.1.0": of the library that runs, which may be later than this header. */
DCPKIT_API const char *dcpkit_version(void);

/* --- sessions --- */

typedef struct dcpkit dcpkit;

struct dcpkit_options {
    size_t size;           /* of this struct */
    int n_threads;         /* 0: the CPUs that the process may use, at most 16 */
    uint64_t memory_bytes; /* of all buffers together; 0: 256 MiB */
    /*
     * Called by functions that take long, with the bytes done of those of a stage ("converting"),
     * from any thread, one call at a time, at most some ten times a second. Another answer than 0
     * stops the work with DCPKIT_ECANCELLED. It may not call functions of the session. NULL: none.
     */
    int (*progress)(void *context, const char *stage, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
};

/* options: NULL: the defaults. Errors: DCPKIT_EUSAGE for options that cannot be, DCPKIT_ENOMEM. */
DCPKIT_API int dcpkit_new(const struct dcpkit_options *options, dcpkit **session);
/* Checkpoints that it opened must be closed before. */
DCPKIT_API void dcpkit_free(dcpkit *session);

/* The sentence of the session's last failure; "" when there was none. */
DCPKIT_API const char *dcpkit_error(const dcpkit *session);

/* What a caller of this library can do about a failure. */
enum dcpkit_fix {
    DCPKIT_FIX_REPLACE = 1,        /* convert with DCPKIT_REPLACE */
    DCPKIT_FIX_RESUME = 2,         /* convert with DCPKIT_RESUME */
    DCPKIT_FIX_MEMORY = 4,         /* make a session with more memory_bytes */
    DCPKIT_FIX_WEIGHTS_ONLY = 8,   /* convert with DCPKIT_WEIGHTS_ONLY */
    DCPKIT_FIX_SWIGLU = 16,        /* set swiglu in the options of dcpkit_convert */
    DCPKIT_FIX_NO_MESH = 1024,     /* convert without a mesh */
    DCPKIT_FIX_NO_PROOF = 4096,    /* convert without DCPKIT_PROVE */
    DCPKIT_FIX_NO_INTEGRITY = 8192 /* convert without DCPKIT_INTEGRITY */
};
/* Which of these would mend the session's last failure: a set, often 0. */
DCPKIT_API unsigned dcpkit_fixes(const dcpkit *session);

/* Name number `index` of the formats that are read, NULL past the end. */
DCPKIT_API const char *dcpkit_format_name(size_t index);

/* --- checkpoints --- */

typedef struct dcpkit_checkpoint dcpkit_checkpoint;

/*
 * Open an iteration folder, a run folder (its newest iteration) or an archive. Reads metadata only.
 * format: a name of dcpkit_format_name, NULL: by looking. Errors: DCPKIT_EUNSUPPORTED when it is no
 * checkpoint, DCPKIT_EFORMAT when it is a damaged one, and all others.
 */
DCPKIT_API int dcpkit_open(dcpkit *session, const char *path, const char *format,
                           dcpkit_checkpoint **ckpt);
DCPKIT_API void dcpkit_close(dcpkit_checkpoint *ckpt);

struct dcpkit_summary {
    const char *format;     /* "torch_dist" */
    const char *generation; /* of the format: "B"; "" where it has one */
    size_t n_tensors, n_objects, n_files;
    uint64_t tensor_bytes; /* elements of all tensors */
};
DCPKIT_API void dcpkit_summary(const dcpkit_checkpoint *ckpt, struct dcpkit_summary *summary);

/* A stored tensor. */
struct dcpkit_tensor {
    const char *key;
    const char *dtype; /* torch's name: "bfloat16", "float8_e4m3fn" */
    size_t elem_bytes;
    int rank;             /* 0 to 16 */
    const int64_t *shape; /* rank of them */
    size_t n_chunks;
};
/* index: below n_tensors, in the order of the metadata. */
DCPKIT_API int dcpkit_tensor_at(const dcpkit_checkpoint *ckpt, size_t index,
                                struct dcpkit_tensor *tensor);
/* Errors: DCPKIT_EUSAGE when there is none of that key. */
DCPKIT_API int dcpkit_tensor_find(dcpkit_checkpoint *ckpt, const char *key, size_t *index);

/* A stored part of a tensor: elements [offset, offset + extent) of each axis. */
struct dcpkit_chunk {
    const int64_t *offset, *extent;
    const char *file;             /* its name in the folder */
    uint64_t first_byte, n_bytes; /* of the item that holds it, in the file */
};
DCPKIT_API int dcpkit_chunk_at(dcpkit_checkpoint *ckpt, size_t tensor, size_t index,
                               struct dcpkit_chunk *chunk);

/*
 * Read the elements [offset, offset + extent) of each axis of a tensor, put together from all
 * chunks, row-major, into out. offset and extent: rank of them; both NULL: all of it. n_bytes: room
 * at out, at least what the elements take. Errors: DCPKIT_EUSAGE for a box outside the tensor or
 * too little room; those of reading, which leave `out` undefined.
 */
DCPKIT_API int dcpkit_read(dcpkit_checkpoint *ckpt, size_t tensor, const int64_t *offset,
                           const int64_t *extent, void *out, size_t n_bytes);

/* The key of an object, of which there are n_objects; NULL past the end. */
DCPKIT_API const char *dcpkit_object_key(const dcpkit_checkpoint *ckpt, size_t index);

/*
 * An object by its key, or state beside the tensors by its name, the same in every format ("args",
 * "args.lr", "iteration", "common": all of it), as JSON: dicts and lists as such, tuples as lists,
 * tensors and instances of classes as {"__class__": ...}. Nothing of a pickle is executed.
 * *json: freed by dcpkit_text_free. Errors: DCPKIT_EUSAGE when there is none of that name; those of
 * reading.
 */
DCPKIT_API int dcpkit_json(dcpkit_checkpoint *ckpt, const char *name, char **json);
DCPKIT_API void dcpkit_text_free(char *text);

/*
 * XXH3-128 of the elements of tensors, row-major, as `dcpkit hash` prints it: 16 bytes each, most
 * significant first. tensors: n indices, NULL: all, in order. Errors: those of reading.
 */
DCPKIT_API int dcpkit_hash(dcpkit_checkpoint *ckpt, const size_t *tensors, size_t n,
                           uint8_t (*hashes)[16]);

/* --- jobs --- */

/*
 * Read everything and check it: structure, cover, checksums, pickles, Megatron's list of files;
 * with a source, which may be NULL, that the checkpoint is a faithful conversion of it, tensor by
 * tensor. Errors: DCPKIT_EFORMAT and DCPKIT_EMISMATCH name the first check that fails: the answer
 * is no; with any other it could not be had.
 */
DCPKIT_API int dcpkit_verify(dcpkit_checkpoint *ckpt, dcpkit_checkpoint *source);

/*
 * Do two checkpoints hold the same: tensors bit for bit and training state by value, whatever their
 * formats, layouts and spellings? *n_differences: how many do not. *first: a sentence about the
 * first, freed by dcpkit_text_free; NULL when there is none. first may be NULL.
 */
DCPKIT_API int dcpkit_compare(dcpkit_checkpoint *a, dcpkit_checkpoint *b, uint64_t *n_differences,
                              char **first);

enum dcpkit_convert_flags {
    DCPKIT_REPLACE = 1,      /* replace an output that exists */
    DCPKIT_RESUME = 2,       /* continue one that was cut short */
    DCPKIT_WEIGHTS_ONLY = 4, /* leave the optimizer out */
    DCPKIT_CHECK_INPUT = 8,  /* check every checksum of the source first */
    DCPKIT_PROVE = 16,       /* read the output back and prove it, before it is published */
    DCPKIT_INTEGRITY = 32    /* add Megatron's integrity.json */
};

/* Sizes of the run that will load a torch_dist or zarr output, which is then cut as that run would
 * cut it. All 0: chunks as they read fastest, which any run loads. */
struct dcpkit_mesh {
    int64_t tp, pp, ep, cp; /* 0: 1 */
    int64_t dp, etp, vpp;   /* 0: not stated */
};

struct dcpkit_convert_options {
    size_t size;      /* of this struct */
    const char *from; /* a format; NULL: by looking */
    unsigned flags;   /* of enum dcpkit_convert_flags */
    int swiglu;       /* 1: fc1 holds gate and up rows, -1: it does not, 0: as args.swiglu says */
    struct dcpkit_mesh mesh;
};

/*
 * Convert the checkpoint at `in`, which is never touched, to the format `to` ("torch_dist", "zarr"
 * or "fsdp_dtensor") at `out`: a run folder, a folder iter_NNNNNNN, or a name that ends in ".tar".
 * options: NULL: the defaults.
 * *report: what became of the keys, as JSON: "n_kept", "n_renamed", "n_made", "n_cast",
 * "n_aliased", "n_left_out", and "left_out": key, reason and whether it is harmless, of each; freed
 * by dcpkit_text_free; report may be NULL. On failure nothing is left that looks whole. Errors:
 * DCPKIT_EUSAGE when `out` exists; all others.
 */
DCPKIT_API int dcpkit_convert(dcpkit *session, const char *in, const char *out, const char *to,
                              const struct dcpkit_convert_options *options, char **report);

#ifdef __cplusplus
}
#endif

#endif
