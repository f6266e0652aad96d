/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_text.c - what dcpkit inspect prints for people. */
#include <inttypes.h>
#include <string.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/generation.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

#define KEY_COLUMN   100 /* the longest key that moves the columns behind it */
#define SHAPE_COLUMN 18
#define NAME_COLUMN  13
#define LINE_COLUMNS 100
#define MOST_NAMES   16

const struct dcpk_model_fact dcpk_model_facts[] = {
    {"num_layers", "%s layers", NULL},
    {"mtp_num_layers", "%s MTP layers", NULL},
    {"hidden_size", "hidden %s", NULL},
    {"ffn_hidden_size", "ffn %s", NULL},
    {"num_attention_heads", "%s heads", NULL},
    {"num_query_groups", "%s query groups", NULL},
    {"num_experts", "%s experts", NULL},
    {"moe_router_topk", "top %s", "num_experts"},
    {"moe_ffn_hidden_size", "expert ffn %s", "num_experts"},
    {"padded_vocab_size", "vocabulary %s", NULL},
    {"seq_length", "sequence %s", NULL},
    {"normalization", "%s", NULL},
    {"position_embedding_type", "%s", NULL},
    {"swiglu", "SwiGLU", NULL},
    {"params_dtype", "%s", NULL},
};
const size_t dcpk_n_model_facts = sizeof dcpk_model_facts / sizeof *dcpk_model_facts;

static void put_size(const char *name, int64_t size)
{
    if (size > 0)
        printf(" %s %" PRId64, name, size);
}

static void print_args_layout(const struct dcpk_layout *l)
{
    printf("parallel     by args   ");
    if (l->tp == 0 && l->pp == 0 && l->dp == 0 && l->world == 0)
        printf(" not known");
    put_size("tp", l->tp);
    put_size("pp", l->pp);
    put_size("ep", l->ep);
    put_size("cp", l->cp);
    put_size("dp", l->dp);
    put_size("world", l->world);
    putchar('\n');
}

static void print_saved_layout(const struct dcpk_saved_layout *l)
{
    static const char *const sharding[] = {
        [DCPK_SHARDING_UNKNOWN] = "",
        [DCPK_SHARDING_ROWS] = "; optim, optim_grads or optim_grads_params",
        [DCPK_SHARDING_NONE] = "; no_shard",
    };

    printf("             by chunks ");
    if (l->tp == 0 && l->etp == 0 && l->ep == 0 && l->dp == 0)
        printf(" not known");
    put_size("tp", l->tp);
    put_size("etp", l->etp);
    put_size("ep", l->ep);
    put_size("dp", l->dp);
    if (l->hsdp > 1)
        put_size("hsdp", l->hsdp);
    fputs(sharding[l->sharding], stdout);
    if (l->pp > 0)
        printf("; pp %" PRId64 " by RNG states", l->pp);
    if (l->n_ranks > 0)
        printf("; %" PRId64 " ranks by files", l->n_ranks);
    putchar('\n');
}

/* The value of a fact as text; false when it is not set. */
static bool fact_text(const struct dcpk_value *v, char *text, size_t n)
{
    bool is_set = false;
    int64_t i;

    if (v == NULL)
        return false;
    if (v->kind == DCPK_V_BOOL) {
        text[0] = '\0';
        return dcpk_value_as_bool(v, &is_set) && is_set;
    }
    if (dcpk_value_as_int(v, &i))
        return snprintf(text, n, "%" PRId64, i) > 0;
    if (dcpk_value_as_str(v) != NULL)
        return snprintf(text, n, "%s", dcpk_value_as_str(v)) > 0;
    if (v->kind == DCPK_V_GLOBAL)
        return snprintf(text, n, "%s", v->as.global.name) > 0;
    return false;
}

static void print_model(const struct dcpk_value *args)
{
    const char *separator = " ";

    if (args == NULL)
        return;
    printf("model       ");
    for (size_t i = 0; i < dcpk_n_model_facts; i++) {
        const struct dcpk_model_fact *fact = &dcpk_model_facts[i];
        const char *hole = strstr(fact->text, "%s");
        char text[64], ignored[64];

        if (!fact_text(dcpk_value_get(args, fact->name), text, sizeof text))
            continue;
        if (fact->only_if != NULL &&
            !fact_text(dcpk_value_get(args, fact->only_if), ignored, sizeof ignored))
            continue;
        printf("%s%.*s", separator, hole == NULL ? 1000 : (int)(hole - fact->text), fact->text);
        if (hole != NULL) {
            dcpk_cli_put_text(stdout, text);
            fputs(hole + 2, stdout);
        }
        separator = ", ";
    }
    putchar('\n');
}

/* What print-tensor knows by one name in every format, in lines of 100 columns. */
static void print_names(const char *const *names)
{
    size_t column = NAME_COLUMN, n = 0;

    if (*names == NULL)
        return;
    printf("state       ");
    for (; *names != NULL && n < MOST_NAMES; names++, n++) {
        const size_t width = strlen(*names) + 2;

        if (n > 0 && column + width > LINE_COLUMNS) {
            printf(",\n%*s", NAME_COLUMN - 1, "");
            column = NAME_COLUMN;
        } else if (n > 0) {
            putchar(',');
        }
        putchar(' ');
        dcpk_cli_put_text(stdout, *names);
        column += width;
    }
    puts(*names == NULL ? "" : ", ...");
}

static void print_head(const struct dcpk_inspection *in)
{
    const struct dcpk_totals *t = &in->summary->totals;
    char size[DCPK_SIZE_TEXT_BYTES], generation[DCPK_GENERATION_TEXT_BYTES];

    printf("checkpoint   ");
    dcpk_cli_put_text(stdout, in->run->folder);
    dcpk_generation_text(in->ckpt, generation);
    printf("\nformat       %s%s%s\n", in->ckpt->format->name, *generation == '\0' ? "" : ", ",
           generation);
    if (in->iteration >= 0)
        printf("iteration    %" PRId64 "\n", in->iteration);
    else
        printf("iteration    %s\n",
               in->iteration == DCPK_ITERATION_RELEASE ? "release" : "not known");
    print_args_layout(&in->state->layout);
    print_saved_layout(in->saved);
    printf("optimizer    %s\n", in->state->optimizer_layout);
    print_model(in->state->args);
    printf("tensors      %" PRIu64 " (%" PRIu64 " of them aliases) in %" PRIu64 " chunks; %" PRIu64
           " elements, %s\n",
           t->n_tensors, t->n_alias_tensors, t->n_chunks, t->n_elems,
           dcpk_cli_size(t->tensor_bytes, size));
    printf("objects      %" PRIu64 " (%" PRIu64 " of them aliases); %s\n", t->n_objects,
           t->n_alias_objects, dcpk_cli_size(t->object_bytes, size));
    printf("stored       %" PRIu64 " files, %s\n", t->n_files, dcpk_cli_size(t->file_bytes, size));
    print_names(in->state->names);
}

static int key_column(const struct dcpk_summary_row *rows, size_t n)
{
    size_t widest = 0;

    for (size_t i = 0; i < n; i++) {
        const size_t width = strlen(rows[i].pattern);

        if (width > widest && width <= KEY_COLUMN)
            widest = width;
    }
    return (int)widest;
}

static void print_row(const struct dcpk_summary_row *row, int column)
{
    char shape[256], size[DCPK_SIZE_TEXT_BYTES];
    const int width = (int)strlen(row->pattern);

    printf("  ");
    dcpk_cli_put_text(stdout, row->pattern);
    printf("%*s", width < column ? column - width : 0, "");
    if (row->dtype != DCPK_DTYPE_NONE)
        printf("  %-8s %-*s", dcpk_dtype_name(row->dtype), SHAPE_COLUMN,
               dcpk_shape_format(row->shape, row->rank, shape, sizeof shape));
    printf("  x%-5" PRIu64 " %s%s\n", row->n_keys, dcpk_cli_short_size(row->n_bytes, size),
           row->is_alias ? "  alias" : "");
}

static void print_rows(const char *title, const struct dcpk_summary_row *rows, size_t n)
{
    const int column = key_column(rows, n);

    if (n > 0)
        printf("\n%s:\n", title);
    for (size_t i = 0; i < n; i++)
        print_row(&rows[i], column);
}

/* key, offsets, extents, file, first byte, length; tabs between them. */
static void print_chunks(const struct dcpk_checkpoint *ckpt)
{
    printf("\nchunks (key, offsets, extents, file, offset in bytes, length in bytes):\n");
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];

        for (size_t i = 0; i < tensor->n_chunks; i++) {
            const struct dcpk_chunk *c = &ckpt->chunks[tensor->first_chunk + i];
            char at[256], extent[256];

            dcpk_cli_put_text(stdout, tensor->key);
            printf("\t%s\t%s\t", dcpk_shape_format(c->span, tensor->rank, at, sizeof at),
                   dcpk_shape_format(c->span + tensor->rank, tensor->rank, extent, sizeof extent));
            dcpk_cli_put_text(stdout, dcpk_source_name(ckpt->files[c->place.file]));
            printf("\t%" PRIu64 "\t%" PRIu64 "\n", c->place.offset_bytes, c->place.n_bytes);
        }
    }
}

static void put_number(const char *before, double v)
{
    char text[32];

    dcpk_format_double(v, text);
    printf("%s%s", before, text);
}

/* key, min, max, mean, norm, NaN, Inf, zeros, elements; tabs between them. */
static void print_stats(const struct dcpk_inspection *in)
{
    printf("\nstatistics of the finite elements (key, min, max, mean, L2 norm; number of NaN, Inf, "
           "zeros, elements):\n");
    for (size_t t = 0; t < in->ckpt->n_tensors; t++) {
        const struct dcpk_stats *s = &in->stats[t];

        dcpk_cli_put_text(stdout, in->ckpt->tensors[t].key);
        if (s->n_finite > 0) {
            put_number("\t", s->min);
            put_number("\t", s->max);
            put_number("\t", dcpk_stats_mean(s));
            put_number("\t", dcpk_stats_norm(s));
        } else {
            fputs("\t-\t-\t-\t-", stdout);
        }
        printf("\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", s->n_nan, s->n_inf,
               s->n_zero, s->n_elems);
    }
}

dcpk_status dcpk_inspect_print(const struct dcpk_inspection *in, struct dcpk_error *err)
{
    print_head(in);
    print_rows("tensors", in->summary->tensors, in->summary->n_tensors);
    print_rows("objects", in->summary->objects, in->summary->n_objects);
    if (in->has_chunks)
        print_chunks(in->ckpt);
    if (in->stats != NULL)
        print_stats(in);
    return dcpk_cli_flush(err);
}
