/* SPDX-License-Identifier: Apache-2.0 */
/* live_names.h - the parameters of the modules that one rank of a run has in memory, as views of a
 * checkpoint of that model. */
/*
 *     megatron:tp=2,pp=2,layout=Et|tt|tt|tL     vllm:tp=4     sglang:tp=4,ep=4,at=8
 *     megatron:tp=2,pp=2,vpp=2                  transformers
 *
 * A layout is that of dcpk_placing_parse, over the ranks of the world; with at=A it begins at its
 * rank A, with ranks=N it has N of them. Its ranks are numbered from 0 there. family=F: of Hugging
 * Face's names, where args fit several (a Phi-3's fit Mistral, too).
 *
 * megatron: named_parameters() of a rank: layers and experts have the numbers that they have on
 * it, rows and columns are those that tensor parallelism leaves. Prefixes "module." of wrappers are
 * dropped. With vpp a name begins with the number of its model chunk ("1.decoder..."), as those of
 * torch.nn.ModuleList(model) do. DTensors of Megatron-FSDP are the blocks of all tensor-parallel
 * ranks, one after the other. layout= is the rest of the text: the layers of a pipeline's chunks
 * (lib/place/pipeline.h).
 * Embeddings and the output layer may be on any stage: tied ones and those of multi-token
 * prediction are on several.
 *
 * vllm, sglang: projections and experts are fused and cut as their weight loaders do it
 * (serving_names.h); vLLM has an expert on one of all ranks, with ep=, SGLang on tp / ep of them.
 * Names of the model that has layers of multi-token prediction begin with "draft.".
 * transformers: the model in memory, of transformers 5: experts are stacked.
 */
#ifndef DCPK_LIB_JOB_LIVE_NAMES_H
#define DCPK_LIB_JOB_LIVE_NAMES_H

#include "lib/job/feed_views.h"

/* True for the text of a scheme of names in memory, "vllm:tp=2": not a format's name. */
bool dcpk_live_is(const char *text);

/* Names in memory, the rank that has them, and formats whose names they are made of. */
struct dcpk_live_options {
    const char *text;                 /* "megatron:tp=2" */
    int64_t rank, n_ranks;            /* of the world */
    bool are_targets;                 /* rows of vocabulary past the tokens are left alone then */
    const struct dcpk_format *hf;     /* names of Hugging Face's files */
    const struct dcpk_format *dcp_hf; /* those of transformers' classes, after "model." */
};

/*
 * Views for dcpk_rename_shards of what this rank's modules have; none where the layout does not
 * reach the rank. ckpt: as of dcpk_feed_views_new. Errors: DCPK_EUSAGE for a text that cannot be
 * read; DCPK_EMISMATCH naming what does not divide; DCPK_EUNSUPPORTED for a model that the scheme
 * does not have, and for a pipeline that the layout cannot describe; those of dcpk_feed_views_new.
 */
dcpk_status dcpk_live_views_new(struct dcpk_checkpoint *ckpt,
                                const struct dcpk_live_options *options,
                                struct dcpk_feed_views **views, struct dcpk_error *err);

#endif
