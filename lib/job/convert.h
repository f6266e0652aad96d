/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h - a whole conversion: open, view, rules, plan, write, publish; and the report about
 * it. */
#ifndef DCPK_LIB_JOB_CONVERT_H
#define DCPK_LIB_JOB_CONVERT_H

#include "lib/base/json.h"
#include "lib/ckpt/format.h"
#include "lib/ckpt/output.h"
#include "lib/ckpt/run.h"
#include "lib/exec/exec.h"
#include "lib/exec/ranks.h"
#include "lib/job/compare.h"
#include "lib/job/give_options.h"
#include "lib/job/verdict.h"
#include "lib/job/verify.h"
#include "lib/rules/rules.h"
#include "lib/write/units.h"

enum dcpk_convert_flags {
    DCPK_CONVERT_WEIGHTS_ONLY = 1, /* leave the optimizer out */
    DCPK_CONVERT_CHECK_INPUT = 2,  /* check every checksum of the source first: reads it twice */
    /* Read the output back before it is published (dcpk_conversion_check), and */
    DCPK_CONVERT_VERIFY = 4,       /* prove it against the source; */
    DCPK_CONVERT_HASHES = 8,       /* hash its tensors; */
    DCPK_CONVERT_INTEGRITY = 16,   /* add Megatron's integrity.json. */
    DCPK_CONVERT_KEEP_OTHER = 128, /* between models: also tensors that no map of a family knows */
    DCPK_CONVERT_ALLOW_OVERFLOW = 64, /* casts may make finite elements infinite */
    DCPK_CONVERT_ONCE = 32, /* the source ends with this process: what was cut short is not kept */
};

/* Everything is borrowed until dcpk_conversion_free. */
struct dcpk_convert_options {
    struct dcpk_env env; /* with ranks: the processes that share the work, which all plan and run */
    const char *from;    /* a format's name, NULL: detected */
    const struct dcpk_format *to;
    /* Maps the source's keys (from_keys), with these options of its own; NULL: the view does. */
    const struct dcpk_format_mapping *mapping;
    const void *mapping_options;
    struct dcpk_rule_options rules;
    unsigned flags;
    unsigned folder_flags;          /* of DCPK_FOLDER_REPLACE and _RESUME (lib/io/sink.h) */
    struct dcpk_open_options given; /* of the source, unless the caller has opened it */
    /* Run or iteration folders (lib/ckpt/run.h). out NULL: it is planned, and never run. */
    const char *in, *out;
    /* Instead of `in`, which is NULL then: a checkpoint that the caller has opened, and closes. */
    struct dcpk_checkpoint *opened;
    enum dcpk_tracker_policy tracker;        /* of OUT */
    const char *model_prefix, *state_prefix; /* NULL: the format's own */
    /* The run that will load OUT; `impl` follows rules.impl. */
    struct dcpk_target target;
};

/* Finite elements that a cast to a narrower dtype makes infinite. */
struct dcpk_overflow {
    uint64_t n_elems; /* finite in the source, infinite in the output */
    uint64_t n_tensors;
    enum dcpk_dtype dtype; /* in which they are; where there are any */
};

/* A conversion under way. All but `options` is owned by it; zero it before use. */
struct dcpk_conversion {
    const struct dcpk_convert_options *options;
    struct dcpk_run source, target;
    struct dcpk_checkpoint *ckpt;
    struct dcpk_model *model; /* NULL where `mapping` took its place */
    struct dcpk_output *out;
    struct dcpk_plan_totals totals;
    struct dcpk_verdict verdict;     /* releases that load it; not for a plain container */
    struct dcpk_exec_stats stats;    /* after run */
    uint64_t resumed_bytes;          /* of tensor data that an earlier run had written; after run */
    bool is_complete;                /* the output was there, as it should be; after run */
    uint64_t compared_bytes;         /* of it, instead of written ones */
    struct dcpk_input_check checked; /* after run, with CHECK_INPUT; else zero */
    struct dcpk_overflow overflow;   /* after run */
    struct dcpk_compare_report proof; /* after run, with VERIFY; else zero */
    struct dcpk_bytes hashes;         /* the same with HASHES: lib/job/hash_list.h */
};

/*
 * Decide everything: reads metadata and small objects, writes nothing.
 * Errors: DCPK_EUSAGE when IN and OUT are not apart, OUT exists without REPLACE, or the target
 * format cannot be written; DCPK_EUNSUPPORTED for what cannot be converted; those of the parts.
 */
dcpk_status dcpk_conversion_plan(struct dcpk_conversion *c,
                                 const struct dcpk_convert_options *options,
                                 struct dcpk_error *err);
/* Tensor data that the ranks of a job would read and write: the least and the most of any. */
struct dcpk_conversion_shares {
    int n_ranks;
    struct dcpk_unit_share least, most;
    uint64_t read_bytes; /* of all */
};
/* The shares of n_ranks, at least 1, for a planned conversion. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_conversion_share(const struct dcpk_conversion *c, int n_ranks,
                                  struct dcpk_conversion_shares *shares, struct dcpk_error *err);
/* There is room for the planned output: dcpk_check_space. dcpk_conversion_run begins with it. */
dcpk_status dcpk_conversion_check_space(const struct dcpk_conversion *c, struct dcpk_error *err);
/*
 * Write the planned output, publish it, then the tracker. On failure nothing is left that looks
 * whole; what is worth resuming stays in the partial folder with its journal, and the error
 * mentions it. RESUME continues a partial folder; DCPK_EUSAGE when it is of another input or of
 * other options, unless REPLACE. With RESUME alone an output that exists is proven: it passes the
 * checks of `verify`, and every element, object and file is the one that would be written; then the
 * tracker is all that is left to be written (target.is_there), else DCPK_EUSAGE. Where the model
 * needs a proof (lib/job/compare.h) that comes before any data is written: DCPK_EMISMATCH when it
 * fails. A resumed run has passed it before. A cast that makes finite elements infinite is refused
 * then, without ALLOW_OVERFLOW: DCPK_ERANGE. Checks that read the output back come before it is
 * published: when they fail, nothing is published or kept. Collective over options->env.ranks,
 * which have agreed on the plan: all return the same status; stats and resumed_bytes are rank 0's.
 */
dcpk_status dcpk_conversion_run(struct dcpk_conversion *c, struct dcpk_error *err);
void dcpk_conversion_free(struct dcpk_conversion *c); /* a zeroed one is a no-op */

/* Numbers of keys by their fate (an output key counts once for each of its fates). */
struct dcpk_report_counts {
    uint64_t kept;    /* tensors whose key and content came over unchanged */
    uint64_t renamed; /* ... under another key */
    uint64_t made;    /* keys that come from no tensor or item of the source */
    uint64_t cast;    /* tensors written in another dtype than their source's */
    uint64_t aliased; /* further names for bytes that are there already */
    uint64_t dropped; /* keys of the source that are not carried over */
};
void dcpk_report_count(const struct dcpk_conversion *c, struct dcpk_report_counts *counts);

/* A key of the source that is not carried over. Borrowed from the conversion; key has no NUL. */
struct dcpk_report_loss {
    const char *key;
    size_t key_bytes;
    const char *reason;
    bool is_harmless; /* no run that loads the output misses it */
};
/* Walk what was left out, in order, until `take` returns false; returns false then. */
typedef bool dcpk_report_take(void *context, const struct dcpk_report_loss *loss);
bool dcpk_report_each_loss(const struct dcpk_conversion *c, dcpk_report_take *take, void *context);

/* The source tensor of an output tensor's first element; NULL for literals and fills. */
const struct dcpk_tensor *dcpk_report_source(const struct dcpk_conversion *c,
                                             const struct dcpk_out_tensor *t);

/*
 * Refuse, before anything is written, options that read the written folder if there will be none.
 * Errors: DCPK_EUSAGE for an archive; for an integrity.json of a format that keeps files in folders
 * of their own, which the list cannot name.
 */
dcpk_status dcpk_conversion_can_check(const struct dcpk_conversion *c, struct dcpk_error *err);

/* True if the flags ask for a step that reads the output back. */
bool dcpk_conversion_reads_back(const struct dcpk_conversion *c);

/*
 * Open the folder under construction (NULL: the output that was there) again and do what the flags
 * ask for: prove it (fills c->proof), hash its tensors (fills c->hashes), add integrity.json. Drops
 * its files from the page cache first, so that what is read is what the storage holds; a system may
 * still answer from memory. Without such flags nothing is done. Collective inside the work where
 * the options have ranks: all must have closed what they wrote. Errors: DCPK_EMISMATCH when the
 * output is not a faithful conversion, DCPK_EFORMAT when it is damaged.
 */
dcpk_status dcpk_conversion_check(struct dcpk_conversion *c, struct dcpk_folder *folder,
                                  struct dcpk_error *err);

#endif
