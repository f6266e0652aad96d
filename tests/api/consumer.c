/* SPDX-License-Identifier: Apache-2.0 */
/* consumer.c - a program of somebody else's: uses the installed library. Valid C and C++. */
/*
 * consumer CHECKPOINT KEY HASH OUT: opens it, reads the tensor KEY, whose XXH3-128 must be HASH,
 * feeds it to an engine, refuses what cannot be, converts to OUT and compares. Prints one line;
 * exit 1 when something is not as it should be.
 */
#include <dcpkit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dcpkit *session;
static int n_updates;

#define MUST(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what,                          \
                    session == NULL ? "" : dcpkit_error(session));                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int count_updates(void *context, const char *stage, uint64_t done, uint64_t total)
{
    MUST(context == &n_updates && stage != NULL && done <= total);
    n_updates++;
    return 0;
}

static int refuse(void *context, const char *stage, uint64_t done, uint64_t total)
{
    (void)context;
    (void)stage;
    (void)done;
    (void)total;
    return 1;
}

/* All elements, and the last row again as a box of its own: the same bytes. */
static void read_tensor(dcpkit_checkpoint *ckpt, size_t index, const char *want)
{
    struct dcpkit_tensor t;
    struct dcpkit_chunk chunk;
    int64_t offset[16] = {0}, extent[16];
    size_t n_bytes, row_bytes;
    uint8_t hash[16];
    char text[33];
    char *all, *row;

    MUST(dcpkit_tensor_at(ckpt, index, &t) == DCPKIT_OK && t.rank >= 1);
    n_bytes = t.elem_bytes;
    for (int a = 0; a < t.rank; a++) {
        n_bytes *= (size_t)t.shape[a];
        extent[a] = t.shape[a];
    }
    row_bytes = n_bytes / (size_t)t.shape[0];
    all = (char *)malloc(n_bytes);
    row = (char *)malloc(row_bytes);
    MUST(all != NULL && row != NULL);
    MUST(dcpkit_read(ckpt, index, NULL, NULL, all, n_bytes) == DCPKIT_OK);
    offset[0] = t.shape[0] - 1;
    extent[0] = 1;
    MUST(dcpkit_read(ckpt, index, offset, extent, row, row_bytes) == DCPKIT_OK);
    MUST(memcmp(all + n_bytes - row_bytes, row, row_bytes) == 0);
    MUST(dcpkit_read(ckpt, index, NULL, NULL, all, n_bytes - 1) == DCPKIT_EUSAGE);
    offset[0] = t.shape[0];
    MUST(dcpkit_read(ckpt, index, offset, extent, row, row_bytes) == DCPKIT_EUSAGE);
    MUST(dcpkit_chunk_at(ckpt, index, t.n_chunks - 1, &chunk) == DCPKIT_OK);
    MUST(chunk.n_bytes > 0 && chunk.file[0] != '\0');
    MUST(dcpkit_chunk_at(ckpt, index, t.n_chunks, &chunk) == DCPKIT_EUSAGE);
    MUST(dcpkit_hash(ckpt, &index, 1, &hash) == DCPKIT_OK);
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    MUST(strcmp(text, want) == 0);
    free(all);
    free(row);
}

/* The tensor from the files into memory in two parts, by an engine of this process alone. */
static void feed(const char *in, dcpkit_checkpoint *ckpt, size_t index)
{
    struct dcpkit_map_totals totals = DCPKIT_INIT(struct dcpkit_map_totals);
    struct dcpkit_map_stats stats = DCPKIT_INIT(struct dcpkit_map_stats);
    struct dcpkit_tensor t;
    struct dcpkit_shard shards[2];
    int64_t offset[16] = {0}, extent[2][16];
    uint64_t sums[2];
    uint8_t differs = 0;
    dcpkit_engine *engine;
    dcpkit_map *map;
    size_t n_bytes;
    char *want, *got;

    MUST(dcpkit_tensor_at(ckpt, index, &t) == DCPKIT_OK && t.shape[0] > 1);
    n_bytes = t.elem_bytes;
    for (int a = 0; a < t.rank; a++) {
        n_bytes *= (size_t)t.shape[a];
        extent[0][a] = extent[1][a] = t.shape[a];
    }
    want = (char *)malloc(n_bytes);
    got = (char *)calloc(n_bytes, 1);
    MUST(want != NULL && got != NULL);
    extent[0][0] = offset[0] = 1; /* the first row, then the others */
    extent[1][0] = t.shape[0] - 1;
    memset(shards, 0, sizeof shards);
    for (int i = 0; i < 2; i++) {
        shards[i].name = t.key;
        shards[i].dtype = t.dtype;
        shards[i].rank = t.rank;
        shards[i].shape = t.shape;
        shards[i].offset = i == 0 ? NULL : offset;
        shards[i].extent = extent[i];
        shards[i].data = got + (i == 0 ? 0 : n_bytes / (size_t)t.shape[0]);
    }
    MUST(dcpkit_engine_open(session, NULL, NULL, &engine) == DCPKIT_OK);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_source_checkpoint(map, in, NULL) == DCPKIT_OK);
    MUST(dcpkit_map_target(map, shards, 2) == DCPKIT_OK);
    MUST(dcpkit_map_plan(map, &totals) == DCPKIT_OK && totals.n_tensors == 1);
    MUST(totals.local_bytes == n_bytes && strcmp(dcpkit_map_tensor(map, 0), t.key) == 0);
    MUST(dcpkit_map_run(map, &stats) == DCPKIT_OK && stats.read_bytes >= n_bytes);
    MUST(dcpkit_read(ckpt, index, NULL, NULL, want, n_bytes) == DCPKIT_OK);
    MUST(memcmp(want, got, n_bytes) == 0);
    MUST(dcpkit_map_fingerprint(map, DCPKIT_TARGETS, sums, 2) == DCPKIT_OK && sums[0] != 0);
    MUST(dcpkit_map_fingerprint(map, DCPKIT_SOURCES, sums, 2) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_verify(map, NULL, 0) == DCPKIT_OK);
    MUST(dcpkit_map_run_changed(map, NULL) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_checkpoint_tensor(map, 0) != NULL);
    ((char *)got)[n_bytes - 1] ^= 1;
    MUST(dcpkit_map_verify(map, &differs, 1) == DCPKIT_EMISMATCH && differs == 1);
    MUST(strstr(dcpkit_error(session), t.key) != NULL);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_source_checkpoint(map, in, "no_format") == DCPKIT_EUSAGE);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_names(map, in, NULL, NULL) == DCPKIT_OK);
    MUST(dcpkit_map_names(map, in, NULL, NULL) == DCPKIT_EUSAGE);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_names(map, in, "no_format", NULL) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_names(map, in, "megatron:tp=1", "transformers") == DCPKIT_OK);
    shards[0].name = "module.no.such.parameter";
    MUST(dcpkit_map_source(map, shards, 1) == DCPKIT_OK);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_EMISMATCH);
    MUST(strstr(dcpkit_error(session), "on this rank") != NULL);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_names(map, in, "megatron:tp=2", NULL) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    shards[0].name = "there.is.none";
    MUST(dcpkit_map_source_checkpoint(map, in, NULL) == DCPKIT_OK);
    MUST(dcpkit_map_source(map, shards, 1) == DCPKIT_EUSAGE);
    dcpkit_map_free(map);
    MUST(dcpkit_map_new(engine, &map) == DCPKIT_OK);
    MUST(dcpkit_map_source_checkpoint(map, in, NULL) == DCPKIT_OK);
    MUST(dcpkit_map_target(map, shards, 1) == DCPKIT_OK);
    MUST(dcpkit_map_plan(map, NULL) == DCPKIT_EMISMATCH);
    MUST(strstr(dcpkit_error(session), "there.is.none") != NULL);
    dcpkit_map_free(map);
    dcpkit_engine_close(engine);
    free(want);
    free(got);
}

static void convert(const char *in, dcpkit_checkpoint *source, const char *out)
{
    struct dcpkit_convert_options options = DCPKIT_INIT(struct dcpkit_convert_options);
    dcpkit_checkpoint *made;
    uint64_t n_differences = 1;
    char *report = NULL, *first = NULL;

    options.flags = DCPKIT_PROVE;
    MUST(dcpkit_convert(session, in, out, "no_format", NULL, NULL) == DCPKIT_EUSAGE);
    MUST(dcpkit_convert(session, in, out, "fsdp_dtensor", &options, &report) == DCPKIT_OK);
    MUST(report != NULL && report[0] == '{' && n_updates > 0);
    dcpkit_text_free(report);
    MUST(dcpkit_convert(session, in, out, "fsdp_dtensor", NULL, NULL) == DCPKIT_EUSAGE);
    MUST(strstr(dcpkit_error(session), "exists") != NULL);
    MUST((dcpkit_fixes(session) & DCPKIT_FIX_REPLACE) != 0);
    MUST(dcpkit_open(session, out, "fsdp_dtensor", &made) == DCPKIT_OK);
    MUST(dcpkit_verify(made, source) == DCPKIT_OK);
    MUST(dcpkit_compare(made, source, &n_differences, &first) == DCPKIT_OK);
    MUST(n_differences == 0 && first == NULL);
    dcpkit_close(made);
}

static void be_refused(const char *in)
{
    struct dcpkit_options options = DCPKIT_INIT(struct dcpkit_options);
    dcpkit_checkpoint *ckpt = NULL;
    dcpkit *other;

    options.size = 1000;
    MUST(dcpkit_new(&options, &other) == DCPKIT_EUSAGE);
    options.size = sizeof options;
    options.progress = refuse;
    MUST(dcpkit_new(&options, &other) == DCPKIT_OK);
    MUST(dcpkit_error(other)[0] == '\0');
    MUST(dcpkit_open(other, "/nowhere/at/all", NULL, &ckpt) == DCPKIT_EIO && ckpt == NULL);
    MUST(strstr(dcpkit_error(other), "/nowhere/at/all") != NULL);
    MUST(dcpkit_open(other, in, NULL, &ckpt) == DCPKIT_OK);
    MUST(dcpkit_verify(ckpt, NULL) == DCPKIT_ECANCELLED);
    dcpkit_close(ckpt);
    dcpkit_free(other);
    dcpkit_close(NULL);
    dcpkit_free(NULL);
    dcpkit_text_free(NULL);
}

int main(int argc, char **argv)
{
    struct dcpkit_options options = DCPKIT_INIT(struct dcpkit_options);
    struct dcpkit_summary summary;
    dcpkit_checkpoint *ckpt;
    char *json = NULL;
    size_t index;

    if (argc != 5)
        return 2;
    options.progress = count_updates;
    options.context = &n_updates;
    MUST(dcpkit_format_name(0) != NULL && dcpkit_format_name(100) == NULL);
    MUST(dcpkit_new(&options, &session) == DCPKIT_OK);
    MUST(dcpkit_open(session, argv[1], NULL, &ckpt) == DCPKIT_OK);
    dcpkit_summary(ckpt, &summary);
    MUST(summary.n_tensors > 0 && dcpkit_object_key(ckpt, summary.n_objects) == NULL);
    MUST(dcpkit_tensor_find(ckpt, "there.is.none", &index) == DCPKIT_EUSAGE);
    MUST(dcpkit_tensor_find(ckpt, argv[2], &index) == DCPKIT_OK);
    read_tensor(ckpt, index, argv[3]);
    MUST(dcpkit_json(ckpt, "iteration", &json) == DCPKIT_OK && strcmp(json, "4") == 0);
    dcpkit_text_free(json);
    MUST(dcpkit_json(ckpt, "there.is.none", &json) == DCPKIT_EUSAGE);
    feed(argv[1], ckpt, index);
    convert(argv[1], ckpt, argv[4]);
    be_refused(argv[1]);
    printf("dcpkit %s: %s, %zu tensors: as it should be\n", dcpkit_version(), summary.format,
           summary.n_tensors);
    dcpkit_close(ckpt);
    dcpkit_free(session);
    return 0;
}
