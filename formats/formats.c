/* SPDX-License-Identifier: Apache-2.0 */
/* formats.c - the table of all formats. */
#include "formats/formats.h"

#include "formats/dcp/dcp.h"
#include "formats/fsdp_shards/fsdp_shards.h"
#include "formats/torch/item.h"

const struct dcpk_format *const dcpk_formats[] = {
    &dcpk_format_torch_dist,
    &dcpk_format_zarr,
    &dcpk_format_fsdp_dtensor,
    &dcpk_format_safetensors,
    &dcpk_format_peft,
    &dcpk_format_dcp, /* any */
    &dcpk_format_dcp_hf,
    &dcpk_format_titan,
    &dcpk_format_fsdp_shards, /* any */
    &dcpk_format_verl,
    &dcpk_format_checkpointing, /* any */
    &dcpk_format_titan_checkpointing,
    &dcpk_format_verl_megatron,
    &dcpk_format_torch,
    &dcpk_format_torch_dcp,
    NULL,
};

const char *const *const dcpk_formats_absent = dcpk_zarr_absent_codecs;

#ifdef DCPK_HAVE_ARCHIVE
dcpk_run_open_file *const dcpk_archive_opener = dcpk_archive_open;
#else
dcpk_run_open_file *const dcpk_archive_opener = NULL;
#endif

const struct dcpk_side_file dcpk_side_files[] = {{.name = "run_config.yaml"},
                                                 {"train_state.pt", dcpk_item_find_fault},
                                                 {.name = "tokenizer"},
                                                 {.name = NULL}};

#ifdef DCPK_HAVE_YAML
dcpk_read_value *const dcpk_yaml_args_reader = dcpk_bridge_read_args;
dcpk_read_value *const dcpk_yaml_reader = dcpk_bridge_parse;
dcpk_list_settings *const dcpk_yaml_settings = dcpk_bridge_settings;
#else
dcpk_read_value *const dcpk_yaml_args_reader = NULL;
dcpk_read_value *const dcpk_yaml_reader = NULL;
dcpk_list_settings *const dcpk_yaml_settings = NULL;
#endif

const struct dcpk_format *dcpk_format_find(const char *name)
{
    for (size_t i = 0; dcpk_formats[i] != NULL; i++)
        if (dcpk_format_is_called(dcpk_formats[i], name))
            return dcpk_formats[i];
    return NULL;
}
