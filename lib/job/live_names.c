/* SPDX-License-Identifier: Apache-2.0 */
/* live_names.c - the schemes of names in memory, and the layout of a run in a text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/alloc.h"
#include "lib/base/order.h"
#include "lib/base/text.h"
#include "lib/job/live_priv.h"

/* Names of transformers' classes: those of its state dicts, without the prefix of a folder. */
static dcpk_status live_transformers(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                                     const struct dcpk_live *live, struct dcpk_error *err)
{
    static const char prefix[] = "model.";
    const struct dcpk_remap_view *list;
    size_t n;

    if (dcpk_feed_views_new(ckpt, live->options->dcp_hf, live->family, DCPK_FEED_WEIGHTS,
                            &views->inner, err))
        return err->status;
    list = dcpk_feed_views(views->inner, &n);
    views->is_of_rank = false;
    views->of = views->inner->of;
    for (size_t i = 0; i < n; i++) {
        struct dcpk_remap_view view = list[i];

        if (dcpk_starts_with(view.name, prefix))
            view.name += strlen(prefix);
        if (dcpk_feed_views_add(views, &view, err))
            return err->status;
    }
    return DCPK_OK;
}

static const struct scheme {
    const char *name;
    dcpk_status (*list)(struct dcpk_feed_views *views, struct dcpk_checkpoint *ckpt,
                        const struct dcpk_live *live, struct dcpk_error *err);
    enum dcpk_server server; /* spreads experts over ranks that would cut them else; 0: none */
} schemes[] = {
    {"megatron", dcpk_live_megatron, 0},
    {"vllm", dcpk_live_serving, DCPK_SERVER_VLLM},
    {"sglang", dcpk_live_serving, DCPK_SERVER_SGLANG},
    {"transformers", live_transformers, 0},
};

static const struct scheme *find_scheme(const char *text)
{
    const size_t n = strcspn(text, ":");

    for (size_t i = 0; i < DCPK_COUNT(schemes); i++)
        if (strlen(schemes[i].name) == n && strncmp(schemes[i].name, text, n) == 0)
            return &schemes[i];
    return NULL;
}

bool dcpk_live_is(const char *text)
{
    return find_scheme(text) != NULL;
}

#define MAX_WORD 64 /* bytes of a family's name */

/* Words of a layout that are not sizes of its grid. */
struct words {
    int64_t at, ranks;  /* of the world: the first one, and how many; 0: all from it on */
    int64_t etp;        /* 0: none; here because FSDP has it too */
    const char *layout; /* of a pipeline: the rest of the text */
    char family[MAX_WORD];
    char sizes[256]; /* the others */
};

static dcpk_status append_size(struct words *words, const char *text, size_t n,
                               struct dcpk_error *err)
{
    const size_t used = strlen(words->sizes), room = sizeof words->sizes - used;

    if (n + 2 > room)
        return dcpk_fail(err, DCPK_EUSAGE, "names: the layout has more than %zu bytes",
                         sizeof words->sizes);
    snprintf(words->sizes + used, room, "%s%.*s", dcpk_joint(used > 0, ","), (int)n, text);
    return DCPK_OK;
}

/* Takes one word "at=8", of n bytes. */
static dcpk_status take_word(struct words *words, const char *text, size_t n,
                             struct dcpk_error *err)
{
    const struct {
        const char *name;
        int64_t *number;
    } numbers[] = {{"at=", &words->at}, {"ranks=", &words->ranks}, {"etp=", &words->etp}};
    const char *value = text + strcspn(text, "=") + 1, *end = value;

    if (dcpk_starts_with(text, "family=") && n - strlen("family=") < MAX_WORD) {
        snprintf(words->family, MAX_WORD, "%.*s", (int)(text + n - value), value);
        return DCPK_OK;
    }
    for (size_t i = 0; i < DCPK_COUNT(numbers); i++) {
        if (!dcpk_starts_with(text, numbers[i].name))
            continue;
        if (!dcpk_take_size(&end, numbers[i].number) || end != text + n)
            return dcpk_fail(err, DCPK_EUSAGE, "names: '%.*s' has no number", (int)n, text);
        return DCPK_OK;
    }
    return append_size(words, text, n, err);
}

static dcpk_status live_parse(const struct dcpk_live_options *options, struct words *words,
                              struct dcpk_live *live, struct dcpk_error *err)
{
    static const char layout[] = "layout=";
    const char *text = options->text + strcspn(options->text, ":");
    const struct scheme *scheme = find_scheme(options->text);
    struct dcpk_grid counted;

    while (*text != '\0') { /* a colon, or a comma */
        const size_t n = strcspn(text + 1, ",");

        if (dcpk_starts_with(text + 1, layout)) {
            words->layout = text + 1 + strlen(layout);
            break;
        }
        if (take_word(words, text + 1, n, err))
            return err->status;
        text += 1 + n;
    }
    if (words->ranks == 0)
        words->ranks = options->n_ranks - words->at;
    if (words->ranks < 1 || words->at > options->n_ranks - words->ranks)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "names: '%.200s' is about ranks that a world of %" PRId64 " has not",
                         options->text, options->n_ranks);
    if (words->sizes[0] == '\0')
        append_size(words, "tp=1", 4, err);
    if (dcpk_placing_parse("names", words->sizes, (int)words->ranks, &live->placing, err))
        return dcpk_context(err, "'%.200s'", options->text);
    if ((words->etp > 0 || words->layout != NULL) && scheme->list != dcpk_live_megatron)
        return dcpk_fail(err, DCPK_EUSAGE, "'%.200s': only a run of Megatron has etp or a layout",
                         options->text);
    live->placing.grid.etp = words->etp;
    counted = live->placing.grid;
    if (scheme->server != 0)
        counted.etp = 1;
    if (dcpk_grid_check_ranks(&counted, words->ranks, err))
        return dcpk_context(err, "'%.200s'", options->text);
    live->options = options;
    live->server = scheme->server;
    live->layout = words->layout;
    live->family = words->family[0] == '\0' ? NULL : words->family;
    live->rank = options->rank - words->at;
    if (live->rank >= words->ranks || live->rank < 0)
        live->rank = -1;
    return DCPK_OK;
}

dcpk_status dcpk_live_views_new(struct dcpk_checkpoint *ckpt,
                                const struct dcpk_live_options *options,
                                struct dcpk_feed_views **views, struct dcpk_error *err)
{
    const struct scheme *scheme = find_scheme(options->text);
    struct dcpk_feed_views *made;
    struct words words = {0};
    struct dcpk_live live;
    dcpk_status st;

    if (live_parse(options, &words, &live, err) || dcpk_feed_views_begin(&made, err))
        return err->status;
    made->is_of_rank = true;
    st = dcpk_checkpoint_check_cover(ckpt, err);
    if (st == DCPK_OK)
        st = scheme->list(made, ckpt, &live, err);
    if (st == DCPK_OK)
        *views = made;
    else
        dcpk_feed_views_free(made);
    return st;
}

dcpk_status dcpk_live_take(struct dcpk_live_tensor *tensor, const struct dcpk_view *from,
                           const struct dcpk_box *region, const int64_t *at, int n_lead,
                           struct dcpk_error *err)
{
    for (size_t i = 0; i < from->n_pieces; i++) {
        struct dcpk_box source, inner, to = {.rank = region->rank + n_lead};
        struct dcpk_piece piece;

        if (!dcpk_piece_clip(&from->pieces[i], region, &source, &inner))
            continue;
        for (int a = 0; a < to.rank; a++) {
            to.offset[a] = at[a];
            to.extent[a] = 1;
            if (a < n_lead)
                continue;
            to.offset[a] += inner.offset[a - n_lead] - region->offset[a - n_lead];
            to.extent[a] = inner.extent[a - n_lead];
        }
        if (dcpk_piece_like(tensor->views->arena, &from->pieces[i], &source, &to, &piece, err) ||
            dcpk_grow(&tensor->pieces, &tensor->capacity, tensor->n, sizeof piece, err))
            return err->status;
        tensor->pieces[tensor->n++] = piece;
    }
    return DCPK_OK;
}

dcpk_status dcpk_live_zeros(struct dcpk_live_tensor *tensor, const struct dcpk_box *box,
                            struct dcpk_error *err)
{
    struct dcpk_piece piece;

    tensor->views->writes_zeros = true;
    if (dcpk_piece_make(tensor->views->arena, DCPK_PIECE_FILL, NULL, box, &piece, err) ||
        dcpk_grow(&tensor->pieces, &tensor->capacity, tensor->n, sizeof piece, err))
        return err->status;
    tensor->pieces[tensor->n++] = piece;
    return DCPK_OK;
}

dcpk_status dcpk_live_expect(struct dcpk_live_tensor *tensor, size_t n, struct dcpk_error *err)
{
    struct dcpk_feed_views *views = tensor->views;

    views->of = dcpk_arena_array(views->arena, n, sizeof *views->of, err);
    return err->status;
}

/* The shape that memory has, of a tensor with pairs. */
static dcpk_status put_written(struct dcpk_feed_views *views, const struct dcpk_box *shape,
                               struct dcpk_error *err)
{
    struct dcpk_out_tensor *of = dcpk_arena_array(views->arena, 1, sizeof *of, err);
    const int rank = shape->rank - 1;
    int64_t *written = dcpk_arena_array(views->arena, (size_t)rank, sizeof *written, err);

    if (of == NULL || written == NULL)
        return err->status;
    for (int a = 0; a < rank; a++)
        written[a] = shape->extent[a + (a > 1)];
    written[1] *= 2;
    *of = (struct dcpk_out_tensor){.written_shape = written, .written_rank = rank};
    views->of[views->n] = of;
    return DCPK_OK;
}

dcpk_status dcpk_live_put(struct dcpk_live_tensor *tensor, const char *name, enum dcpk_dtype dtype,
                          const struct dcpk_box *shape, struct dcpk_error *err)
{
    struct dcpk_feed_views *views = tensor->views;
    const struct dcpk_piece *pieces =
        dcpk_arena_copy(views->arena, tensor->pieces, tensor->n, sizeof *pieces, err);
    const int64_t *extent =
        dcpk_arena_copy(views->arena, shape->extent, (size_t)shape->rank, sizeof *extent, err);
    const struct dcpk_remap_view view = {.name = name,
                                         .view = {.dtype = dtype,
                                                  .rank = shape->rank,
                                                  .shape = extent,
                                                  .pieces = pieces,
                                                  .n_pieces = tensor->n}};

    if (pieces == NULL || extent == NULL || (tensor->has_pairs && put_written(views, shape, err)))
        return err->status;
    return dcpk_feed_views_add(views, &view, err);
}
