/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_print_json.c - dcpkit print-torch-dcp-in-json: as the Python tool, byte for byte. */
#include <fcntl.h>
#include <string.h>

#include "lib/base/path.h"
#include "lib/base/text.h"
#include "lib/io/file.h"
#include "lib/job/state_dict.h"
#include "tools/cmd.h"
#include "tools/run_args.h"

#define NAME      "print-torch-dcp-in-json"
#define FILE_NAME "param_to_param_group_map.json"
/* Source: tools/checkpoint/checkpoint_inspector.py print_torch_dcp_in_json, model_weight_prefix
 * @core_v0.19.0. */
#define PREFIX "model.module"

/* The values of the options. */
struct request {
    const char *output, *iteration;
    bool is_dry, force;
};

/* True if the file holds exactly these bytes. */
static bool print_json_holds(const char *path, const struct dcpk_bytes *bytes)
{
    FILE *file = fopen(path, "rb");
    size_t at = 0, n;
    char part[4096];
    bool same = file != NULL;

    while (same && (n = fread(part, 1, sizeof part, file)) > 0) {
        same = n <= bytes->n_bytes - at && memcmp(bytes->data + at, part, n) == 0;
        at += n;
    }
    if (file != NULL)
        fclose(file);
    return same && at == bytes->n_bytes;
}

/*
 * Writes the JSON, unless a file holds it already. Only a plain file is read to find
 * that out: reading a pipe would wait.
 */
static dcpk_status write_json_file(const char *path, const struct dcpk_bytes *json, bool force,
                                   struct dcpk_error *err)
{
    struct dcpk_path there;

    if (dcpk_path_look(AT_FDCWD, path, 0, &there, err) != DCPK_OK)
        return err->status;
    if (there.kind == DCPK_PATH_FILE && print_json_holds(path, json))
        return DCPK_OK;
    if (there.kind == DCPK_PATH_FILE && !force)
        return dcpk_fail(err, DCPK_EUSAGE, "'%s' exists with other content; --force replaces it",
                         path);
    return dcpk_file_write(path, DCPK_FILE_INTO, json->data, json->n_bytes, err);
}

/* In DIR the file has its own name, or it could be one of the checkpoint's. */
static dcpk_status check_output(const char *dir, const struct dcpk_run *run,
                                const struct request *r, struct dcpk_error *err)
{
    if (r->is_dry)
        return DCPK_OK;
    if (run->is_archive && r->output == NULL)
        return dcpk_fail(err, DCPK_EUSAGE,
                         "'%s' is in an archive: give --output, the file to write the JSON to",
                         run->folder);
    if (r->output == NULL || strcmp(dcpk_name_last(r->output), FILE_NAME) == 0)
        return DCPK_OK;
    return dcpk_run_check_apart(dir, r->output, err);
}

/* Add to the error which folders the command is for. */
static void advise(const struct dcpk_checkpoint *ckpt, struct dcpk_error *err)
{
    if (ckpt->n_tensors > 0)
        dcpk_append(err, "; this command reads folders that hold only objects, such as "
                         "--dump-param-to-param-group-map writes");
}

/* The one line of all content, then the file with the group map's key names. */
static dcpk_status print_and_write(struct dcpk_checkpoint *ckpt, struct dcpk_arena *arena,
                                   const char *path, const struct request *r,
                                   struct dcpk_error *err)
{
    struct dcpk_state_dict *dict = NULL;
    struct dcpk_bytes line = {0}, file = {0};

    if (dcpk_state_dict_load(ckpt, arena, &dict, err) != DCPK_OK) {
        advise(ckpt, err);
        goto out;
    }
    if (dcpk_state_dict_to_json(dict, 0, &line, err) || dcpk_state_dict_rename(dict, PREFIX, err) ||
        dcpk_state_dict_to_json(dict, 2, &file, err))
        goto out;
    dcpk_cli_printf(stdout, "torch dcp content: ");
    if (dcpk_cli_print_bytes(&line, err) || r->is_dry ||
        write_json_file(path, &file, r->force, err))
        goto out;
    dcpk_cli_printf(stdout, "Saved converted param_to_param_group_map to: %s\n", path);
    if (dcpk_cli_flush(err) != DCPK_OK)
        dcpk_context(err, "'%s' is in place, and then", path);
out:
    dcpk_bytes_release(&line);
    dcpk_bytes_release(&file);
    return err->status;
}

static dcpk_status print_folder(const char *place, const struct request *r, struct dcpk_error *err)
{
    const struct dcpk_verbosity verbosity = {.command = NAME};
    struct dcpk_arena *arena = dcpk_arena_new();
    struct dcpk_checkpoint *ckpt = NULL;
    const char *path = r->output;
    struct dcpk_run run = {0};

    if (dcpk_cli_open(place, "dcp", &verbosity, &ckpt, &run, err) ||
        check_output(place, &run, r, err))
        goto out;
    dcpk_cli_keep_private(ckpt);
    if (path == NULL)
        path = dcpk_arena_printf(arena, err, "%s/" FILE_NAME, run.folder);
    if (path != NULL)
        (void)print_and_write(ckpt, arena, path, r, err);
out:
    err->fixes &= ~(unsigned)DCPK_FIX_DETECT; /* it has no --from */
    dcpk_arena_free(arena);
    dcpk_run_release(&run);
    dcpk_checkpoint_close(ckpt);
    return err->status;
}

#define DCPK_OPT_STRUCT struct request
static const struct dcpk_option option_rows[] = {
    DCPK_OPT(DCPK_OPTION_OUT_FILE, 'o', "output", "FILE", const char *, output,
             "write the JSON here (default: DIR/" FILE_NAME ")"),
    DCPK_OPT_FLAG("force", force, "replace a file that exists with other content"),
    DCPK_OPT_FLAG("dry-run", is_dry, "print only, write no file"), DCPK_OPT_ITERATION(iteration),
    DCPK_OPT_END};

static int print_json_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    (void)print_folder(args->words[0], values, err);
    return DCPK_EXIT_OK;
}

static struct request values;
static const bool writes_in = true; /* the default of --output */
const struct dcpk_cli dcpk_cmd_print_json = {
    .name = NAME,
    .usage = "[options] DIR",
    .summary = "Print the content of a DCP folder without tensors as JSON, and write it with "
               "keys " PREFIX ".* to a file.",
    .options = option_rows,
    .values = &values,
    .example = "dcpkit " NAME " -o map.json dumps/param_groups",
    .n_args = {1, 1},
    .is_dry = &values.is_dry,
    .writes_in = &writes_in,
    .iteration = &values.iteration,
    .run = print_json_main,
};
