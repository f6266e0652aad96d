/* SPDX-License-Identifier: Apache-2.0 */
/* dcpkit.h - the library: open, read, hash and convert checkpoints of Megatron, and move tensors
 * between the layouts of ranks. For C and C++. */
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
 * A session is the program's handle of the library: its threads and memory, its progress function,
 * and the sentence of the last failure. One thread uses a session,
 * and what it opened, at a time; other sessions are independent of it.
 *
 * Functions that can fail return a status, of enum dcpkit_status. Outputs are set on success only.
 * After a failure dcpkit_error gives what was wrong and where. NULL is a no-op for functions that
 * close and free. Results of a handle are borrowed from it, unless
 * stated otherwise; text is UTF-8 and ends with a NUL. Nothing is printed, no signal is caught and
 * no global state is kept. A checkpoint that is read is never written to.
 *
 * Structs of options and of figures begin with their size, so that later versions of the library
 * recognise earlier ones: DCPKIT_INIT(struct dcpkit_options) sets it, and everything else to
 * zero, which means the default. Until 1.0 a minor version may change what this header
 * declares, and the name of the shared library with it.
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

/* The kind of a failure. */
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

/* "MAJOR.MINOR.PATCH" of the library that runs, which may be later than this header. */
DCPKIT_API const char *dcpkit_version(void);

/* --- sessions --- */

typedef struct dcpkit dcpkit;

struct dcpkit_options {
    size_t size;           /* of this struct */
    int n_threads;         /* 0: the CPUs that the process may use, at most 16 */
    uint64_t memory_bytes; /* of all buffers together; 0: 256 MiB */
    /*
     * Called during long work with the bytes that are done of a stage ("converting"), from any
     * thread, one call at a time, about ten times a second at most. A result other than 0 stops the
     * work with DCPKIT_ECANCELLED. It must not call functions of the session. NULL: none.
     */
    int (*progress)(void *context, const char *stage, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
};

/* options: NULL: the defaults. Errors: DCPKIT_EUSAGE for invalid options, DCPKIT_ENOMEM. */
DCPKIT_API int dcpkit_new(const struct dcpkit_options *options, dcpkit **session);
/* Frees a session. Close its checkpoints and engines first. */
DCPKIT_API void dcpkit_free(dcpkit *session);

/* The sentence of the session's last failure; "" when there was none. */
DCPKIT_API const char *dcpkit_error(const dcpkit *session);

/* The caller's remedies for a failure. */
enum dcpkit_fix {
    DCPKIT_FIX_REPLACE = 1,         /* convert with DCPKIT_REPLACE */
    DCPKIT_FIX_RESUME = 2,          /* convert with DCPKIT_RESUME */
    DCPKIT_FIX_MEMORY = 4,          /* make a session with more memory_bytes */
    DCPKIT_FIX_WEIGHTS_ONLY = 8,    /* convert with DCPKIT_WEIGHTS_ONLY */
    DCPKIT_FIX_SWIGLU = 16,         /* set swiglu in the options of dcpkit_convert */
    DCPKIT_FIX_NO_MESH = 1024,      /* convert without a mesh */
    DCPKIT_FIX_NO_PROOF = 4096,     /* convert without DCPKIT_PROVE */
    DCPKIT_FIX_NO_INTEGRITY = 8192, /* convert without DCPKIT_INTEGRITY */
    DCPKIT_FIX_CONFIG = 1073741824  /* set hf_config in the options of dcpkit_convert */
};
/* The remedies for the session's last failure: a set, often 0. */
DCPKIT_API unsigned dcpkit_fixes(const dcpkit *session);

/* Name number `index` of the formats that are read, NULL past the end. */
DCPKIT_API const char *dcpkit_format_name(size_t index);

/* --- checkpoints --- */

typedef struct dcpkit_checkpoint dcpkit_checkpoint;

/*
 * Open an iteration folder, a run folder (its newest iteration) or an archive. Reads metadata only.
 * format: a name of dcpkit_format_name, NULL: detected. Errors: DCPKIT_EUNSUPPORTED for a
 * folder that is not a checkpoint, DCPKIT_EFORMAT for a damaged one, and all others.
 */
DCPKIT_API int dcpkit_open(dcpkit *session, const char *path, const char *format,
                           dcpkit_checkpoint **ckpt);
DCPKIT_API void dcpkit_close(dcpkit_checkpoint *ckpt); /* NULL is a no-op */

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
 * An object by its key, or state next to the tensors by its name, the same in every format ("args",
 * "args.lr", "iteration", "common": all of it), as JSON: dicts and lists as such, tuples as lists,
 * tensors and instances of classes as {"__class__": ...}. Nothing of a pickle is executed.
 * *json: freed by dcpkit_text_free. Errors: DCPKIT_EUSAGE when there is none of that name; those of
 * reading.
 */
DCPKIT_API int dcpkit_json(dcpkit_checkpoint *ckpt, const char *name, char **json);
DCPKIT_API void dcpkit_text_free(char *text); /* NULL is a no-op */

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
 * is no. After any other error there is no answer.
 */
DCPKIT_API int dcpkit_verify(dcpkit_checkpoint *ckpt, dcpkit_checkpoint *source);

/*
 * Compares two checkpoints: tensors bit for bit and training state by value, across formats,
 * layouts and spellings. *n_differences: the number of differences. *first: a sentence about the
 * first, freed by dcpkit_text_free. Without one: things that only one of the two has ("weights
 * equal; B has no optimizer state"); NULL: each has all kinds of state of the other. first may be
 * NULL.
 */
DCPKIT_API int dcpkit_compare(dcpkit_checkpoint *a, dcpkit_checkpoint *b, uint64_t *n_differences,
                              char **first);

enum dcpkit_convert_flags {
    DCPKIT_REPLACE = 1,      /* replace an output that exists */
    DCPKIT_RESUME = 2,       /* continue an interrupted one */
    DCPKIT_WEIGHTS_ONLY = 4, /* leave the optimizer out */
    DCPKIT_CHECK_INPUT = 8,  /* check every checksum of the source first */
    DCPKIT_PROVE = 16,       /* read the output back and prove it, before it is published; also
                                DCPKIT_CHECK_INPUT */
    DCPKIT_INTEGRITY = 32,   /* add Megatron's integrity.json */
    DCPKIT_TRUST_INPUT = 64  /* with DCPKIT_PROVE: no DCPKIT_CHECK_INPUT */
};

/* Sizes of the run that will load a torch_dist or zarr output, which gets the chunks that this run
 * would write. All 0: the chunks that are read fastest. Any run loads both. */
struct dcpkit_mesh {
    int64_t tp, pp, ep, cp; /* 0: 1 */
    int64_t dp, etp, vpp;   /* 0: not stated */
};

struct dcpkit_convert_options {
    size_t size;      /* of this struct */
    const char *from; /* a format; NULL: detected */
    unsigned flags;   /* of enum dcpkit_convert_flags */
    int swiglu;       /* 1: fc1 holds gate and up rows, -1: it does not, 0: by args.swiglu */
    struct dcpkit_mesh mesh;
    /* For Hugging Face's models; NULL: none. A config.json: of an IN whose trainer stores none, or
     * the one that OUT starts from. A folder: its tokenizer goes into OUT, its config.json is that
     * of an IN without one. The dtype of OUT: "float32", "bfloat16" or "float16". */
    const char *hf_config, *hf_assets, *dtype;
};

/*
 * Convert the checkpoint at `in`, which is never touched, to the format `to` ("torch_dist", "zarr",
 * "fsdp_dtensor", "huggingface", "dcp_hf" or "torchtitan") at `out`: a run folder, a folder
 * iter_NNNNNNN, or a name that ends in ".tar". options: NULL: the defaults. *report: the fate of
 * the keys, as JSON: "n_kept", "n_renamed", "n_made", "n_cast", "n_aliased", "n_left_out", and
 * "left_out": key, reason and whether it is harmless, of each; freed by dcpkit_text_free; report
 * may be NULL. On failure nothing is left that looks whole. Errors: DCPKIT_EUSAGE when `out`
 * exists; all others.
 */
DCPKIT_API int dcpkit_convert(dcpkit *session, const char *in, const char *out, const char *to,
                              const struct dcpkit_convert_options *options, char **report);

/* --- the engine: tensors in the memory of ranks go to where another layout wants them --- */
/*
 *     dcpkit_engine_open(session, &world, &options, &engine);     every rank, at the same time
 *     dcpkit_map_new(engine, &map);
 *     dcpkit_map_source(map, what_i_hold, n);                     each rank lists its own shards
 *     dcpkit_map_target(map, what_i_want, m);
 *     dcpkit_map_plan(map, &totals);                              every rank
 *     for (;;) { train(); dcpkit_map_run(map, &stats); }          every rank; nothing is allocated
 *     dcpkit_map_free(map);
 *     dcpkit_engine_close(engine);
 *
 * Functions that are called collective must be called by all ranks, in the same order. The failure
 * of one rank is returned on all ranks, with the sentence of that rank. A rank that is gone
 * makes all_gather fail, or a wait take too long. One thread at a time uses an engine, its maps and
 * its session.
 */

/* The ranks of a job. */
struct dcpkit_world {
    int rank, n_ranks;
    void *context;
    /*
     * Collective: copies n_bytes of every rank, in the order of ranks, into `all` of every rank, by
     * MPI, gloo, or a barrier of threads. Returns 0, or another number after a failure. It should
     * fail when a rank is gone or takes too long. The collective functions below call it.
     */
    int (*all_gather)(void *context, const void *mine, size_t n_bytes, void *all);
};

struct dcpkit_engine_options {
    size_t size;        /* of this struct */
    const char *device; /* where tensors lie: "cpu", "cuda:0"; NULL: "cpu" */
    /*
     * How tensors get to other ranks. NULL or "auto": straight into their memory where it can be
     * mapped, else over a link; "direct": an error where it cannot; "staged": always over a link;
     * the name of a link ("local", "nccl", "gather"): always over that one.
     */
    const char *transport;
    uint64_t staging_bytes;     /* memory for messages of a rank; 0: 512 MiB */
    uint64_t unit_bytes;        /* of a rank's targets, done together; 0: all at once */
    double link_bytes_a_second; /* of a rank, each way, to predict the time; 0: no prediction */
    int timeout_ms;             /* of each wait for the device or a link; 0: 120 s and 1 s a GB */
    int n_blocks;               /* of a GPU, for moving to other ranks; 0: the fastest number */
    int check;    /* not 0: compare the fingerprints of what was sent and has landed */
    int reserved; /* 0 */
};

typedef struct dcpkit_engine dcpkit_engine;

/*
 * Collective. world: copied, its context is borrowed until close; NULL: this process is alone.
 * options: the same on all ranks, except for the number of the device; NULL: the defaults. Errors:
 * DCPKIT_EUSAGE for an invalid world or options, and for options that differ between ranks;
 * DCPKIT_EUNSUPPORTED with the reason for a device or link that is not there; DCPKIT_EIO when
 * all_gather fails. An invalid world, or no memory for it, fails on this rank alone.
 */
DCPKIT_API int dcpkit_engine_open(dcpkit *session, const struct dcpkit_world *world,
                                  const struct dcpkit_engine_options *options,
                                  dcpkit_engine **engine);
/*
 * Not collective. Maps may be freed before or after; all of them, and the engine, before the
 * session. Other ranks must not be in a run, which may write into this one's memory.
 */
DCPKIT_API void dcpkit_engine_close(dcpkit_engine *engine);

/* From one layout to another. */
typedef struct dcpkit_map dcpkit_map;

/* Not collective. */
DCPKIT_API int dcpkit_map_new(dcpkit_engine *engine, dcpkit_map **map);
/* Not collective. A rank may free the tensors of a map when no other rank runs it any more. */
DCPKIT_API void dcpkit_map_free(dcpkit_map *map);

/*
 * A box of a tensor in this rank's memory: elements [offset, offset + extent) of each axis. A rank
 * lists only the boxes that it holds; replicas are equal boxes on several ranks; a box in several
 * pieces is several shards. A map copies it, except for the elements.
 */
struct dcpkit_shard {
    const char *name;            /* of the tensor, the same on all ranks and both sides */
    const char *dtype;           /* torch's name; a target of another floating type is cast */
    int rank;                    /* axes, 0 to 16 */
    const int64_t *shape;        /* of the whole tensor */
    const int64_t *offset;       /* NULL: 0 of each axis */
    const int64_t *extent;       /* NULL: the shape */
    void *data;                  /* of the box's first element; stays until dcpkit_map_free */
    const int64_t *stride_bytes; /* of each axis, any sign; NULL: row-major and dense */
};

/*
 * Not collective: list shards that this rank holds, or wants. Memory of a source is never written
 * to. Errors: DCPKIT_EUSAGE, also once there is a plan. dcpkit_map_plan returns them on all ranks.
 */
DCPKIT_API int dcpkit_map_source(dcpkit_map *map, const struct dcpkit_shard *shards, size_t n);
DCPKIT_API int dcpkit_map_target(dcpkit_map *map, const struct dcpkit_shard *shards, size_t n);

/*
 * Not collective: reports that this rank cannot list its shards. sentence: the reason; copied.
 * dcpkit_map_plan fails with it on all ranks, DCPKIT_EUSAGE; the first failure of a map counts.
 */
DCPKIT_API void dcpkit_map_fail(dcpkit_map *map, const char *sentence);

/*
 * Not collective: the tensors of a checkpoint, as dcpkit_open opens it, are the sources: every rank
 * lists the same one, and no shards of sources. as: NULL: tensors by their keys, as they are
 * stored; a format: those that dcpkit_convert to it would write, under their names. Ranks share the
 * reading; each byte that is wanted is read once by the ranks that reach each other. A map is one
 * unit then. Errors as of dcpkit_open; DCPKIT_EUSAGE. dcpkit_map_plan returns them on all ranks.
 */
DCPKIT_API int dcpkit_map_source_checkpoint(dcpkit_map *map, const char *path, const char *as);
/*
 * Not collective: sources have the names, shapes and boxes of one format, targets those of another
 * one: of what dcpkit_convert of the checkpoint at `path` to it would write; NULL: of what is
 * stored there. The same on all ranks, before or after shards are listed. Only the metadata of the
 * checkpoint is read: one that a run of the same model has saved, with the same rows of vocabulary,
 * or, for modules in memory, a folder of Hugging Face's (except GPT-OSS).
 * Sources are its weights, not masters. Fused, stacked and transposed tensors are boxes of the
 * others; nothing is copied. dcpkit_map_plan finds targets whose elements no source has.
 *
 * Instead of a format: names of modules in memory, with the shapes that each rank has there.
 *   "megatron:tp=2,pp=2,vpp=2,ep=2,etp=1"  named_parameters() of Megatron's model on a rank: layers
 *         and experts by its own numbers. Prefixes "module." may be there. With vpp names begin
 *         with the number of their chunk, as those of torch.nn.ModuleList(model) do.
 *   "megatron:fsdp=4,tp=2"  the same of Megatron-FSDP, whose shards are boxes of parameters; those
 *         are the blocks of all tensor-parallel ranks, one after the other (SwiGLU: gate and up of
 *         rank 0, then those of rank 1)
 *   "megatron:tp=2,pp=2,layout=Et|tt|tt|tL"  the same with a pipeline-model-parallel-layout, which
 *         is the rest of the text; vpp follows from it
 *   "vllm:tp=4", "sglang:tp=4,ep=4"  fused and stacked projections and experts of such a rank.
 *         Names of the model that has the layers of multi-token prediction begin with "draft."
 *   "transformers"  the model of a class of transformers 5
 * Sizes left out are 1, dp as many as there are ranks for. "at=4,ranks=2" is a run on the 2 ranks
 * from 4 on; else it is on all. "family=phi3", also "huggingface:family=phi3", is for args that
 * fit several families. Rows that pad a vocabulary are left as they are in targets; biases that
 * servers have on one rank only (GPT-OSS's experts) are set to 0 on the others. With such
 * names, and those of tensors whose rows take turns (GPT-OSS), the tensors of the plan are the
 * stored ones.
 *
 * Errors as of dcpkit_open; DCPKIT_EUSAGE; DCPKIT_EMISMATCH for sizes that do not divide;
 * DCPKIT_EUNSUPPORTED for a model that the scheme does not have. dcpkit_map_plan returns them on
 * all ranks, DCPKIT_EMISMATCH for a name or shape that the checkpoint does not have so, and
 * DCPKIT_EUNSUPPORTED for targets that a conversion computes (norms plus one).
 */
DCPKIT_API int dcpkit_map_names(dcpkit_map *map, const char *path, const char *sources,
                                const char *targets);
/* The name of tensor `index` of the map's checkpoint; NULL past the end, and when it has none. */
DCPKIT_API const char *dcpkit_map_checkpoint_tensor(const dcpkit_map *map, size_t index);

/* Sums over a plan; bytes are those of the narrower dtype of a cast. */
struct dcpkit_map_totals {
    size_t size;                  /* of this struct, set by the caller */
    uint64_t in_bytes, out_bytes; /* this rank's, from and to others */
    uint64_t local_bytes;         /* within this rank */
    uint64_t kept_bytes;          /* where they are already */
    uint64_t all_bytes;           /* between ranks, of all together */
    uint64_t read_bytes;          /* from the files of a checkpoint, by this rank */
    uint64_t table_bytes;         /* memory of the plan on the device */
    uint64_t staging_bytes;       /* and its messages */
    size_t n_tensors, n_units;
    size_t n_unwanted;                /* shards of sources whose tensor has no target */
    int n_direct_peers, n_link_peers; /* ranks that this one moves to or from; no files */
    double predicted_seconds;         /* 0: dcpkit_engine_options.link_bytes_a_second is */
    const char *link;                 /* its name; "" when none is used */
    /* ranks that use it and why, or the reason why ranks read the same files; "" when none do */
    const char *note;
};

/*
 * Collective, once: plans all moves and allocates all memory that runs need. totals may be NULL.
 * Errors, with nothing moved, naming tensor, box and rank: DCPKIT_EMISMATCH for a target that
 * sources do not cover, targets that overlap in memory, shards that disagree in shape or dtype;
 * DCPKIT_EUNSUPPORTED for dtypes that cannot be cast, and for ranks that cannot reach each other;
 * DCPKIT_ENOMEM; DCPKIT_EIO.
 */
DCPKIT_API int dcpkit_map_plan(dcpkit_map *map, struct dcpkit_map_totals *totals);

/* The name of tensor `index` of the plan, the same on all ranks; NULL past the end, and when there
 * is no plan. */
DCPKIT_API const char *dcpkit_map_tensor(const dcpkit_map *map, size_t index);

/*
 * Sets a function that dcpkit_map_run calls when a unit is done on all ranks: tensors first_tensor
 * to first_tensor + n_tensors - 1 of the plan are in their targets, and this run does not read
 * their sources any more. It may not call functions of the session. NULL: none.
 */
DCPKIT_API void dcpkit_map_each_unit(dcpkit_map *map,
                                     void (*done)(void *context, size_t unit, size_t first_tensor,
                                                  size_t n_tensors),
                                     void *context);

/* Results of a run. */
struct dcpkit_map_stats {
    size_t size; /* of this struct, set by the caller */
    size_t units_done;
    double seconds;               /* this rank's */
    uint64_t n_tiles, n_messages; /* that this rank moved and sent */
    uint64_t read_bytes;          /* from files, by this rank */
    /* of dcpkit_map_run_changed: blocks of this rank's sources, and what was sent of them */
    uint64_t n_blocks, n_sent_blocks, sent_bytes;
};

/*
 * Collective: move everything, any number of times. All memory must be idle: streams that write
 * sources or read targets are done. stats may be NULL; it is set on failure as well. Errors:
 * DCPKIT_EIO when a device, a link or all_gather fails, a wait takes too long, or fingerprints
 * differ. Units before units_done are in their targets, those of the unit under way are undefined,
 * sources are as they were. Ranks may then be at different places of a link or of all_gather: to
 * move on, free the maps, close the engine and open another one.
 */
DCPKIT_API int dcpkit_map_run(dcpkit_map *map, struct dcpkit_map_stats *stats);

/*
 * Collective: as dcpkit_map_run, but move only blocks (256 KiB) of sources that changed since the
 * last run of this kind. What lands is what dcpkit_map_run would leave, where the targets still
 * hold what that run left in them: who overwrites a target calls dcpkit_map_run next. With `check`
 * all targets are compared with the sources, also those that were not sent, and one that was
 * overwritten is DCPKIT_EIO. All blocks move the first time, after dcpkit_map_run and after a
 * failure.
 *
 * A block is seen as unchanged by its fingerprint, of what would be stored: a source that changed
 * by less than its cast keeps is not sent. One changed word of 4 bytes (or an element of 1 or 2) is
 * always seen. Of random changes of several words one block in 2^64 is missed; where nothing but
 * signs changes, one in 2^32 (4-byte words) or 2^48 (bfloat16). It does not defend against chosen
 * elements. Keeps twice the tables of the plan; may allocate. Errors as of dcpkit_map_run;
 * DCPKIT_EUSAGE for a checkpoint; DCPKIT_ENOMEM.
 */
DCPKIT_API int dcpkit_map_run_changed(dcpkit_map *map, struct dcpkit_map_stats *stats);

enum dcpkit_side { DCPKIT_SOURCES = 0, DCPKIT_TARGETS = 1 };

/*
 * Collective: a number for each of the plan's n_tensors, from its elements as they lie on one side
 * now: the same whatever the layout, and what `dcpkit hash --fingerprint` prints of a file. n: room
 * in sums. Errors: DCPKIT_EUSAGE for the sources of a checkpoint; DCPKIT_EMISMATCH for a tensor
 * that this side does not hold as a whole; those of dcpkit_map_run.
 */
DCPKIT_API int dcpkit_map_fingerprint(dcpkit_map *map, enum dcpkit_side side, uint64_t *sums,
                                      size_t n);

/*
 * Collective: prove that all targets, replicas too, hold now what a run would store in them: the
 * elements that sources hold now, in memory or in the files, cast to the dtype of the target. Both
 * are read and compared by fingerprints; nothing is stored. differs: NULL, or room for a number of
 * each of the plan's n_tensors, 0: equal. n: that room. Errors: DCPKIT_EMISMATCH when tensors
 * differ, with the name of the first and how many they are; `differs` is set then, too. Those of
 * dcpkit_map_run and, for a checkpoint, of dcpkit_map_plan.
 */
DCPKIT_API int dcpkit_map_verify(dcpkit_map *map, uint8_t *differs, size_t n);

#ifdef __cplusplus
}
#endif

#endif
