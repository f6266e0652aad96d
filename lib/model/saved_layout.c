/* SPDX-License-Identifier: Apache-2.0 */
/* saved_layout.c - tensor-parallel sizes by columns, pipeline stages by RNG states, ranks by file
 * names. */
#include "lib/model/saved_layout.h"

#include <string.h>

#include "lib/base/order.h"
#include "lib/base/text.h"

#define LAYERS "decoder.layers."

/*
 * Weights whose columns tensor parallelism cuts, and nothing else does
 * (formats/torch_dist/FORMAT.md 4.3 to 4.6): stacked axes and data parallelism cut the others.
 */
static bool is_row_parallel(const char *key)
{
    static const char *const parts[] = {".linear_fc2.weight", ".self_attention.linear_proj.weight",
                                        ".mixer.out_proj.weight"};

    for (size_t i = 0; i < DCPK_COUNT(parts); i++)
        if (strstr(key, parts[i]) != NULL)
            return true;
    return false;
}

/* Optimizer state has its weight's chunks, or is flattened. */
static bool is_state(const char *key)
{
    return dcpk_starts_with(key, "optimizer.") || dcpk_starts_with(key, "chained_");
}

/* Blocks of the last axis, all chunks being cut the same there; 0: they are not. */
static int64_t count_columns(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor)
{
    const int last = tensor->rank - 1;
    int64_t n;

    if (tensor->n_chunks == 0)
        return 0;
    n = ckpt->chunks[tensor->first_chunk].span[tensor->rank + last];
    if (n == 0 || tensor->shape[last] % n != 0)
        return 0;
    for (size_t i = 1; i < tensor->n_chunks; i++)
        if (ckpt->chunks[tensor->first_chunk + i].span[tensor->rank + last] != n)
            return 0;
    return tensor->shape[last] / n;
}

/*
 * Does 3D-parallel training store it in such chunks, and a conversion for no mesh not? Layers
 * stacked in one tensor, each a chunk of its own; a gated fc1 in halves.
 */
static bool is_cut_by_ranks(const struct dcpk_checkpoint *ckpt, const struct dcpk_tensor *tensor)
{
    const char *rest = tensor->key;
    const int64_t *extent;

    if (!dcpk_starts_with(rest, LAYERS) || tensor->rank < 2 || tensor->n_chunks < 2)
        return false;
    extent = ckpt->chunks[tensor->first_chunk].span + tensor->rank;
    rest += strlen(LAYERS);
    if (dcpk_take_number(&rest) < 0)
        return tensor->shape[0] > 1 && extent[0] == 1;
    return dcpk_ends_with(rest, ".linear_fc1.weight") &&
           extent[tensor->rank - 2] * 2 == tensor->shape[tensor->rank - 2];
}

/* Two sizes that contradict each other show nothing. */
static void size_agree(int64_t *size, bool *is_clear, int64_t n)
{
    *is_clear = *is_clear && (*size == 0 || *size == n);
    *size = n;
}

static void read_columns(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    bool is_clear = true, is_clear_of_experts = true, is_cut = false;

    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];
        int64_t n = 0;

        if (tensor->rank < 2 || is_state(tensor->key))
            continue;
        is_cut = is_cut || is_cut_by_ranks(ckpt, tensor);
        if (is_row_parallel(tensor->key))
            n = count_columns(ckpt, tensor);
        if (n == 0)
            continue;
        if (strstr(tensor->key, ".experts.") != NULL)
            size_agree(&saved->etp, &is_clear_of_experts, n);
        else
            size_agree(&saved->tp, &is_clear, n);
    }
    is_cut = is_cut || saved->tp > 1 || saved->etp > 1;
    if (!is_clear || !is_cut)
        saved->tp = 0;
    if (!is_clear_of_experts || !is_cut)
        saved->etp = 0;
}

/* "rng_state/shard_<p>.<t>_<P>.<T>", since 0.16 with further sizes behind T. */
static void read_rng(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    static const char start[] = "rng_state/shard_";

    for (size_t i = 0; i < ckpt->n_objects; i++) {
        const char *key = ckpt->objects[i].key;
        const char *sizes = strrchr(key, '_');
        int64_t pp;

        if (!dcpk_starts_with(key, start) || sizes < key + strlen(start))
            continue;
        sizes++;
        pp = dcpk_take_number(&sizes);
        if (pp > 0 && *sizes == '.')
            saved->pp = pp;
        return;
    }
}

/* Files "__<rank>_<n>.distcp" of ranks 0 to n_ranks - 1: each rank that has a file is in there. */
static void count_file_ranks(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    for (size_t i = 0; i < ckpt->n_files; i++) {
        const char *name = dcpk_source_name(ckpt->files[i]);
        int64_t rank;

        if (strncmp(name, "__", 2) == 0)
            name += 2;
        rank = dcpk_take_number(&name);
        if (*name == '_' && rank >= saved->n_ranks)
            saved->n_ranks = rank + 1;
    }
    if (saved->n_ranks == 1)
        saved->n_ranks = 0;
}

void dcpk_saved_layout_read(const struct dcpk_checkpoint *ckpt, struct dcpk_saved_layout *saved)
{
    *saved = (struct dcpk_saved_layout){0};
    read_columns(ckpt, saved);
    read_rng(ckpt, saved);
    count_file_ranks(ckpt, saved);
}
