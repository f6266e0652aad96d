/* SPDX-License-Identifier: Apache-2.0 */
/* convert_check.c - reads an output back before it is published. */
#include "lib/job/convert.h"

#include <inttypes.h>
#include <string.h>

#include "lib/ckpt/integrity.h"
#include "lib/job/give_options.h"
#include "lib/job/hash_list.h"
#include "lib/job/verify.h"
#include "lib/model/model.h"

#define READS_BACK (DCPK_CONVERT_VERIFY | DCPK_CONVERT_HASHES | DCPK_CONVERT_INTEGRITY)

bool dcpk_conversion_reads_back(const struct dcpk_conversion *c)
{
    return (c->options->flags & READS_BACK) != 0;
}

dcpk_status dcpk_conversion_can_check(const struct dcpk_conversion *c, struct dcpk_error *err)
{
    const unsigned flags = c->options->flags;

    if (dcpk_conversion_reads_back(c) && c->target.is_archive)
        return dcpk_fail_fix(
            err, DCPK_EUSAGE, DCPK_FIX_NO_READ_BACK,
            "the output cannot be read back before it is published, because '%s' is an archive: "
            "write a folder and pack that, or verify the archive afterwards",
            c->options->out);
    if ((flags & DCPK_CONVERT_VERIFY) != 0 && c->out->n_of_adapter > 0)
        return dcpk_fail_fix(
            err, DCPK_EUSAGE, DCPK_FIX_NO_READ_BACK | DCPK_FIX_LORA,
            "an adapter is written next to its base, and only models are compared");
    if ((flags & DCPK_CONVERT_VERIFY) != 0 && c->options->to->mapping->from_model == NULL)
        return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_NO_READ_BACK,
                             "%s is a part of a model, which is not compared with all of it",
                             c->options->to->name);
    for (size_t i = 0; i < c->out->n_files && (flags & DCPK_CONVERT_INTEGRITY) != 0; i++)
        if (strchr(c->out->files[i].name, '/') != NULL)
            return dcpk_fail_fix(err, DCPK_EUSAGE, DCPK_FIX_NO_INTEGRITY,
                                 "integrity.json lists files of one folder, %s has each tensor in "
                                 "a folder of its own",
                                 c->options->to->name);
    return DCPK_OK;
}

static dcpk_status reopen(const struct dcpk_conversion *c, const struct dcpk_folder *folder,
                          struct dcpk_checkpoint **ckpt, struct dcpk_error *err)
{
    const struct dcpk_family_settings *family = &c->options->target.family;
    const struct dcpk_open_options given = {.family.maps = family->maps,
                                            .family.family = family->family};
    const char *path = folder != NULL ? dcpk_folder_partial(folder) : c->target.folder;
    struct dcpk_store *store;
    dcpk_status st = dcpk_store_open(path, &store, err);

    if (st == DCPK_OK)
        st = dcpk_checkpoint_open(store, c->options->env.formats, c->options->to->name, ckpt, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_give(*ckpt, &given, err);
    for (size_t i = 0; st == DCPK_OK && i < (*ckpt)->n_files; i++)
        dcpk_source_advise((*ckpt)->files[i], 0, dcpk_source_bytes((*ckpt)->files[i]),
                           DCPK_DONE_WITH);
    return st;
}

/* The checks of `dcpkit verify --against`. */
static dcpk_status prove(struct dcpk_conversion *c, struct dcpk_checkpoint *ours,
                         struct dcpk_error *err)
{
    const bool weights_only = c->model != NULL && (c->model->flags & DCPK_MODEL_WEIGHTS_ONLY) != 0;
    const struct dcpk_verify_options options = {.flags =
                                                    weights_only ? DCPK_VERIFY_WEIGHTS_ONLY : 0,
                                                .source = c->ckpt,
                                                .source_name = c->source.folder,
                                                .vocab_size = c->options->rules.vocab.size,
                                                .env = c->options->env};
    const struct dcpk_compare_report *report = &c->proof;
    struct dcpk_verification v = {.has_checksums = false};
    dcpk_status st;

    dcpk_verify(ours, &options, &v);
    st = dcpk_verification_status(&v, err);
    c->proof = v.proof; /* released by the conversion */
    if (st == DCPK_OK && report->n_overflowed > 0 &&
        (c->options->flags & DCPK_CONVERT_ALLOW_OVERFLOW) == 0)
        st = dcpk_fail_fix(err, DCPK_ERANGE, DCPK_FIX_ALLOW_OVERFLOW,
                           "the cast made %" PRIu64 " finite elements infinite, the first in '%s'",
                           report->n_overflowed, report->first_overflowed);
    return st;
}

static dcpk_status hash(struct dcpk_conversion *c, struct dcpk_checkpoint *ours,
                        struct dcpk_exec *exec, struct dcpk_error *err)
{
    struct dcpk_hash_list list = {0};
    dcpk_status st;

    dcpk_progress_begin(&c->options->env.progress, "hashing");
    st = dcpk_hash_list_make(exec, ours, &list, err);
    if (st == DCPK_OK)
        st = dcpk_hash_list_print(&list, ours, &c->hashes, err);
    if (st == DCPK_OK) {
        dcpk_bytes_text(&c->hashes, "\n");
        st = dcpk_bytes_status(&c->hashes, err);
    }
    dcpk_hash_list_release(&list);
    return st;
}

/* The list of an existing output is checked already; the output must have one. */
static dcpk_status put_integrity(const struct dcpk_conversion *c, struct dcpk_exec *exec,
                                 struct dcpk_folder *folder, struct dcpk_error *err)
{
    bool is_there = false;

    dcpk_progress_begin(&c->options->env.progress, "hashing files");
    if (folder != NULL)
        return dcpk_exec_put_integrity(exec, folder, err);
    if (dcpk_exec_find_integrity(exec, &is_there, err) != DCPK_OK)
        return err->status;
    if (!is_there)
        return dcpk_fail(err, DCPK_EUSAGE, "'" DCPK_INTEGRITY_NAME "' is missing");
    return DCPK_OK;
}

dcpk_status dcpk_conversion_check(struct dcpk_conversion *c, struct dcpk_folder *folder,
                                  struct dcpk_error *err)
{
    const unsigned flags = c->options->flags;
    struct dcpk_checkpoint *ours = NULL;
    struct dcpk_exec *exec = NULL;
    dcpk_status st;

    if (!dcpk_conversion_reads_back(c))
        return DCPK_OK;
    st = reopen(c, folder, &ours, err);
    if (st == DCPK_OK)
        st = dcpk_exec_new(ours, &c->options->env, &exec, err);
    if (st == DCPK_OK && (flags & DCPK_CONVERT_VERIFY) != 0)
        st = prove(c, ours, err);
    if (st == DCPK_OK && (flags & DCPK_CONVERT_HASHES) != 0)
        st = hash(c, ours, exec, err);
    if (st == DCPK_OK && (flags & DCPK_CONVERT_INTEGRITY) != 0)
        st = put_integrity(c, exec, folder, err);
    dcpk_exec_free(exec);
    dcpk_checkpoint_close(ours);
    if (st != DCPK_OK && folder != NULL)
        dcpk_context(err, "checking what was written (nothing is published)");
    return st;
}
