/* SPDX-License-Identifier: Apache-2.0 */
/* run.h - run folders, iteration folders and the tracker between them. */
#ifndef DCPK_LIB_CKPT_RUN_H
#define DCPK_LIB_CKPT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/base/progress.h"
#include "lib/io/store.h"

struct dcpk_format;

/*
 * Megatron keeps checkpoints as <run>/iter_%07d or <run>/release, and next to them the tracker, a
 * file with the iteration to load: decimal digits without a newline, or the word "release". Source:
 * formats/torch_dist/FORMAT.md 1; megatron/training/checkpointing.py get_checkpoint_name,
 * read_metadata @core_v0.19.0.
 */
#define DCPK_TRACKER_NAME "latest_checkpointed_iteration.txt"

enum { DCPK_ITERATION_RELEASE = -1, DCPK_ITERATION_UNKNOWN = -2 }; /* next to iterations >= 0 */

/* When an output's tracker is written. One that is not there is written in any case. */
enum dcpk_tracker_policy {
    /* NEWEST; KEEP where OUT is itself an iteration's folder. */
    DCPK_TRACKER_USUAL,
    /* Unless it names a newer iteration that is there, or holds nothing that could be compared.
     * "release" is older than every iteration: runs begin from it. */
    DCPK_TRACKER_NEWEST,
    /* Whatever it holds. */
    DCPK_TRACKER_SET,
    /* Only where there is none. */
    DCPK_TRACKER_KEEP,
};

/* The fate of a tracker. */
enum dcpk_tracker_fate {
    DCPK_TRACKER_NONE,    /* there is none: an archive, whose own is a member */
    DCPK_TRACKER_WRITTEN, /* (re)written once the folder is published */
    DCPK_TRACKER_FITS,    /* names this iteration already */
    DCPK_TRACKER_KEPT,    /* names something else, and stays */
};

/* The place of a checkpoint, present or future. Strings are owned by the struct:
 * dcpk_run_release. */
struct dcpk_run {
    char *folder;      /* the folder with the checkpoint's files */
    int64_t iteration; /* from its name or the tracker; DCPK_ITERATION_... */
    bool is_below;     /* the one checkpoint of a trainer in the folder that was given */
    /* Only after dcpk_run_target, NULL after dcpk_run_find: */
    char *tracker;      /* path of the tracker that belongs to `folder` */
    char *tracker_text; /* text to write into it: "4", "release"; no newline */
    enum dcpk_tracker_policy policy;
    enum dcpk_tracker_fate fate;
    /* The iteration in it so far; DCPK_ITERATION_UNKNOWN: there is none, or it holds no
     * iteration. */
    int64_t tracker_was;
    /* `folder` is for messages (dcpk_run_open), or the archive to write; no tracker. */
    bool is_archive;
    /* dcpk_target_find: something is at `folder` already, which must be proven. */
    bool is_there;
    /* Only after dcpk_run_target_archive: */
    char *inner; /* the folder in it; NULL: its root, and there is no tracker_text */
};

void dcpk_run_release(struct dcpk_run *run); /* a zeroed struct is a no-op */

/*
 * Find the folder to read. `path` itself when it holds a file that marks one (lib/ckpt/foreign.h)
 * of the formats, a NULL-terminated table here and below, or is named iter_<digits> or release;
 * else what its tracker names, else the one checkpoint of a trainer below it. run: set on success
 * only. Errors: DCPK_EIO when path is missing, no folder or not readable; DCPK_EFORMAT when it is
 * neither kind of folder (names what was searched for), the folder that the tracker names is
 * missing (both name the newest iteration folder if there is one), or the tracker is neither a
 * number nor "release".
 */
dcpk_status dcpk_run_find(const char *path, const struct dcpk_format *const *formats,
                          struct dcpk_run *run, struct dcpk_error *err);

/* The files of an archive: n relative paths without "." parts, sorted by byte value, none twice. */
struct dcpk_run_files {
    char *const *names;
    size_t n;
    /* Read file i whole: at most limit_bytes into text, *n_bytes is how many. */
    dcpk_status (*read)(void *context, size_t i, char *text, size_t limit_bytes, size_t *n_bytes,
                        struct dcpk_error *err);
    void *context;
    const struct dcpk_format *const *formats;
};

/*
 * The same among the files of an archive. inner: the folder that is meant, or the end of its path;
 * NULL: what its one tracker names; else the one folder at any
 * depth, the archive's root included, that holds a mark as above (not those inside such a folder),
 * else the one that is named iter_<digits> or release. run: set on success only; its folder is the
 * path in the archive, "" for the root. Errors: DCPK_EFORMAT when there is none, or several: names
 * some; those of the tracker.
 */
dcpk_status dcpk_run_find_among(const struct dcpk_run_files *files, const char *inner,
                                struct dcpk_run *run, struct dcpk_error *err);

/*
 * "run.tar:ckpt/iter_0000004", as messages name a checkpoint in an archive: nothing is at the path,
 * and a plain file at what is before a colon. archive: that, else the path. Returns what is after
 * the colon, borrowed from path; NULL: the path is as it is. Errors: none; a path that is too long
 * is as it is.
 */
#define DCPK_RUN_PATH_BYTES 4096
const char *dcpk_run_split(const char *path, char archive[DCPK_RUN_PATH_BYTES]);

/* True for "s3://...", "https://..." and "http://...", unless a folder is called so. */
bool dcpk_run_is_remote(const char *path);

/*
 * The path that means iteration `iteration` of what `path` means: its folder in a run folder, in
 * an archive, or in a folder of an archive. chosen: set on success only. Errors: DCPK_EUSAGE when
 * the path is itself another iteration; DCPK_EFORMAT when the run folder has no such folder: names
 * what it has; DCPK_EIO.
 */
dcpk_status dcpk_run_choose(const char *path, int64_t iteration,
                            const struct dcpk_format *const *formats,
                            char chosen[DCPK_RUN_PATH_BYTES], struct dcpk_error *err);

struct dcpk_opening;

/* How a plain file becomes a store: formats/archive. inner: as for dcpk_run_find_among. run->folder
 * is for messages. */
typedef dcpk_status dcpk_run_open_file(const char *path, const char *inner,
                                       const struct dcpk_opening *opening, struct dcpk_run *run,
                                       struct dcpk_store **store, struct dcpk_error *err);

/* Everything needed to find and open a checkpoint; borrowed. */
struct dcpk_opening {
    const struct dcpk_format *const *formats;
    dcpk_run_open_file *open_file;        /* NULL: no archives can be read */
    dcpk_run_open_file *open_url;         /* the same of dcpk_run_is_remote */
    const struct dcpk_progress *progress; /* of unpacking; may be NULL */
    bool (*is_stopped)(void);             /* as of dcpk_env */
};

/*
 * Find the checkpoint at `path` and open its store: of a folder by dcpk_run_find, of a plain file,
 * or a folder in one (dcpk_run_split), by open_file; without that plain files are
 * DCPK_EUNSUPPORTED. run, store: set on success only; dcpk_run_release, dcpk_store_close. Errors:
 * DCPK_EUSAGE for a file with the name of one of a checkpoint's; those of the two.
 */
dcpk_status dcpk_run_open(const char *path, const struct dcpk_opening *opening,
                          struct dcpk_run *run, struct dcpk_store **store, struct dcpk_error *err);

/*
 * Choose where a checkpoint written to `out` goes; touches nothing on disk. iteration: the source's
 * (DCPK_ITERATION_RELEASE, DCPK_ITERATION_UNKNOWN included). OUT named iter_NNNNNNN or release is
 * that folder, the tracker is the one next to it. Anything else is a run folder: the checkpoint
 * goes to OUT/iter_%07d or OUT/release, the tracker is OUT's. run: set on success only. Errors:
 * DCPK_EUSAGE when OUT is empty, is a checkpoint itself, is not a folder, is called iter_<digits>
 * in another way than Megatron spells it, or is a run folder while the iteration is not known;
 * those of dcpk_run_judge_tracker.
 */
dcpk_status dcpk_run_target(const char *out, int64_t iteration, enum dcpk_tracker_policy policy,
                            const struct dcpk_format *const *formats, struct dcpk_run *run,
                            struct dcpk_error *err);

/*
 * The same for a model: OUT is its folder, there is no tracker. Errors: DCPK_EUSAGE when OUT is
 * empty, or is not a folder.
 */
dcpk_status dcpk_run_target_model(const char *out, struct dcpk_run *run, struct dcpk_error *err);

/*
 * Judges by names alone, before a byte is read: true if the checkpoint at `path` is of a format
 * whose outputs are models (is_model in format.h), false if that cannot be known.
 */
bool dcpk_run_is_model(const char *path, const struct dcpk_format *const *formats);

/*
 * Read the tracker that dcpk_run_target found again, and set `fate` and `tracker_was`: a run that
 * still trains in the folder may have changed it. Errors: DCPK_EIO when it cannot be read.
 */
dcpk_status dcpk_run_judge_tracker(struct dcpk_run *run, struct dcpk_error *err);

/* "release" or the digits, as in a tracker. */
#define DCPK_ITERATION_TEXT_BYTES 24
const char *dcpk_run_iteration_text(int64_t iteration, char text[DCPK_ITERATION_TEXT_BYTES]);

/* Sets *is_archive if OUT is to be a tar archive: its name ends in ".tar", and it is not an
 * existing folder. Errors: DCPK_EUSAGE when it ends as an archive that is not written (.zip,
 * .tar.gz, ...); DCPK_EIO. */
dcpk_status dcpk_run_is_archive(const char *out, bool *is_archive, struct dcpk_error *err);

/*
 * The same for an archive: it will hold what a run folder does, so the tracker and iter_%07d or
 * release; without a known iteration the checkpoint's files alone. run: set on success only.
 * Errors: DCPK_ENOMEM.
 */
dcpk_status dcpk_run_target_archive(const char *out, int64_t iteration, struct dcpk_run *run,
                                    struct dcpk_error *err);

/*
 * OUT must be apart from IN: not the same folder, not inside it, not around it, links resolved (of
 * a path that does not exist yet: of the part that does). in: an existing folder, or what
 * dcpk_run_split takes apart: then its archive. Errors:
 * DCPK_EUSAGE naming both, or for an empty path; DCPK_EIO when a path cannot be resolved.
 */
dcpk_status dcpk_run_check_apart(const char *in, const char *out, struct dcpk_error *err);

#endif
