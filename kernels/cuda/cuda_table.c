/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_table.c - tiles sorted into launches: one for each kernel that they need. */
#include <assert.h>
#include <stdbool.h>

#include "kernels/cuda/cuda_math_host.h"
#include "kernels/cuda/cuda_priv.h"
#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/tensor/dtype.h"

#define N_CLASSES (CUDA_N_KINDS * CUDA_N_SIZES)

/* A kernel counts the bytes of a tile in 32 bits. */
#define MAX_BYTES (UINT64_C(1) << 30)

struct cuda_table {
    struct dcpk_table base;
    CUdeviceptr memory;     /* all tiles, then all words */
    struct cuda_tiles list; /* of them all */
    size_t n_of[N_CLASSES]; /* of each class, in this order */
    enum dcpk_pace pace;
};

/* The casts with a kernel of their own. */
static const struct {
    enum dcpk_dtype from, to;
    enum cuda_kind kind;
} pairs[] = {
    {DCPK_F32, DCPK_BF16, CUDA_CAST_F32_BF16},
    {DCPK_F32, DCPK_F16, CUDA_CAST_F32_F16},
    {DCPK_BF16, DCPK_F32, CUDA_CAST_BF16_F32},
    {DCPK_F16, DCPK_F32, CUDA_CAST_F16_F32},
    {DCPK_F32, DCPK_F8_E4M3FN, CUDA_CAST_F32_E4M3},
    {DCPK_BF16, DCPK_F8_E4M3FN, CUDA_CAST_BF16_E4M3},
    {DCPK_F32, DCPK_F8_E5M2, CUDA_CAST_F32_E5M2},
    {DCPK_BF16, DCPK_F8_E5M2, CUDA_CAST_BF16_E5M2},
};

static enum cuda_kind cast_kind(enum dcpk_dtype from, enum dcpk_dtype to)
{
    for (size_t i = 0; i < DCPK_COUNT(pairs); i++)
        if (pairs[i].from == from && pairs[i].to == to)
            return pairs[i].kind;
    return CUDA_CAST_ANY;
}

static enum cuda_kind tile_kind(const struct dcpk_tile *tile)
{
    const uint64_t row_bytes = tile->n_elems * dcpk_dtype_bytes((enum dcpk_dtype)tile->to);
    const int64_t strides = tile->n_rows > 1 ? tile->src_stride_bytes | tile->dst_stride_bytes : 0;

    if (tile->from != tile->to)
        return cast_kind((enum dcpk_dtype)tile->from, (enum dcpk_dtype)tile->to);
    if (tile->dst == 0)
        return CUDA_READ;
    if ((tile->src | tile->dst | (uint64_t)strides | row_bytes) % DCPK_TILE_ALIGN == 0)
        return CUDA_MOVE_WHOLE;
    return CUDA_MOVE_ODD;
}

/* Reading has one kernel for all sizes. */
static size_t tile_class(const struct dcpk_tile *tile)
{
    const uint64_t bytes =
        (uint64_t)tile->n_elems * tile->n_rows * dcpk_dtype_bytes((enum dcpk_dtype)tile->to);
    const enum cuda_kind kind = tile_kind(tile);
    const enum cuda_size size =
        bytes < DCPK_TILE_SMALL_BYTES && kind != CUDA_READ ? CUDA_WARP : CUDA_BLOCK;

    return (size_t)kind * CUDA_N_SIZES + size;
}

/* Tile and words together, as they are sorted. */
struct worded {
    struct dcpk_tile tile;
    struct dcpk_tile_words words;
};

/* How a tile is cut into parts that the kernels can count in: rows of them, each part some rows and
 * some elements. Nearly every tile is one part. */
struct cut {
    uint32_t rows, elems; /* of a part */
    uint64_t parts_a_row, n_parts;
};

static struct cut cut_of(const struct dcpk_tile *tile)
{
    const uint64_t from_bytes = dcpk_dtype_bytes((enum dcpk_dtype)tile->from);
    const uint64_t to_bytes = dcpk_dtype_bytes((enum dcpk_dtype)tile->to);
    const uint64_t most = MAX_BYTES / dcpk_max_u64(from_bytes, to_bytes);
    struct cut cut;

    cut.elems = (uint32_t)dcpk_min_u64(tile->n_elems, most);
    cut.rows = (uint32_t)dcpk_min_u64(tile->n_rows, dcpk_max_u64(most / tile->n_elems, 1));
    cut.parts_a_row = (tile->n_elems - 1) / cut.elems + 1;
    cut.n_parts = ((tile->n_rows - 1) / cut.rows + 1) * cut.parts_a_row;
    return cut;
}

static struct worded cut_part(const struct worded *whole, const struct cut *cut, uint64_t i)
{
    const uint32_t row = (uint32_t)(i / cut->parts_a_row) * cut->rows;
    const uint32_t elem = (uint32_t)(i % cut->parts_a_row) * cut->elems;
    const uint64_t to_bytes = dcpk_dtype_bytes((enum dcpk_dtype)whole->tile.to);
    struct worded part = *whole;
    struct dcpk_tile *t = &part.tile;

    t->n_rows = (uint32_t)dcpk_min_u64(cut->rows, t->n_rows - row);
    t->n_elems = (uint32_t)dcpk_min_u64(cut->elems, t->n_elems - elem);
    t->src += row * (uint64_t)t->src_stride_bytes +
              elem * (uint64_t)dcpk_dtype_bytes((enum dcpk_dtype)t->from);
    if (t->dst != 0)
        t->dst += row * (uint64_t)t->dst_stride_bytes + elem * to_bytes;
    part.words.first += row * part.words.row_step + elem * dcpk_max_u64(to_bytes / 4, 1);
    return part;
}

static struct worded worded_at(const struct dcpk_tiles *tiles, size_t i)
{
    struct worded w = {.tile = tiles->tiles[i]};

    if (tiles->words != NULL)
        w.words = tiles->words[i];
    return w;
}

/* n_of, and the number of all parts. */
static size_t count_parts(const struct dcpk_tiles *tiles, size_t n_of[N_CLASSES])
{
    size_t n = 0;

    for (size_t i = 0; i < tiles->n; i++) {
        const struct worded whole = worded_at(tiles, i);
        const struct cut cut = cut_of(&whole.tile);

        for (uint64_t k = 0; k < cut.n_parts; k++) {
            const struct worded part = cut_part(&whole, &cut, k);

            n_of[tile_class(&part.tile)]++;
        }
        n += cut.n_parts;
    }
    return n;
}

/* All parts by class, those of a class in the planner's order: peers in turn. */
static void sort_parts(const struct dcpk_tiles *tiles, const size_t n_of[N_CLASSES],
                       struct dcpk_tile *sorted, struct dcpk_tile_words *sorted_words)
{
    size_t at[N_CLASSES] = {0};

    for (size_t c = 1; c < N_CLASSES; c++)
        at[c] = at[c - 1] + n_of[c - 1];
    for (size_t i = 0; i < tiles->n; i++) {
        const struct worded whole = worded_at(tiles, i);
        const struct cut cut = cut_of(&whole.tile);

        for (uint64_t k = 0; k < cut.n_parts; k++) {
            const struct worded part = cut_part(&whole, &cut, k);
            const size_t place = at[tile_class(&part.tile)]++;

            sorted[place] = part.tile;
            if (sorted_words != NULL)
                sorted_words[place] = part.words;
        }
    }
}

/*
 * Send what the kernels read, and wait until it is there: a copy from pageable memory returns when
 * the memory may be used again, which is before it has arrived, and no queue waits for another.
 */
static dcpk_status table_send(const struct cuda_device *s, CUdeviceptr to, const void *from,
                              size_t n_bytes, struct dcpk_error *err)
{
    const CUstream stream = s->queues[0].stream;
    const CUdeviceptr host = (CUdeviceptr)(uintptr_t)from;

    if (dcpk_cuda_check(&s->driver, s->driver.copy(to, host, n_bytes, stream), "sending tiles",
                        err) ||
        dcpk_cuda_check(&s->driver, s->driver.stream_wait(stream), "sending tiles", err))
        return err->status;
    return DCPK_OK;
}

/* The arguments of kernels for all n tiles of a table, which lie in its memory. */
static struct cuda_tiles list_of(const struct cuda_table *table, size_t n)
{
    const uintptr_t tiles = (uintptr_t)table->memory;
    struct cuda_tiles list = {.tiles = (const struct dcpk_tile *)tiles};

    static_assert(DCPK_N_DTYPES <= sizeof list.elem_bytes, "all dtypes fit");
    list.words = (const struct dcpk_tile_words *)(tiles + n * sizeof *list.tiles);
    for (int i = 0; i < DCPK_N_DTYPES; i++)
        list.elem_bytes[i] = (uint8_t)dcpk_dtype_bytes((enum dcpk_dtype)i);
    return list;
}

/* Sort the tiles on the host, then send them in one piece. In the thread's context. */
static dcpk_status table_fill(struct cuda_table *table, const struct dcpk_tiles *tiles,
                              const struct cuda_device *s, struct dcpk_error *err)
{
    const size_t n = count_parts(tiles, table->n_of);
    const size_t tiles_bytes = n * sizeof *tiles->tiles;
    const size_t words_bytes = tiles->words != NULL ? n * sizeof *tiles->words : 0;
    struct dcpk_tile_words *words = NULL;
    char *host;

    static_assert(sizeof *tiles->tiles % _Alignof(struct dcpk_tile_words) == 0, "words follow");
    if (n == 0)
        return DCPK_OK;
    host = dcpk_alloc(tiles_bytes + words_bytes, err);
    if (host == NULL)
        return err->status;
    if (tiles->words != NULL)
        words = (struct dcpk_tile_words *)(void *)(host + tiles_bytes);
    sort_parts(tiles, table->n_of, (struct dcpk_tile *)(void *)host, words);
    if (dcpk_cuda_check(&s->driver,
                        s->driver.memory_alloc(&table->memory, tiles_bytes + words_bytes),
                        "taking memory for tiles", err) == DCPK_OK)
        table_send(s, table->memory, host, tiles_bytes + words_bytes, err);
    table->list = list_of(table, n);
    dcpk_free(host);
    return err->status;
}

dcpk_status cuda_table_load(struct dcpk_device *device, const struct dcpk_tiles *tiles,
                            struct dcpk_table **table, struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    struct cuda_table *made;
    dcpk_status st;

    if (dcpk_tiles_check(tiles, err))
        return err->status;
    made = dcpk_alloc(sizeof *made, err);
    if (made == NULL)
        return err->status;
    made->base = (struct dcpk_table){tiles->n, tiles->words != NULL};
    made->pace = tiles->pace;
    dcpk_cuda_enter(&s->driver, s->context);
    st = table_fill(made, tiles, s, err);
    dcpk_cuda_leave(&s->driver);
    if (st != DCPK_OK)
        cuda_table_unload(device, &made->base);
    else
        *table = &made->base;
    return st;
}

void cuda_table_unload(struct dcpk_device *device, struct dcpk_table *table)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    struct cuda_table *t = (struct cuda_table *)table;

    if (t == NULL)
        return;
    dcpk_cuda_enter(&s->driver, s->context);
    if (t->memory != 0)
        s->driver.memory_free(t->memory);
    dcpk_cuda_leave(&s->driver);
    dcpk_free(t);
}

/* Blocks of a launch: a tile a block or a warp, fewer where the blocks are to go round. */
static unsigned class_blocks(const struct cuda_device *s, const struct cuda_table *t, size_t class)
{
    const size_t tiles_a_block = class % CUDA_N_SIZES == CUDA_BLOCK ? 1 : CUDA_THREADS / 32;
    const size_t wanted = (t->n_of[class] + tiles_a_block - 1) / tiles_a_block;
    return (unsigned)dcpk_min_size(wanted, s->max_blocks[t->pace]);
}

/* Queue the tiles of a class, which are there. */
static CUresult class_launch(const struct cuda_device *s, const struct cuda_table *t, size_t class,
                             struct cuda_tiles *list, CUstream stream)
{
    const CUfunction kernel =
        s->kernels.functions[class / CUDA_N_SIZES][class % CUDA_N_SIZES][list->sums != NULL];
    void *arguments[] = {list};

    list->n = (uint32_t)t->n_of[class];
    return s->driver.launch(kernel, class_blocks(s, t, class), 1, 1, CUDA_THREADS, 1, 1, 0, stream,
                            arguments, NULL);
}

dcpk_status cuda_table_run(struct dcpk_device *device, int queue, const struct dcpk_table *table,
                           uint64_t *sums, struct dcpk_error *err)
{
    const struct cuda_device *s = (const struct cuda_device *)device;
    const struct cuda_table *t = (const struct cuda_table *)table;
    struct cuda_tiles list = t->list; /* moved along the classes */
    CUresult code = CUDA_SUCCESS;

    assert(sums == NULL || t->base.has_words);
    list.sums = (unsigned long long *)sums;
    dcpk_cuda_enter(&s->driver, s->context);
    for (size_t c = 0; c < N_CLASSES && code == CUDA_SUCCESS; c++) {
        const bool is_idle = c / CUDA_N_SIZES == CUDA_READ && sums == NULL;

        if (t->n_of[c] > 0 && !is_idle)
            code = class_launch(s, t, c, &list, s->queues[queue].stream);
        list.tiles += t->n_of[c];
        list.words += t->n_of[c];
    }
    dcpk_cuda_leave(&s->driver);
    return dcpk_cuda_check(&s->driver, code, "starting a kernel", err);
}
