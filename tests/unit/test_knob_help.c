/* SPDX-License-Identifier: Apache-2.0 */
/* test_knob_help.c - every knob is explained, with the rules that name it. */
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/order.h"
#include "lib/knobs/knobs.h"
#include "lib/report/doc.h"
#include "tests/check.h"

static struct dcpk_error err;

static dcpk_status gather(void *to, const char *text, size_t n_bytes, struct dcpk_error *e)
{
    dcpk_bytes_put(to, text, n_bytes);
    (void)e;
    return DCPK_OK;
}

/* The document as text, one blank between words; released by the caller. name NULL: the list. */
static struct dcpk_bytes shown(const char *name)
{
    struct dcpk_bytes raw = {0}, text = {0};
    const struct dcpk_doc_out out = {.write = gather, .to = &raw};
    struct dcpk_doc doc = {0};

    dcpk_doc_init(&doc, "help", &(struct dcpk_doc_style){.label_columns = 14});
    if (name == NULL)
        CHECK_OK(dcpk_knob_list(&doc, &err), "list");
    else
        CHECK_OK(dcpk_knob_explain(name, &doc, &err), name);
    CHECK_OK(dcpk_doc_text(&doc, &out, &err), "text");
    for (size_t i = 0; i < raw.n_bytes; i++) {
        const bool is_blank = raw.data[i] == ' ' || raw.data[i] == '\n';

        if (!is_blank)
            dcpk_bytes_u8(&text, raw.data[i]);
        else if (text.n_bytes > 0 && text.data[text.n_bytes - 1] != ' ')
            dcpk_bytes_u8(&text, ' ');
    }
    dcpk_bytes_u8(&text, 0);
    dcpk_bytes_release(&raw);
    dcpk_doc_release(&doc);
    return text;
}

static const struct {
    const char *name, *text;
} explained[] = {
    {"--use-tp-pp-dp-mapping", "use_tp_pp_dp_mapping is not supported with Megatron FSDP"},
    {"use_nccl_ub", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is currently not supported"},
    {"use_nccl_ub", "other names use_nccl_ub"},
    {"use_nccl_ub", "registered with it, as symmetric windows where it has them, else locally"},
    {"disable_symmetric_registration", "has no effect without nccl_ub"},
    {"use_torch_fsdp2", "--use-torch-fsdp2 is not supported with pipeline parallelism"},
    {"ddp.use_megatron_fsdp", "sections dist ddp"},
    {"use_megatron_fsdp", "Using use_megatron_fsdp and use_torch_fsdp2 at the same time"},
    {"ckpt_format", "torch_dist zarr torch torch_dcp fsdp_dtensor"},
    {"ckpt_format", "default torch_dist"},
    {"fsdp_double_buffer", "source megatron/core/distributed/distributed_data_parallel_config.py"},
    {"num_layers", "default none"},
    {"tp_comm_split_rs", "other names !disable_tp_comm_split_rs sections model"},
    {"tp_comm_split_rs", "takes true or false default true"},
    {"wandb_project", "takes a text default none"},
};

static void S1_32_explains(void **state)
{
    struct dcpk_doc doc = {0};

    (void)state;
    for (size_t i = 0; i < DCPK_COUNT(explained); i++) {
        struct dcpk_bytes text = shown(explained[i].name);

        if (strstr((const char *)text.data, explained[i].text) == NULL)
            fail_msg("%s: no '%s' in %s", explained[i].name, explained[i].text,
                     (const char *)text.data);
        dcpk_bytes_release(&text);
    }
    dcpk_doc_init(&doc, "help", &(struct dcpk_doc_style){0});
    CHECK_FAILS(dcpk_knob_explain("speed", &doc, &err), DCPK_EUSAGE, "speed: unknown knob",
                "unknown");
    dcpk_error_clear(&err);
    dcpk_doc_release(&doc);
}

/* Rules of other knobs stay out: one name is part of another's. */
static void leaves_other_rules_out(void **state)
{
    struct dcpk_bytes text = shown("overlap_param_gather");

    (void)state;
    CHECK(strstr((const char *)text.data, "Must use --overlap-param-gather with") != NULL, "own");
    CHECK(strstr((const char *)text.data, "gradients are sharded") == NULL, "other");
    dcpk_bytes_release(&text);
    text = shown("optimizer");
    CHECK(strstr((const char *)text.data, "use_distributed_optimizer") == NULL, "plain word");
    dcpk_bytes_release(&text);
}

static void lists_all(void **state)
{
    struct dcpk_bytes text = shown(NULL);
    struct dcpk_knob_walk walk = {0};
    const struct dcpk_option *knob;
    char head[128];

    (void)state;
    while ((knob = dcpk_knob_next(&walk)) != NULL) {
        snprintf(head, sizeof head, " %s ", knob->name);
        CHECK(strstr((const char *)text.data, head) != NULL, knob->name);
    }
    dcpk_bytes_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S1_32_explains),
        cmocka_unit_test(leaves_other_rules_out),
        cmocka_unit_test(lists_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
