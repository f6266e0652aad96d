/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - decides if a release of Megatron loads a checkpoint: compares the requests of its
 * loader with the contents. */
#ifndef DCPK_LIB_JOB_VERDICT_H
#define DCPK_LIB_JOB_VERDICT_H

#include "lib/base/json.h"
#include "lib/job/holding.h"
#include "lib/model/model.h"
#include "lib/model/request.h"

/* The run that is to load a checkpoint. Zeroed: every release, the rest as args name it. */
struct dcpk_check_options {
    /* "core-0.19", "main" (lib/model/request.h); NULL: the one that args show. */
    const char *release;
    const char *impl; /* "te", "local"; NULL: as args.transformer_impl */
    const char *adam; /* "te", "torch"; NULL: whose fields are there, else Transformer Engine's */
    bool is_planned;  /* both Adams of that implementation alone are asked: what convert needs */
    struct dcpk_grid mesh; /* tp 0: as args have it */
    unsigned flags;        /* enum dcpk_loading_flags */
};

enum dcpk_lack { DCPK_LACK_MISSING, DCPK_LACK_SHAPE, DCPK_LACK_FAULT };

/* Something that loaders ask for and do not find. */
struct dcpk_check_finding {
    enum dcpk_lack lack;
    enum dcpk_purpose purpose;
    uint32_t loaders;
    const char *key, *text; /* text: "is missing", "is [4, 8], [4, 16] is asked for", ... */
    struct dcpk_check_finding *next;
};

#define DCPK_MAX_FINDINGS 100000 /* kept; all are counted */

/* The result. All is owned: dcpk_verdict_release. */
struct dcpk_verdict {
    struct dcpk_arena *arena;
    enum dcpk_release release; /* of the loader that was asked for, or that args show */
    const char *impl, *adam;   /* of this loader */
    /* The way they were found: "given", "args", "groups" (the fields of these), "assumed". */
    const char *release_by, *impl_by, *adam_by;
    struct dcpk_grid mesh;
    uint32_t asked;    /* the loaders looked at: of every release */
    uint32_t loader;   /* the one above */
    uint32_t variants; /* loaders of every release that the run may be: of that impl and Adam */
    uint32_t lacking[DCPK_N_PURPOSES]; /* those that do not find all of it */
    uint64_t n_asked[DCPK_N_PURPOSES]; /* by `loader` */
    uint64_t n_lacking[DCPK_N_PURPOSES];
    struct dcpk_check_finding *findings, **findings_end; /* in the order of requests */
    uint64_t n_findings;
    const char *unknown; /* why no answer is a yes; NULL: nothing is in the way */
    struct dcpk_note *assumed, *warnings;
};

/*
 * Look for everything that the loaders of every release, and of the run described, ask for in what
 * is held; metadata and small objects alone are read. check: dcpk_verdict_release, also on failure.
 * Errors: DCPK_EUSAGE for a release, implementation or Adam that is not known; DCPK_EUNSUPPORTED
 * when the format has no loader that is known, or there are no args; those of reading.
 */
dcpk_status dcpk_check_run(struct dcpk_holding *holding, const struct dcpk_check_options *options,
                           struct dcpk_verdict *check, struct dcpk_error *err);
/*
 * The same for a planned output. A case that cannot be judged is not an error: verdict->unknown is
 * then the reason, and no answer reads as a yes. A format without loaders leaves it zero (arena
 * NULL). Errors: DCPK_ENOMEM, DCPK_EIO, DCPK_ECANCELLED.
 */
dcpk_status dcpk_verdict_of_plan(struct dcpk_holding *holding,
                                 const struct dcpk_check_options *options,
                                 struct dcpk_verdict *verdict, struct dcpk_error *err);
/* True if no release loads it with any flags. False where that cannot be known. */
bool dcpk_verdict_is_no(const struct dcpk_verdict *verdict);
void dcpk_verdict_release(struct dcpk_verdict *check); /* a zeroed one is a no-op */

/* Flags that a run of a release needs to load it. */
enum dcpk_loads {
    DCPK_LOADS,
    DCPK_LOADS_WITHOUT_RNG,       /* with --no-load-rng */
    DCPK_LOADS_WITHOUT_OPTIMIZER, /* with --no-load-optim */
    DCPK_LOADS_WITHOUT_BOTH,
    DCPK_LOADS_NOT,
};
/* Combines the answers of the loaders of check->asked that are in the set; DCPK_LOADS_NOT also when
 * a module of args is not known. */
enum dcpk_loads dcpk_verdict_loads(const struct dcpk_verdict *check, uint32_t loaders);

/* The flags that a run needs: "--no-load-rng"; "" and "not" at the ends. */
const char *dcpk_loads_text(enum dcpk_loads loads);

/* The first lack that makes the outcome of these loaders this one; NULL: none is kept. */
const struct dcpk_check_finding *dcpk_verdict_reason(const struct dcpk_verdict *check,
                                                     enum dcpk_loads loads, uint32_t loaders);
/*
 * Append the releases whose outcome is this: "core 0.16, 0.17, main"; why: with what they lack in
 * brackets after them. False, nothing appended, when there are none.
 */
bool dcpk_verdict_way(const struct dcpk_verdict *check, enum dcpk_loads loads, bool why,
                      struct dcpk_bytes *text);
/* All outcomes: "core 0.19, main; with --no-load-rng in core 0.16; not in core 0.15 (...)", in its
 * arena. NULL after a failure. */
const char *dcpk_verdict_sentence(const struct dcpk_verdict *check, struct dcpk_error *err);

/*
 * An object: "loads_in" by release, "lacking" of these loaders, "unknown", "assumed", "warnings".
 */
void dcpk_verdict_json(const struct dcpk_verdict *check, uint32_t loaders, struct dcpk_json_out *j);

#endif
