/* SPDX-License-Identifier: Apache-2.0 */
/* writing.h - the writing of a planned output in steps, for callers that do only some of its
 * units. */
#ifndef DCPK_LIB_WRITE_WRITING_H
#define DCPK_LIB_WRITE_WRITING_H

#include "lib/exec/exec.h"
#include "lib/exec/ranks.h"
#include "lib/write/journal.h"
#include "lib/write/units.h"

/*
 * Writes tensors at their places, in any order, and what the format writes ahead, then the format's
 * finish. All steps: new, payloads, run(0, n), finish, free. Units may be run in any order, in
 * several calls, or elsewhere: what they came to is then set. Each step is called by one thread.
 * After a failure only keep and free may be used: what was written stays in the partial folder,
 * which the caller abandons. The bytes written do not depend on threads or memory.
 */
struct dcpk_writing;

/* Cut the output into units. exec, out, folder: borrowed. Errors: DCPK_ENOMEM; those of
 * dcpk_folder_reserve. */
dcpk_status dcpk_writing_new(struct dcpk_exec *exec, struct dcpk_output *out,
                             struct dcpk_folder *folder, struct dcpk_writing **w,
                             struct dcpk_error *err);
void dcpk_writing_free(struct dcpk_writing *w); /* NULL is a no-op */

const struct dcpk_units *dcpk_writing_units(const struct dcpk_writing *w); /* borrowed until free */

/* The unit is done, by another process: its bytes are in the folder and on disk, crc32 is what it
 * came to. Thread-safe. */
void dcpk_writing_set_result(struct dcpk_writing *w, size_t unit, uint32_t crc32);

/*
 * Keep a journal in the folder (lib/write/journal.h), and resume from what is in it: units whose
 * files are there, and read as the journal has them, count as done, *resumed_bytes of tensor data;
 * all else in the folder is deleted (dcpk_folder_settle). That reads once what was done. From then
 * on `run` writes down what it has done every GiB or few seconds. After `new`, before the other
 * steps. Errors: those of dcpk_journal_open, in which case there is no journal and all is to be
 * done.
 */
dcpk_status dcpk_writing_resume(struct dcpk_writing *w, const struct dcpk_journal_subject *subject,
                                uint64_t *resumed_bytes, struct dcpk_error *err);
/* The same, but a journal that does not fit gives way: the folder is emptied and started again. */
dcpk_status dcpk_writing_resume_or_clear(struct dcpk_writing *w,
                                         const struct dcpk_journal_subject *subject,
                                         uint64_t *resumed_bytes, struct dcpk_error *err);
/*
 * Instead of resume, where another process keeps the journal: from then on `run` reports which
 * units are done and on disk, every GiB or few seconds. Called by one thread at a time.
 */
typedef dcpk_status dcpk_writing_done(void *context, uint64_t unit, uint32_t crc32,
                                      struct dcpk_error *err);
void dcpk_writing_report(struct dcpk_writing *w, dcpk_writing_done *done, void *context);
/* Between two runs: record, or report, what has been done since the last time; with a journal only
 * when that is due. */
dcpk_status dcpk_writing_record(struct dcpk_writing *w, struct dcpk_error *err);
/*
 * After a failure, instead of finish: write down what has been done. True: it is a unit's worth or
 * more and the partial folder stays when it is abandoned, for another run to resume it. False: it
 * is not worth the place on disk.
 */
bool dcpk_writing_keep(struct dcpk_writing *w);

/*
 * payloads and run(0, n). Collective where the executor has ranks that each have this output in one
 * shared folder: each writes its share of the units by bytes, rank 0 the payloads. Units that an
 * earlier run has done (known to rank 0, which keeps the journal) are left out. On return rank 0
 * knows the results of all units and may finish; st as for dcpk_ranks_share.
 */
dcpk_status dcpk_writing_run_all(struct dcpk_writing *w, struct dcpk_error *err);

/* A planned tensor as a view of its source: the elements that are written. Borrows the tensor. */
struct dcpk_view dcpk_write_view(const struct dcpk_out_tensor *tensor);

/* Write all object payloads. */
dcpk_status dcpk_writing_payloads(struct dcpk_writing *w, struct dcpk_error *err);
/* Write those of the units first .. last - 1 that are not done yet. Their files are synced. The
 * first run on rank 0 also writes what the format writes ahead, while others write the units. */
dcpk_status dcpk_writing_run(struct dcpk_writing *w, size_t first, size_t last,
                             struct dcpk_error *err);
/*
 * When all units are done (asserted): the frames of chunks that lie in several units, files that
 * nothing went into, then the format's finish. All files are synced. stats: of all steps; may be
 * NULL.
 */
dcpk_status dcpk_writing_finish(struct dcpk_writing *w, struct dcpk_exec_stats *stats,
                                struct dcpk_error *err);

#endif
