/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_text.c - what dcpkit inspect prints for people. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "lib/ckpt/format.h"
#include "lib/ckpt/generation.h"
#include "tools/cmd.h"
#include "tools/inspect.h"

#define LABEL_COLUMNS 13
#define MOST_NAMES    16 /* of values that print-tensor knows */

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
        dcpk_cli_printf(stdout, " %s %" PRId64, name, size);
}

static void print_args_layout(const struct dcpk_layout *l)
{
    dcpk_cli_printf(stdout, "parallel     by args   ");
    if (l->tp == 0 && l->pp == 0 && l->dp == 0 && l->world == 0)
        dcpk_cli_printf(stdout, " not known");
    put_size("tp", l->tp);
    put_size("pp", l->pp);
    put_size("ep", l->ep);
    put_size("cp", l->cp);
    put_size("dp", l->dp);
    put_size("world", l->world);
    dcpk_cli_printf(stdout, "\n");
}

static void print_saved_layout(const struct dcpk_saved_layout *l)
{
    static const char *const sharding[] = {
        [DCPK_SHARDING_UNKNOWN] = "",
        [DCPK_SHARDING_ROWS] = "; optim, optim_grads or optim_grads_params",
        [DCPK_SHARDING_NONE] = "; no_shard",
    };

    dcpk_cli_printf(stdout, "             by chunks ");
    if (l->tp == 0 && l->etp == 0 && l->ep == 0 && l->dp == 0)
        dcpk_cli_printf(stdout, " not known");
    put_size("tp", l->tp);
    put_size("etp", l->etp);
    put_size("ep", l->ep);
    put_size("dp", l->dp);
    if (l->hsdp > 1)
        put_size("hsdp", l->hsdp);
    dcpk_cli_put_text(stdout, sharding[l->sharding]);
    if (l->pp > 0)
        dcpk_cli_printf(stdout, "; pp %" PRId64 " by RNG states", l->pp);
    if (l->n_ranks > 0)
        dcpk_cli_printf(stdout, "; %" PRId64 " ranks by files", l->n_ranks);
    dcpk_cli_printf(stdout, "\n");
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

/* A line of the head, broken where it is too long. */
static void print_line(const char *label, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void print_line(const char *label, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dcpk_cli_printf(stdout, "%-*s", LABEL_COLUMNS, label);
    if (n > 0)
        dcpk_cli_put_wrapped(stdout, text, strlen(text), LABEL_COLUMNS, LABEL_COLUMNS);
    dcpk_cli_printf(stdout, "\n");
}

/* One fact behind the others; false when it is not known. */
static bool put_fact(const struct dcpk_model_fact *fact, const struct dcpk_value *args,
                     struct dcpk_bytes *line)
{
    const char *hole = strstr(fact->text, "%s");
    char text[64], ignored[64];

    if (!fact_text(dcpk_value_get(args, fact->name), text, sizeof text) ||
        (fact->only_if != NULL &&
         !fact_text(dcpk_value_get(args, fact->only_if), ignored, sizeof ignored)))
        return false;
    dcpk_bytes_text(line, line->n_bytes == 0 ? "" : ", ");
    dcpk_bytes_put(line, fact->text,
                   hole == NULL ? strlen(fact->text) : (size_t)(hole - fact->text));
    if (hole != NULL) {
        dcpk_bytes_text(line, text);
        dcpk_bytes_text(line, hole + 2);
    }
    return true;
}

static dcpk_status print_model(const struct dcpk_value *args, struct dcpk_error *err)
{
    struct dcpk_bytes line = {0};
    dcpk_status st;

    for (size_t i = 0; i < dcpk_n_model_facts; i++)
        put_fact(&dcpk_model_facts[i], args, &line);
    dcpk_bytes_u8(&line, 0);
    st = dcpk_bytes_status(&line, err);
    if (st == DCPK_OK && args != NULL)
        print_line("model", "%s", (const char *)line.data);
    dcpk_bytes_release(&line);
    return st;
}

/* What print-tensor knows by one name in every format. */
static dcpk_status print_names(const char *const *names, struct dcpk_error *err)
{
    struct dcpk_bytes line = {0};
    dcpk_status st;

    if (*names == NULL)
        return DCPK_OK;
    for (size_t n = 0; *names != NULL && n < MOST_NAMES; names++, n++)
        dcpk_bytes_printf(&line, "%s%s", n == 0 ? "" : ", ", *names);
    dcpk_bytes_put(&line, *names == NULL ? "" : ", ...", *names == NULL ? 1 : sizeof ", ...");
    st = dcpk_bytes_status(&line, err);
    if (st == DCPK_OK)
        print_line("state", "%s", (const char *)line.data);
    dcpk_bytes_release(&line);
    return st;
}

/* "70.6 B" beside the number itself. */
static const char *count_text(uint64_t n, char text[64])
{
    static const char unit[] = " KMBT";
    double v = (double)n;
    size_t u = 0;

    for (; v >= 999.95 && u + 2 < sizeof unit; u++)
        v /= 1000;
    if (u == 0)
        snprintf(text, 64, "%" PRIu64, n);
    else
        snprintf(text, 64, "%.3g %c (%" PRIu64 ")", v, unit[u], n);
    return text;
}

/* What the tensors are, aliases once. */
static void print_contents(const struct dcpk_totals *t)
{
    char count[64], size[DCPK_SIZE_TEXT_BYTES];

    print_line("parameters", "%s", count_text(t->n_params, count));
    print_line("tensors",
               "%" PRIu64 " (%" PRIu64 " of them aliases) in %" PRIu64 " chunks; %" PRIu64
               " elements, %s",
               t->n_tensors, t->n_alias_tensors, t->n_chunks, t->n_elems,
               dcpk_cli_size(t->tensor_bytes, size));
    for (int i = 0; i < DCPK_N_CONTENTS; i++) {
        const struct dcpk_content_totals *c = &t->by_content[i];

        if (c->n_tensors > 0)
            dcpk_cli_printf(stdout, "%*s%-8s %7" PRIu64 " tensors, %12" PRIu64 " elements, %s\n",
                            LABEL_COLUMNS, "", dcpk_content_name((enum dcpk_content)i),
                            c->n_tensors, c->n_elems, dcpk_cli_short_size(c->tensor_bytes, size));
    }
    print_line("objects", "%" PRIu64 " (%" PRIu64 " of them aliases); %s", t->n_objects,
               t->n_alias_objects, dcpk_cli_size(t->object_bytes, size));
    print_line("stored", "%" PRIu64 " files, %s", t->n_files, dcpk_cli_size(t->file_bytes, size));
}

static dcpk_status print_head(const struct dcpk_inspection *in, struct dcpk_error *err)
{
    char generation[DCPK_GENERATION_TEXT_BYTES];
    dcpk_status st;

    dcpk_cli_printf(stdout, "checkpoint   ");
    dcpk_cli_put_text(stdout, in->run->folder);
    dcpk_cli_printf(stdout, "\n");
    dcpk_generation_text(in->ckpt, generation);
    print_line("format", "%s%s%s", in->ckpt->format->name, *generation == '\0' ? "" : ", ",
               generation);
    if (in->iteration >= 0)
        print_line("iteration", "%" PRId64, in->iteration);
    else
        print_line("iteration", "%s",
                   in->iteration == DCPK_ITERATION_RELEASE ? "release" : "not known");
    print_args_layout(&in->state->layout);
    print_saved_layout(in->saved);
    print_line("optimizer", "%s", in->state->optimizer_layout);
    st = print_model(in->state->args, err);
    if (st == DCPK_OK)
        st = print_names(in->state->names, err);
    if (st == DCPK_OK)
        print_contents(&in->summary->totals);
    if (in->keys != NULL)
        print_line("keys", "listed are those that match '%s'", in->keys);
    return st;
}

/* key, offsets, extents, file, first byte, length; tabs between them. */
static void print_chunks(const struct dcpk_inspection *in)
{
    const struct dcpk_checkpoint *ckpt = in->ckpt;

    dcpk_cli_printf(stdout,
                    "\nchunks (key, offsets, extents, file, offset in bytes, length in bytes):\n");
    for (size_t t = 0; t < ckpt->n_tensors; t++) {
        const struct dcpk_tensor *tensor = &ckpt->tensors[t];
        const bool is_listed = in->chosen == NULL || in->chosen->tensors[t];

        for (size_t i = 0; i < tensor->n_chunks && is_listed; i++) {
            const struct dcpk_chunk *c = &ckpt->chunks[tensor->first_chunk + i];
            char at[256], extent[256];

            dcpk_cli_put_text(stdout, tensor->key);
            dcpk_cli_printf(
                stdout, "\t%s\t%s\t", dcpk_shape_format(c->span, tensor->rank, at, sizeof at),
                dcpk_shape_format(c->span + tensor->rank, tensor->rank, extent, sizeof extent));
            dcpk_cli_put_text(stdout, dcpk_source_name(ckpt->files[c->place.file]));
            dcpk_cli_printf(stdout, "\t%" PRIu64 "\t%" PRIu64 "\n", c->place.offset_bytes,
                            c->place.n_bytes);
        }
    }
}

dcpk_status dcpk_inspect_print(const struct dcpk_inspection *in, struct dcpk_error *err)
{
    dcpk_status st = print_head(in, err);

    if (st != DCPK_OK)
        return st;
    dcpk_inspect_print_rows("tensors", in->summary->tensors, in->summary->n_tensors);
    dcpk_inspect_print_rows("objects", in->summary->objects, in->summary->n_objects);
    if (in->has_chunks)
        print_chunks(in);
    if (in->stats != NULL)
        st = dcpk_inspect_print_stats(in, err);
    return st == DCPK_OK ? dcpk_cli_flush(err) : st;
}
