/* SPDX-License-Identifier: Apache-2.0 */
/* exec_integrity.c - the SHA-256 of whole files: a file is read by one thread, many files at
 * once. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/hex.h"
#include "lib/base/order.h"
#include "lib/ckpt/integrity.h"
#include "lib/exec/workers.h"
#include "lib/io/file.h"

/* A file to be read; sources are borrowed from the store. */
struct file {
    struct dcpk_source *source;
    struct dcpk_file_sum *sum;
};

struct summing {
    struct dcpk_exec *exec;
    struct dcpk_pass pass;
    struct file *files; /* the longest first: one begun last would keep a thread busy */
    size_t n_files;
};

static int compare_lengths(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    const uint64_t m = dcpk_source_bytes(x->source), n = dcpk_source_bytes(y->source);

    if (m != n)
        return DCPK_THREE_WAY(n, m);
    return DCPK_THREE_WAY(x->sum, y->sum); /* the same order on all ranks */
}

static uint64_t sum_task_bytes(const void *context, uint64_t task)
{
    return dcpk_source_bytes(((const struct summing *)context)->files[task].source);
}

static dcpk_status sum_task(void *context, int worker_number, uint64_t task, struct dcpk_error *err)
{
    struct summing *s = context;
    struct dcpk_worker *worker = &s->pass.workers[worker_number];
    struct dcpk_source *source = s->files[task].source;
    const uint64_t n_bytes = dcpk_source_bytes(source);
    struct dcpk_sha256 hash;

    dcpk_sha256_begin(&hash);
    for (uint64_t at = 0; at < n_bytes; at += worker->buffer_bytes) {
        const size_t n = (size_t)dcpk_min_u64(n_bytes - at, worker->buffer_bytes);

        dcpk_source_advise(source, at + n, worker->buffer_bytes, DCPK_WILL_NEED);
        if (dcpk_worker_read(worker, source, at, worker->buffer, n, err) != DCPK_OK)
            return err->status;
        dcpk_sha256_update(&hash, worker->buffer, n);
        if (dcpk_meter_add(&s->pass.meter, n, err) != DCPK_OK)
            return err->status;
    }
    dcpk_sha256_digest(&hash, s->files[task].sum->sha256);
    return DCPK_OK;
}

/* The sources of all files in the order of the work; sums: of as many files. */
static dcpk_status summing_init(struct summing *s, struct dcpk_file_sum *sums,
                                struct dcpk_error *err)
{
    s->files = dcpk_alloc_array(s->n_files, sizeof *s->files, err);
    if (s->files == NULL)
        return err->status;
    for (size_t i = 0; i < s->n_files; i++) {
        s->files[i].sum = &sums[i];
        if (dcpk_store_find(s->exec->ckpt->store, sums[i].name, &s->files[i].source, err))
            return err->status;
    }
    qsort(s->files, s->n_files, sizeof *s->files, compare_lengths);
    return DCPK_OK;
}

/* The sums of all files, whichever rank has made them. */
static dcpk_status share_sums(struct summing *s, dcpk_status st, struct dcpk_error *err)
{
    struct dcpk_bytes mine = {0}, all = {0};

    for (uint64_t i = s->pass.work.first; i < s->pass.work.last; i++)
        dcpk_bytes_put(&mine, s->files[i].sum->sha256, DCPK_SHA256_BYTES);
    st = dcpk_pass_share(&s->pass, &mine, DCPK_SHA256_BYTES, &all, st, err);
    for (size_t i = 0; i < s->n_files && st == DCPK_OK; i++)
        memcpy(s->files[i].sum->sha256, all.data + i * DCPK_SHA256_BYTES, DCPK_SHA256_BYTES);
    dcpk_bytes_release(&mine);
    dcpk_bytes_release(&all);
    return st;
}

/* Set the sums of n files of the checkpoint's store. */
static dcpk_status sum_files(struct dcpk_exec *exec, struct dcpk_file_sum *sums, size_t n,
                             struct dcpk_error *err)
{
    struct summing s = {.exec = exec, .n_files = n};
    dcpk_status st = dcpk_pass_begin(&s.pass, exec, err);

    if (st == DCPK_OK)
        st = summing_init(&s, sums, err);
    if (st == DCPK_OK) {
        s.pass.work = (struct dcpk_work){.n = n, .bytes_of = sum_task_bytes};
        s.pass.task = sum_task;
        s.pass.context = &s;
        st = share_sums(&s, dcpk_pass_run(&s.pass, err), err);
    }
    st = dcpk_pass_end(&s.pass, NULL, st);
    dcpk_free(s.files);
    return st;
}

/* Checks that listed files exist: a missing one is an answer, not a failure to read. */
static dcpk_status check_present(struct dcpk_store *store, const struct dcpk_integrity *list,
                                 struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    for (size_t i = 0; i < list->n_files; i++) {
        if (dcpk_store_look(store, list->files[i].name, &kind, err) != DCPK_OK)
            return err->status;
        if (kind != DCPK_PATH_FILE)
            return dcpk_fail(err, DCPK_EFORMAT,
                             "'%.200s' is listed in '" DCPK_INTEGRITY_NAME
                             "' and is not a file of '%s'",
                             list->files[i].name, dcpk_store_path(store));
    }
    return DCPK_OK;
}

/*
 * Each data file is listed: Megatron lists every file of the folder, so one that is not came later,
 * or its line is gone. (A name with a '/' is an array's, in a folder that no list goes into.)
 */
static dcpk_status check_listed(const struct dcpk_checkpoint *ckpt,
                                const struct dcpk_integrity *list, struct dcpk_error *err)
{
    struct dcpk_map by_name = {0};
    uint64_t found;
    bool existed;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < list->n_files && st == DCPK_OK; i++)
        st = dcpk_map_put(&by_name, list->files[i].name, strlen(list->files[i].name), i, &existed,
                          &found, err);
    for (size_t i = 0; i < ckpt->n_files && st == DCPK_OK; i++) {
        const char *name = dcpk_source_name(ckpt->files[i]);

        if (strchr(name, '/') == NULL && !dcpk_map_get(&by_name, name, strlen(name), &found))
            st = dcpk_fail(err, DCPK_EFORMAT,
                           "'%.200s' holds data and is not listed in '" DCPK_INTEGRITY_NAME "'",
                           name);
    }
    dcpk_map_release(&by_name);
    return st;
}

static dcpk_status compare_file_sums(const struct dcpk_integrity *list,
                                     const struct dcpk_file_sum *got, struct dcpk_error *err)
{
    char digits[2][2 * DCPK_SHA256_BYTES + 1];
    size_t n_bad = 0, first = 0;

    for (size_t i = list->n_files; i-- > 0;)
        if (memcmp(list->files[i].sha256, got[i].sha256, DCPK_SHA256_BYTES) != 0) {
            first = i;
            n_bad++;
        }
    if (n_bad == 0)
        return DCPK_OK;
    return dcpk_fail(err, DCPK_EFORMAT,
                     "'%.200s' has SHA-256 %s, '" DCPK_INTEGRITY_NAME
                     "' says %s; %zu of %zu files differ from it (damaged, or changed since)",
                     list->files[first].name,
                     dcpk_hex_put(got[first].sha256, DCPK_SHA256_BYTES, digits[0]),
                     dcpk_hex_put(list->files[first].sha256, DCPK_SHA256_BYTES, digits[1]), n_bad,
                     list->n_files);
}

dcpk_status dcpk_exec_find_integrity(struct dcpk_exec *exec, bool *is_there, struct dcpk_error *err)
{
    enum dcpk_path_kind kind;

    if (dcpk_store_look(exec->ckpt->store, DCPK_INTEGRITY_NAME, &kind, err) ||
        dcpk_ranks_check_same(exec->ranks, (uint64_t)kind, "'" DCPK_INTEGRITY_NAME "'", err))
        return err->status;
    *is_there = kind != DCPK_PATH_NOTHING;
    return DCPK_OK;
}

dcpk_status dcpk_exec_check_integrity(struct dcpk_exec *exec, size_t *n_files,
                                      struct dcpk_error *err)
{
    struct dcpk_store *store = exec->ckpt->store;
    struct dcpk_integrity list = {0};
    struct dcpk_file_sum *got = NULL;
    dcpk_status st = dcpk_integrity_read(store, &list, err);

    if (st == DCPK_OK)
        st = check_present(store, &list, err);
    if (st == DCPK_OK)
        st = check_listed(exec->ckpt, &list, err);
    if (st != DCPK_OK)
        goto out;
    got = dcpk_arena_array(list.arena, list.n_files, sizeof *got, err);
    if (got == NULL) {
        st = err->status;
        goto out;
    }
    for (size_t i = 0; i < list.n_files; i++)
        got[i].name = list.files[i].name;
    st = sum_files(exec, got, list.n_files, err);
    if (st == DCPK_OK)
        st = compare_file_sums(&list, got, err);
    if (st == DCPK_OK)
        *n_files = list.n_files;
out:
    dcpk_integrity_release(&list);
    return st;
}

dcpk_status dcpk_exec_sum_files(struct dcpk_exec *exec, struct dcpk_integrity *list,
                                struct dcpk_error *err)
{
    return sum_files(exec, list->files, list->n_files, err);
}

/* The list of the checkpoint's folder as the text of its file. */
static dcpk_status make_list(struct dcpk_exec *exec, struct dcpk_bytes *text, size_t *n_files,
                             struct dcpk_error *err)
{
    struct dcpk_integrity list = {0};
    dcpk_status st = dcpk_integrity_collect(exec->ckpt->store, &list, err);

    if (st == DCPK_OK)
        st = sum_files(exec, list.files, list.n_files, err);
    if (st == DCPK_OK) {
        dcpk_integrity_put(&list, text);
        *n_files = list.n_files;
        st = dcpk_bytes_status(text, err);
    }
    dcpk_integrity_release(&list);
    return st;
}

dcpk_status dcpk_exec_put_integrity(struct dcpk_exec *exec, struct dcpk_folder *folder,
                                    struct dcpk_error *err)
{
    struct dcpk_bytes text = {0};
    size_t n_files;
    dcpk_status st = make_list(exec, &text, &n_files, err);

    if (st == DCPK_OK && dcpk_ranks_self(exec->ranks) == 0)
        st = dcpk_folder_put(folder, DCPK_INTEGRITY_NAME, text.data, text.n_bytes, err);
    dcpk_bytes_release(&text);
    return st;
}

static dcpk_status replace_list(const char *folder, const struct dcpk_bytes *text,
                                struct dcpk_error *err)
{
    struct dcpk_bytes path = {0};
    dcpk_status st;

    dcpk_bytes_printf(&path, "%s/" DCPK_INTEGRITY_NAME, folder);
    st = dcpk_bytes_status(&path, err);
    if (st == DCPK_OK)
        st = dcpk_file_write((const char *)path.data, 0, text->data, text->n_bytes, err);
    dcpk_bytes_release(&path);
    return st;
}

dcpk_status dcpk_exec_may_add_integrity(const struct dcpk_checkpoint *ckpt, bool *is_there,
                                        struct dcpk_error *err)
{
    const char *folder = dcpk_store_path(ckpt->store);
    enum dcpk_path_kind kind;
    struct dcpk_path path;

    if (dcpk_path_look(AT_FDCWD, folder, 0, &path, err) != DCPK_OK ||
        dcpk_store_look(ckpt->store, DCPK_INTEGRITY_NAME, &kind, err) != DCPK_OK)
        return err->status;
    if (path.kind != DCPK_PATH_FOLDER)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' is not a folder on disk, and an archive is not changed", folder);
    for (size_t i = 0; i < ckpt->n_files; i++)
        if (strchr(dcpk_source_name(ckpt->files[i]), '/') != NULL)
            return dcpk_fail(err, DCPK_EUSAGE,
                             "'" DCPK_INTEGRITY_NAME
                             "' lists files of one folder, %s has each tensor in a folder of its "
                             "own",
                             ckpt->format->name);
    *is_there = kind != DCPK_PATH_NOTHING;
    return DCPK_OK;
}

dcpk_status dcpk_exec_add_integrity(struct dcpk_exec *exec, size_t *n_files, struct dcpk_error *err)
{
    const char *folder = dcpk_store_path(exec->ckpt->store);
    struct dcpk_bytes text = {0};
    dcpk_status st = make_list(exec, &text, n_files, err);

    if (st == DCPK_OK && dcpk_ranks_self(exec->ranks) == 0)
        st = replace_list(folder, &text, err);
    dcpk_bytes_release(&text);
    return st;
}
