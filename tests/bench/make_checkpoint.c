/* SPDX-License-Identifier: Apache-2.0 */
/* make_checkpoint.c - write a synthetic torch_dist checkpoint of any size, fast. */
/*
 * make_checkpoint --like GOLDEN OUT [--gb N] [options] makes OUT/iter_0000004 and OUT's tracker.
 *
 * A Llama-like dense model under TP2 PP2: bf16 weights and fp32 optimizer.state.{param, exp_avg,
 * exp_avg_sq}, 14 bytes a parameter, each weight its param rounded. Keys, chunks, objects and files
 * are those that Megatron writes: generation, args and the other training state are taken from the
 * sample GOLDEN (an iteration folder of torch_dist_b_dense_tp2pp2 or torch_dist_c_dense_tp2pp2),
 * sizes replaced.
 *
 *     sizes -> tensors and their chunks (describe) -> places in files (place) -> data (write_chunk)
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/dcp/dcp.h"
#include "formats/formats.h"
#include "formats/torch/item.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/digest.h"
#include "lib/exec/pool.h"
#include "lib/io/file.h"
#include "lib/io/sink.h"
#include "tests/bench/make_priv.h"

#define ITERATION "iter_0000004"

/* Sizes of a model that takes about n_bytes; what the user gave (non-zero) stays. */
static void choose_sizes(struct dcpk_bench_sizes *s, double n_bytes)
{
    const double n_params = n_bytes / 14;
    const bool fits_ffn = s->ffn == 0;
    double left;

    if (s->hidden == 0)
        s->hidden = n_bytes < 1e8    ? 128
                    : n_bytes < 3e8  ? 256
                    : n_bytes < 2e9  ? 512
                    : n_bytes < 6e9  ? 1024
                    : n_bytes < 4e10 ? 2048
                                     : 4096;
    if (s->vocab == 0)
        s->vocab = s->hidden <= 256 ? 4096 : 32000;
    if (s->heads == 0)
        s->heads = s->hidden < 128 ? 2 : s->hidden / 64;
    if (s->groups == 0)
        s->groups = s->heads < 8 ? 2 : s->heads / 4;
    if (s->ffn == 0)
        s->ffn = (s->hidden * 11 / 4 + 63) / 64 * 64;
    left = n_params - (double)dcpk_bench_count_elems(s, false);
    if (s->layers == 0)
        s->layers = (int64_t)(left / (double)dcpk_bench_count_elems(s, true) / N_PP + 0.5) * N_PP;
    if (s->layers < N_PP)
        s->layers = N_PP;
    if (fits_ffn) { /* the right size by the width of the MLP */
        const int64_t rest = dcpk_bench_count_elems(s, true) - 3 * s->hidden * s->ffn;

        s->ffn =
            (int64_t)((left / (double)s->layers - (double)rest) / (double)(3 * s->hidden) / 64 +
                      0.5) *
            64;
        if (s->ffn < 64)
            s->ffn = 64;
    }
}

/* Give every item its place: objects in the first file, chunks in the order of their tensors. */
static dcpk_status place(struct dcpk_making *m, struct dcpk_error *err)
{
    struct dcpk_output *out = m->out;

    out->n_files = m->has_common_file ? 2 * N_RANKS : N_RANKS;
    out->files = dcpk_alloc_array(out->n_files, sizeof *out->files, err);
    if (out->files == NULL)
        return err->status;
    for (size_t i = 0; i < out->n_files; i++) {
        const size_t per_rank = out->n_files / N_RANKS;

        out->files[i].name =
            dcpk_arena_printf(out->arena, err, "__%zu_%zu.distcp", i / per_rank, i % per_rank);
        if (out->files[i].name == NULL)
            return err->status;
    }
    for (size_t i = 0; i < out->n_payloads; i++) {
        out->payloads[i].offset_bytes = out->files[0].n_bytes;
        out->files[0].n_bytes += out->payloads[i].n_bytes;
    }
    for (size_t i = 0; i < out->n_chunks; i++) {
        struct dcpk_out_chunk *c = &out->chunks[i];
        const struct dcpk_out_tensor *t = &out->tensors[c->tensor];
        const struct dcpk_item_form form = {t->dtype, t->rank, c->span + t->rank};
        struct dcpk_item_sizes sizes;

        if (dcpk_item_measure(&form, &sizes, err) != DCPK_OK)
            return err->status;
        c->lead_bytes = sizes.lead_bytes;
        c->data_bytes = sizes.data_bytes;
        c->tail_bytes = sizes.tail_bytes;
        c->offset_bytes = out->files[c->file].n_bytes;
        out->files[c->file].n_bytes += c->lead_bytes + c->data_bytes + c->tail_bytes;
    }
    return DCPK_OK;
}

/* A task of the pool: make one chunk's data piece by piece, then its frame. */
static dcpk_status write_chunk(void *context, int worker, uint64_t i, struct dcpk_error *err)
{
    const struct dcpk_making *m = context;
    const struct dcpk_out_chunk *c = &m->out->chunks[i];
    const struct dcpk_recipe *r = &m->recipes[i];
    struct dcpk_sink *sink = m->sinks[c->file];
    const uint64_t data_at = c->offset_bytes + c->lead_bytes;
    uint32_t crc = 0;
    uint8_t frame[8192];
    dcpk_status st = DCPK_OK;

    for (uint64_t done = 0; done < c->data_bytes && st == DCPK_OK;) {
        size_t n;
        const void *piece =
            dcpk_bench_data_make(m->data, worker, r->kind, r->key, done, c->data_bytes - done, &n);

        crc = dcpk_crc32(crc, piece, n);
        st = dcpk_sink_write(sink, data_at + done, piece, n, err);
        done += n;
    }
    if (st == DCPK_OK && c->lead_bytes + c->tail_bytes > sizeof frame)
        st = dcpk_fail(err, DCPK_ERANGE, "a frame of %" PRIu32 " bytes",
                       c->lead_bytes + c->tail_bytes);
    if (st == DCPK_OK)
        st = dcpk_dcp_writer.frame(m->out, c, crc, frame, frame + c->lead_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_sink_write(sink, c->offset_bytes, frame, c->lead_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_sink_write(sink, data_at + c->data_bytes, frame + c->lead_bytes, c->tail_bytes,
                             err);
    return st;
}

static dcpk_status write_files(struct dcpk_making *m, struct dcpk_folder *folder, int n_threads,
                               struct dcpk_error *err)
{
    struct dcpk_output *out = m->out;
    dcpk_status st = DCPK_OK;

    for (size_t i = 0; i < out->n_files && st == DCPK_OK; i++)
        st = dcpk_folder_create(folder, out->files[i].name, out->files[i].n_bytes, &m->sinks[i],
                                err);
    for (size_t i = 0; i < out->n_payloads && st == DCPK_OK; i++)
        st = dcpk_sink_write(m->sinks[0], out->payloads[i].offset_bytes, m->blobs[i].data,
                             m->blobs[i].n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_pool_run(n_threads, out->n_chunks, write_chunk, m, err);
    for (size_t i = 0; i < out->n_files; i++) {
        if (st == DCPK_OK)
            st = dcpk_sink_close(m->sinks[i], err);
        else
            dcpk_sink_abandon(m->sinks[i]);
        m->sinks[i] = NULL;
    }
    return st;
}

/*
 * .metadata as torch writes it, and the golden's metadata.json, which does not depend on the model.
 */
static dcpk_status write_metadata(struct dcpk_making *m, struct dcpk_folder *folder,
                                  struct dcpk_error *err)
{
    struct dcpk_source *source;
    char *json = NULL;
    size_t n_bytes;
    dcpk_status st = dcpk_dcp_writer.write_ahead(m->out, folder, err);

    if (st == DCPK_OK)
        st = dcpk_dcp_writer.finish(m->out, folder, err);
    if (st == DCPK_OK)
        st = dcpk_store_find(m->golden->store, "metadata.json", &source, err);
    if (st == DCPK_OK)
        st = dcpk_source_slurp(source, 1 << 20, &json, &n_bytes, err);
    if (st == DCPK_OK)
        st = dcpk_folder_put(folder, "metadata.json", json, n_bytes, err);
    dcpk_free(json);
    return st;
}

static dcpk_status make(struct dcpk_making *m, const char *path, int n_threads,
                        struct dcpk_error *err)
{
    struct dcpk_folder *folder = NULL;
    dcpk_status st = dcpk_folder_begin(path, DCPK_FOLDER_REPLACE, &folder, err);

    if (st == DCPK_OK)
        st = dcpk_output_new(NULL, m->golden->format, &m->out, err);
    if (st == DCPK_OK)
        st = dcpk_bench_describe_tensors(m, err);
    if (st == DCPK_OK)
        st = dcpk_bench_describe_objects(m, err);
    if (st == DCPK_OK)
        st = dcpk_bench_add_common(m, folder, err);
    if (st == DCPK_OK)
        st = place(m, err);
    if (st == DCPK_OK)
        st = write_files(m, folder, n_threads, err);
    if (st == DCPK_OK)
        st = write_metadata(m, folder, err);
    if (st == DCPK_OK)
        st = dcpk_folder_publish(folder, err);
    if (st != DCPK_OK)
        dcpk_folder_abandon(folder);
    return st;
}

static void print_summary(const struct dcpk_making *m, const char *path)
{
    const struct dcpk_bench_sizes *s = &m->sizes;
    uint64_t n_bytes = 0;

    for (size_t i = 0; i < m->out->n_files; i++)
        n_bytes += m->out->files[i].n_bytes;
    printf("%s: %" PRId64 " layers, hidden %" PRId64 ", ffn %" PRId64 ", heads %" PRId64 "/%" PRId64
           ", vocab %" PRId64 ": %.3f GB in %zu tensors, %zu chunks, %zu objects, %zu files\n",
           path, s->layers, s->hidden, s->ffn, s->heads, s->groups, s->vocab, (double)n_bytes / 1e9,
           m->out->n_tensors, m->out->n_chunks, m->out->n_objects, m->out->n_files);
}

static int usage(void)
{
    fprintf(stderr, "usage: make_checkpoint --like GOLDEN_ITERATION [--gb N] [--per-layer] "
                    "[--layers L] [--hidden H]\n"
                    "       [--ffn F] [--heads A] [--groups G] [--vocab V] OUT\n");
    return 2;
}

/* A size that both tensor-parallel ranks share alike. */
static dcpk_status check_sizes(const struct dcpk_bench_sizes *s, struct dcpk_error *err)
{
    if (s->layers % N_PP != 0 || s->ffn % N_TP != 0 || s->vocab % N_TP != 0 ||
        s->groups % N_TP != 0 || s->hidden % s->heads != 0 || s->heads % N_TP != 0)
        return dcpk_fail(
            err, DCPK_EUSAGE,
            "layers, ffn, vocab, heads and groups must be even, hidden a multiple of heads");
    return DCPK_OK;
}

static dcpk_status run(struct dcpk_making *m, const char *golden, const char *out,
                       struct dcpk_error *err)
{
    struct dcpk_store *store = NULL;
    const int n_threads = dcpk_pool_default_threads();
    enum dcpk_path_kind common_pt;
    char path[4096], tracker[4096];
    dcpk_status st = check_sizes(&m->sizes, err);

    snprintf(path, sizeof path, "%s/" ITERATION, out);
    snprintf(tracker, sizeof tracker, "%s/latest_checkpointed_iteration.txt", out);
    if (st == DCPK_OK)
        st = dcpk_store_open(golden, &store, err);
    if (st == DCPK_OK)
        st = dcpk_checkpoint_open(store, dcpk_formats, "torch_dist", &m->golden, err);
    if (st != DCPK_OK)
        return st;
    st = dcpk_store_look(m->golden->store, "common.pt", &common_pt, err);
    m->has_common_file = st == DCPK_OK && common_pt == DCPK_PATH_FILE;
    if (st == DCPK_OK)
        st = dcpk_bench_data_new(n_threads, &m->data, err);
    if (st == DCPK_OK)
        st = make(m, path, n_threads, err);
    if (st == DCPK_OK)
        st = dcpk_file_write(tracker, 0, "4", 1, err);
    if (st == DCPK_OK)
        print_summary(m, path);
    return st;
}

static void release(struct dcpk_making *m)
{
    for (size_t i = 0; m->out != NULL && i < m->out->n_payloads; i++)
        dcpk_free(m->blobs[i].data);
    dcpk_free(m->blobs);
    dcpk_free(m->recipes);
    dcpk_bench_data_free(m->data);
    dcpk_output_free(m->out);
    dcpk_checkpoint_close(m->golden);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"like", 1, NULL, 'k'},   {"gb", 1, NULL, 'b'},     {"per-layer", 0, NULL, 'p'},
        {"layers", 1, NULL, 'l'}, {"hidden", 1, NULL, 'h'}, {"ffn", 1, NULL, 'f'},
        {"heads", 1, NULL, 'a'},  {"groups", 1, NULL, 'g'}, {"vocab", 1, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_making m = {.sizes = {.is_stacked = true}};
    const char *golden = NULL;
    double gb = 1;
    dcpk_status st;

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 'k':
            golden = optarg;
            break;
        case 'b':
            gb = strtod(optarg, NULL);
            break;
        case 'p':
            m.sizes.is_stacked = false;
            break;
        case 'l':
            m.sizes.layers = strtoll(optarg, NULL, 10);
            break;
        case 'h':
            m.sizes.hidden = strtoll(optarg, NULL, 10);
            break;
        case 'f':
            m.sizes.ffn = strtoll(optarg, NULL, 10);
            break;
        case 'a':
            m.sizes.heads = strtoll(optarg, NULL, 10);
            break;
        case 'g':
            m.sizes.groups = strtoll(optarg, NULL, 10);
            break;
        case 'v':
            m.sizes.vocab = strtoll(optarg, NULL, 10);
            break;
        default:
            return usage();
        }
    if (golden == NULL || optind + 1 != argc || !(gb > 0))
        return usage();
    choose_sizes(&m.sizes, gb * 1e9);
    st = run(&m, golden, argv[optind], &err);
    if (st != DCPK_OK)
        fprintf(stderr, "make_checkpoint: %s\n", err.text);
    release(&m);
    return st == DCPK_OK ? 0 : 1;
}
