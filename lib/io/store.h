/* SPDX-License-Identifier: Apache-2.0 */
/* store.h - where a checkpoint's bytes come from: a set of named sources: a folder, memory, a part
 * of an archive. */
#ifndef DCPK_LIB_IO_STORE_H
#define DCPK_LIB_IO_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/base/path.h"

/*
 * A store is a folder of plain files, or what stands for one. It is opened for reading only and is
 * thread-safe. Descriptors are opened when first read and kept in a bounded cache (at most 256), so
 * that a checkpoint of 10 000 files needs no more of them.
 */
struct dcpk_store;

/* One named run of bytes in a store; borrowed from it, valid until dcpk_store_close. */
struct dcpk_source;

/* Open the folder `path`. Errors: DCPK_EIO (missing, not a folder, permission). */
dcpk_status dcpk_store_open(const char *path, struct dcpk_store **store, struct dcpk_error *err);

/* A store without a disk: add sources with dcpk_store_add_memory and _borrowed. */
dcpk_status dcpk_store_new_memory(const char *name, struct dcpk_store **store,
                                  struct dcpk_error *err);
/* data is copied. */
dcpk_status dcpk_store_add_memory(struct dcpk_store *store, const char *name, const void *data,
                                  size_t n_bytes, struct dcpk_error *err);
/* data is borrowed until dcpk_store_close. */
dcpk_status dcpk_store_add_borrowed(struct dcpk_store *store, const char *name, const void *data,
                                    size_t n_bytes, struct dcpk_error *err);

/*
 * A store whose sources are ranges of one open file, so an archive's members: add them with
 * dcpk_store_add_range. name: for messages; fd: taken on success, closed with the store.
 */
dcpk_status dcpk_store_new_ranges(const char *name, int fd, struct dcpk_store **store,
                                  struct dcpk_error *err);
/* The range lies in the file (the caller's care). Both add functions: DCPK_EUSAGE when there is a
 * source of that name; of a range DCPK_EFORMAT for a name that leaves the folder. */
dcpk_status dcpk_store_add_range(struct dcpk_store *store, const char *name, uint64_t offset_bytes,
                                 uint64_t n_bytes, struct dcpk_error *err);

/* Reads sources that lie in no file of this machine. */
struct dcpk_store_calls {
    /* Exactly n bytes from byte `at` of the source that was added as `id`. Thread-safe. */
    dcpk_status (*read)(void *context, uint64_t id, uint64_t at, void *out, size_t n,
                        struct dcpk_error *err);
    void (*free)(void *context); /* with the store */
    void *context;
};
/* A store whose sources are read by calls: add them with dcpk_store_add_range, `id` for the offset,
 * then set the calls, which are copied. */
dcpk_status dcpk_store_new_calls(const char *name, struct dcpk_store **store,
                                 struct dcpk_error *err);
void dcpk_store_set_calls(struct dcpk_store *store, const struct dcpk_store_calls *calls);

/* A note for the user about how the bytes are read; copied. NULL: none. */
dcpk_status dcpk_store_set_note(struct dcpk_store *store, const char *note, struct dcpk_error *err);
const char *dcpk_store_note(const struct dcpk_store *store); /* NULL: none; borrowed until close */

/*
 * Sources that lie packed may be much larger than what holds them: text and pickles of at most
 * so many bytes a source are taken into memory. Called before the first of them is read; a store
 * without it has no such limit.
 */
void dcpk_store_limit_values(struct dcpk_store *store, uint64_t n_bytes);

void dcpk_store_close(struct dcpk_store *store); /* NULL is a no-op */

const char *dcpk_store_path(const struct dcpk_store *store); /* as given; for messages */
/* Finds the kind of entry at that name, in the store: a name that leaves it is DCPK_PATH_NOTHING.
 * kind: set on success only. Errors: DCPK_EIO where the system cannot find out. */
dcpk_status dcpk_store_look(struct dcpk_store *store, const char *name, enum dcpk_path_kind *kind,
                            struct dcpk_error *err);

/*
 * The source called `name` (a relative path). The same pointer for the same name.
 * Errors: DCPK_EFORMAT when the name is empty, absolute, holds a ".." component or a NUL ("leaves
 * the folder"), or is longer than a file's can be; DCPK_EIO when there is no such plain file or its
 * size cannot be read.
 */
dcpk_status dcpk_store_find(struct dcpk_store *store, const char *name, struct dcpk_source **source,
                            struct dcpk_error *err);

/*
 * Names of all entries directly in the folder (files, links and folders; not "." and ".."), sorted
 * by byte value. names: array of n strings, one allocation, owned by the caller: dcpk_free(names).
 */
dcpk_status dcpk_store_list(struct dcpk_store *store, char ***names, size_t *n,
                            struct dcpk_error *err);

/*
 * The same of the folder `folder` (a relative path) in the store. Errors: DCPK_EFORMAT when the
 * path leaves the store; DCPK_EIO when there is no such folder.
 */
dcpk_status dcpk_store_list_in(struct dcpk_store *store, const char *folder, char ***names,
                               size_t *n, struct dcpk_error *err);

/*
 * Permission bits, for umask, of the classes of users (group 070, others 007) that may not read all
 * of it: the folder, the sources found so far, what lies directly in it; or the archive. Links
 * count as what they lead to, except those of the function below. 0 for memory.
 */
unsigned dcpk_store_hidden(struct dcpk_store *store);
/*
 * True if `name` is a link to a file that is less readable than the store's folder, or
 * than `out` (NULL: not known yet). The file's own mode and group count, and those of all folders
 * on its way that do not lead to the other folder as well. A link made by somebody else can point
 * at a file that only this user may read.
 */
struct dcpk_folder;
bool dcpk_store_leads_to_private(const struct dcpk_store *store, const char *name,
                                 const struct dcpk_folder *out);

/* Its name in the store; borrowed. */
const char *dcpk_source_name(const struct dcpk_source *source);
uint64_t dcpk_source_bytes(const struct dcpk_source *source); /* length when it was opened */
/* limit_bytes, or less where the store limits what becomes values. */
uint64_t dcpk_source_value_limit(const struct dcpk_source *source, uint64_t limit_bytes);
/* Step through the sources found so far, in any order: the one after `source`, NULL: the first.
 * Not while others are being found. */
const struct dcpk_source *dcpk_store_next(const struct dcpk_store *store,
                                          const struct dcpk_source *source);
/* A number that changes when the source's own file does: its time of change in ns. 0 where it has
 * none (memory, ranges). Errors: DCPK_EIO. */
dcpk_status dcpk_source_stamp(const struct dcpk_source *source, uint64_t *stamp,
                              struct dcpk_error *err);
/* Exactly n_bytes from offset_bytes; DCPK_EFORMAT when that passes the end of the source, DCPK_EIO
 * when reading fails. */
dcpk_status dcpk_source_read(struct dcpk_source *source, uint64_t offset_bytes, void *out,
                             size_t n_bytes, struct dcpk_error *err);

/*
 * Someone who reads with more in hand than was asked for, so that small reads next to each other
 * are one. `read`: as dcpk_source_read. A NULL reader is dcpk_source_read itself.
 */
struct dcpk_reader {
    dcpk_status (*read)(void *context, struct dcpk_source *source, uint64_t offset_bytes, void *out,
                        size_t n_bytes, struct dcpk_error *err);
    void *context;
};
/* Calls it; NULL: dcpk_source_read. */
dcpk_status dcpk_reader_read(const struct dcpk_reader *reader, struct dcpk_source *source,
                             uint64_t offset_bytes, void *out, size_t n_bytes,
                             struct dcpk_error *err);

/*
 * Advise the system that a range will be read soon / will not be read again (page cache). Failure
 * is not an error.
 */
enum dcpk_advice { DCPK_WILL_NEED, DCPK_DONE_WITH };
void dcpk_source_advise(struct dcpk_source *source, uint64_t offset_bytes, uint64_t n_bytes,
                        enum dcpk_advice advice);

/* The whole source with a NUL after it; owned: dcpk_free. DCPK_ERANGE when larger than
 * limit_bytes, or what the store allows for values. */
dcpk_status dcpk_source_slurp(struct dcpk_source *source, uint64_t limit_bytes, char **data,
                              size_t *n_bytes, struct dcpk_error *err);

/* The JSON of the file `name`; *doc: dcpk_json_free. Errors: those of finding, reading and parsing
 * it; DCPK_ERANGE when it is larger than limit_bytes. */
struct dcpk_json;
dcpk_status dcpk_json_read(struct dcpk_store *store, const char *name, uint64_t limit_bytes,
                           struct dcpk_json **doc, struct dcpk_error *err);

#endif
