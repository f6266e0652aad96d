/* SPDX-License-Identifier: Apache-2.0 */
/* samples.h - the table of sample checkpoints, and how a golden test opens one. */
#ifndef DCPK_TESTS_GOLDEN_SAMPLES_H
#define DCPK_TESTS_GOLDEN_SAMPLES_H

#include <stdio.h>

#include "formats/formats.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "tests/check.h"

struct sample {
    const char *folder;     /* of the checkpoint, below DCPK_SAMPLES */
    const char *manifest;   /* beside it, written by PyTorch */
    const char *format;     /* what the probes must find */
    const char *generation; /* first letter of checkpoint.generation; NULL: there is one only */
    /*
     * Every class and function that the pickles of items and common.pt name, as CPython's unpickler
     * was asked for them (find_class), but for those that become plain values: OrderedDict,
     * _codecs.encode, tensors and their storages.
     */
    const char *classes;
};

#define NUMPY     "numpy._core.multiarray._reconstruct numpy.dtype numpy.ndarray"
#define DTYPES    "torch.bfloat16 torch.float32"
#define RERUN     "megatron.core.rerun_state_machine.Rerun"
#define ENUMS     "megatron.core.transformer.enums."
#define RUN_OF_12 /* what core 0.12 kept of a run */                                               \
    "argparse.Namespace megatron.core.enums.ModelType " RERUN "Diagnostic " RERUN "Mode " RERUN    \
    "State " ENUMS "AttnBackend " NUMPY " " DTYPES
#define RUN_OF_19 /* what core 0.19 and main keep of a run */                                      \
    "argparse.Namespace " RERUN "Diagnostic " RERUN "Mode " RERUN "State " ENUMS                   \
    "AttnBackend " ENUMS "InferenceCudaGraphScope " NUMPY " signal.Signals " DTYPES
#define FSDP_OF_19                                                                                 \
    "argparse.Namespace " ENUMS "AttnBackend " ENUMS "InferenceCudaGraphScope " NUMPY              \
    " signal.Signals " DTYPES
#define RUN_ON_CPU /* tests/interop/megatron_models.py */                                          \
    "argparse.Namespace " NUMPY " torch.bfloat16"

/* A run's folder with one iteration, and a folder that is the checkpoint itself. */
#define RUN(name)  name "/iter_0000004", name "/MANIFEST.iter_0000004.json"
#define BARE(name) name, name "/MANIFEST.json"
#define TINY(name) "tiny_generations/" name, "tiny_generations/MANIFEST." name ".json"

#define BUCKETS "torch_dist_c_dp_reshardable_moe_ep2pp2vpp2/"

static const struct sample samples[] = {
    {RUN("torch_dist_a_dense_tp2pp2"), "torch_dist", "A", RUN_OF_12},
    {RUN("torch_dist_a_bucket_space_tied"), "torch_dist", "A",
     "argparse.Namespace numpy.core.multiarray._reconstruct numpy.dtype numpy.ndarray " DTYPES},
    {RUN("torch_dist_b_dense_tp2pp2"), "torch_dist", "B",
     "argparse.Namespace megatron.core.enums.ModelType " ENUMS "AttnBackend " NUMPY
     " signal.Signals " DTYPES},
    {RUN("v016_moe_ep2pp2"), "torch_dist", "B",
     "argparse.Namespace megatron.core.enums.ModelType " ENUMS "AttnBackend " NUMPY
     " signal.Signals " DTYPES},
    {RUN("torch_dist_c_dense_tp2pp2"), "torch_dist", "C", RUN_OF_19},
    {RUN("torch_dist_c_dp_reshardable_tp2dp2"), "torch_dist", "C", RUN_OF_19},
    {BUCKETS "dp_reshardable/iter_0000002", BUCKETS "MANIFEST.dp_reshardable.json", "torch_dist",
     "C", "argparse.Namespace " DTYPES},
    {BUCKETS "fully_reshardable/iter_0000002", BUCKETS "MANIFEST.fully_reshardable.json",
     "torch_dist", "C", "argparse.Namespace"},
    {RUN("torch_dist_c_dp_reshardable_mamba"), "torch_dist", "C", RUN_ON_CPU " torch.float32"},
    {RUN("torch_dist_c_dp_reshardable_mla_moe"), "torch_dist", "C", RUN_ON_CPU " torch.float32"},
    {RUN("torch_dist_c_dp_reshardable_mtp"), "torch_dist", "C", RUN_ON_CPU " torch.float32"},
    {RUN("torch_dist_c_fp32_dp1"), "torch_dist", "C", RUN_OF_19},
    {"fp32_curve_nodropout/iter_0000008", "fp32_curve_nodropout/MANIFEST.iter_0000008.json",
     "torch_dist", "C", RUN_OF_19},
    {RUN("torch_dist_c_moe_ep2pp2"), "torch_dist", "C", RUN_OF_19},
    {BARE("torch_dist_b_dense_tp2pp2_p2g"), "dcp", NULL, ""},
    {BARE("torch_dist_c_moe_ep2pp2_p2g"), "dcp", NULL, ""},
    {BARE("v016_moe_ep2pp2_p2g"), "dcp", NULL, ""},
    {RUN("torch_dist_c_extra_state"), "torch_dist", "C",
     "_io.BytesIO argparse.Namespace " NUMPY " torch.bfloat16"},
    {RUN("torch_dist_c_gdn"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_mamba"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_mla_moe"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_moe_bias"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_moe_shared"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_mtp"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_per_layer"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("torch_dist_c_tied"), "torch_dist", "C", RUN_ON_CPU},
    {RUN("fsdp_dtensor_converted_by_megatron"), "fsdp_dtensor", "B",
     "argparse.Namespace megatron.core.enums.ModelType " ENUMS
     "AttnBackend signal.Signals " DTYPES},
    {RUN("fsdp_dtensor_converted_mamba"), "fsdp_dtensor", "B", "argparse.Namespace torch.bfloat16"},
    {RUN("fsdp_dtensor_converted_mla_moe"), "fsdp_dtensor", "B",
     "argparse.Namespace torch.bfloat16"},
    {RUN("fsdp_dtensor_native_dp2"), "fsdp_dtensor", "B", FSDP_OF_19},
    {RUN("fsdp_dtensor_native_moe_ep2dp4"), "fsdp_dtensor", "B", FSDP_OF_19},
    {RUN("fsdp_dtensor_v2_tied_dp2"), "fsdp_dtensor", "V", ""},
    {RUN("fsdp_dtensor_telike_dp2_015"), "fsdp_dtensor", "A", "argparse.Namespace " NUMPY},
    {RUN("fsdp_dtensor_telike_dp2_019"), "fsdp_dtensor", "B", "argparse.Namespace " NUMPY},
    {RUN("fsdp_dtensor_telike_ep2dp4"), "fsdp_dtensor", "B", "argparse.Namespace " NUMPY},
    {RUN("fsdp_dtensor_telike_tp2dp2"), "fsdp_dtensor", "B", "argparse.Namespace " NUMPY},
    {TINY("torch_dist_0.8.0_torch2.1"), "torch_dist", "A", ""},
    {TINY("torch_dist_0.10.0_torch2.5"), "torch_dist", "A", ""},
    {TINY("torch_dist_0.12.0_torch2.5"), "torch_dist", "A", ""},
    /* Torch 2.9 and later drop 0.14's mcore_data (formats/torch_dist/FORMAT.md 2), as of B. */
    {TINY("torch_dist_0.14.0_torch2.11"), "torch_dist", "B", ""},
    {TINY("torch_dist_0.15.0_torch2.5"), "torch_dist", "A", ""},
    {TINY("torch_dist_0.17.0_torch2.5"), "torch_dist", "B", ""},
    {TINY("torch_dist_0.19.0_torch2.11"), "torch_dist", "C", ""},
    {TINY("torch_dist_main_torch2.11"), "torch_dist", "C", ""},
    {RUN("torch_dcp_tied"), "torch_dcp", NULL, "argparse.Namespace " NUMPY " torch.float32"},
    {BARE("safetensors_qwen3"), "safetensors", NULL, ""},
    {BARE("safetensors_dtypes"), "safetensors", NULL, ""},
    {RUN("zarr_dense_tp2dp2"), "zarr", NULL, RUN_OF_12},
    {TINY("zarr_0.6.0"), "zarr", NULL, ""},
    {TINY("zarr_0.12.0_torch2.5"), "zarr", NULL, ""},
};
#define N_SAMPLES (sizeof samples / sizeof samples[0])

/* Open a sample; a missing one fails the test. The caller closes it. */
static inline struct dcpk_checkpoint *sample_open(const struct sample *s)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_checkpoint *ckpt = NULL;
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", DCPK_SAMPLES, s->folder);
    CHECK_OK(dcpk_store_open(path, &store, &err), s->folder);
    CHECK_OK(dcpk_checkpoint_open(store, dcpk_formats, NULL, &ckpt, &err), s->folder);
    return ckpt;
}

/* What PyTorch wrote beside a sample; dcpk_json_free. */
static inline struct dcpk_json *sample_manifest(const struct sample *s)
{
    struct dcpk_error err = DCPK_ERROR_INIT;
    struct dcpk_store *store = NULL;
    struct dcpk_source *source = NULL;
    struct dcpk_json *doc = NULL;
    char *text = NULL;
    size_t n_bytes = 0;

    CHECK_OK(dcpk_store_open(DCPK_SAMPLES, &store, &err), s->manifest);
    CHECK_OK(dcpk_store_find(store, s->manifest, &source, &err), s->manifest);
    CHECK_OK(dcpk_source_slurp(source, UINT64_C(16) << 20, &text, &n_bytes, &err), s->manifest);
    CHECK_OK(dcpk_json_parse(text, n_bytes, &doc, &err), s->manifest);
    dcpk_free(text);
    dcpk_store_close(store);
    return doc;
}

#endif
