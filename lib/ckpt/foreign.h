/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - names in folders by which checkpoints are known, and what is mistaken for one. */
#ifndef DCPK_LIB_CKPT_FOREIGN_H
#define DCPK_LIB_CKPT_FOREIGN_H

#include <stddef.h>

#include "lib/io/store.h"

struct dcpk_checkpoint;
struct dcpk_format;

#define DCPK_FOREIGN_BYTES 512

/*
 * Recognises a folder by the names in it, with its remedy: another program's checkpoint, a copy
 * without its hidden files, the folder above a run. Text to append to an error: begins with "; ",
 * "" when nothing is recognised. Reads names of files, not their content. formats: NULL-terminated,
 * whose marks count. text: the room for it; returned. Cannot fail: a folder that cannot be listed
 * gives "".
 */
const char *dcpk_foreign_hint(struct dcpk_store *store, const struct dcpk_format *const *formats,
                              char text[DCPK_FOREIGN_BYTES]);

/*
 * Recognise by its keys the program that wrote a folder of PyTorch's. Returns its description with
 * the way to a folder that converts: "a checkpoint of torchtitan: ..."; NULL: not known.
 */
const char *dcpk_foreign_of_keys(const struct dcpk_checkpoint *ckpt);

/*
 * Refuse, where a model is asked for, what dcpk_foreign_of_keys recognises, and a checkpoint of
 * another format that was opened as its container. Errors: DCPK_EUNSUPPORTED.
 */
dcpk_status dcpk_foreign_check_keys(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err);

/* Refuse an address ("s3://bucket/run") where a path is asked for. Errors: DCPK_EUNSUPPORTED. */
dcpk_status dcpk_foreign_check_address(const char *path, struct dcpk_error *err);

/* ---- marks ---- */

struct dcpk_format;

enum dcpk_mark_kind {
    DCPK_MARK_CHECKPOINT, /* a folder with such a file is a checkpoint */
    DCPK_MARK_INNER,      /* a folder with such a file belongs into a checkpoint's folder */
    DCPK_MARK_PART,       /* a further file of a checkpoint's folder */
    DCPK_MARK_OTHER,      /* a file or folder of something that is not a checkpoint we read */
};

/* A row of a format's table, which a zeroed row ends. */
struct dcpk_mark {
    enum dcpk_mark_kind kind;
    const char *start, *end; /* the name begins and ends so; end NULL: start is all of it */
    /*
     * For people, NULL: nothing. For INNER: describes a folder that has it ("its folder 'x' is
     * <text>"). For PART and OTHER: describes a folder that has it and no mark of a checkpoint.
     */
    const char *text;
};

/* The format's mark that fits `name`, NULL: none. */
const struct dcpk_mark *dcpk_mark_of(const struct dcpk_format *format, const char *name);

/*
 * List the marks of folders among all formats, each name once: of kinds up to `most`, which is
 * DCPK_MARK_CHECKPOINT or DCPK_MARK_INNER. formats: NULL-terminated, with at most DCPK_MAX_MARKS
 * such names. Returns how many.
 */
#define DCPK_MAX_MARKS 16
size_t dcpk_marks_list(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                       const struct dcpk_mark *list[DCPK_MAX_MARKS]);

/* Their names: ".metadata, metadata.json or .zarray". Returns text. */
#define DCPK_MARKS_BYTES 384
const char *dcpk_marks_words(const struct dcpk_format *const *formats, enum dcpk_mark_kind most,
                             char text[DCPK_MARKS_BYTES]);

/* The text of the first format that has one for a folder of these n names; NULL: none. */
const char *dcpk_marks_sign(const struct dcpk_format *const *formats, char *const *names, size_t n);

#endif
