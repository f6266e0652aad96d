/* SPDX-License-Identifier: Apache-2.0 */
/* compare_args.c - reads the settings of two runs, whatever form they have. */
#include "tools/compare_args.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/alloc.h"
#include "lib/job/settings_compare.h"
#include "lib/knobs/migrate.h"
#include "tools/args_from.h"

#define MAX_BYTES (UINT64_C(4) << 20)

/* True if it is a mapping of sections and names. A script or a list of flags is not, except by
 * chance, and then with blanks in its names. */
static bool is_config(const struct dcpk_value *v)
{
    if (v == NULL || v->kind != DCPK_V_DICT)
        return false;
    for (size_t i = 0; i < v->n; i++) {
        const char *name = dcpk_value_as_str(v->as.pairs[i].key);

        if (name == NULL || name[strcspn(name, " \t\n")] != '\0' || *name == '-')
            return false;
    }
    return true;
}

/* A configuration; else flags, where there are some. */
static dcpk_status settings_parse(const char *path, const char *text, size_t n_bytes,
                                  struct dcpk_args_from *from, struct dcpk_run_settings *settings,
                                  struct dcpk_error *err)
{
    struct dcpk_settings flags = {.arena = from->arena};
    struct dcpk_error of_config = DCPK_ERROR_INIT;

    if (strlen(text) < n_bytes)
        return dcpk_fail(err, DCPK_EUNSUPPORTED, "'%s' is not text: it has a NUL", path);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return dcpk_fail(err, DCPK_EFORMAT, "'%s' is empty", path);
    *settings = (struct dcpk_run_settings){.form = DCPK_FORM_CONFIG};
    if (dcpk_config_parse(text, n_bytes, from, &of_config) == DCPK_OK && is_config(from->args)) {
        settings->all = from->args;
        return DCPK_OK;
    }
    settings->form = DCPK_FORM_FLAGS;
    if (dcpk_flags_list(text, n_bytes, &flags, err) != DCPK_OK)
        return err->status;
    if (flags.n > 0)
        return dcpk_flags_to_dict(&flags, &settings->all, err);
    if (of_config.status == DCPK_OK)
        dcpk_fail(&of_config, DCPK_EUNSUPPORTED, "it is not a mapping of names to values");
    return dcpk_fail(err, of_config.status,
                     "'%s' is not a command line (it has no flags), a configuration (%s) or a "
                     "checkpoint's folder",
                     path, of_config.text);
}

static dcpk_status settings_read(const char *path, const struct dcpk_verbosity *verbosity,
                                 struct dcpk_args_from *from, struct dcpk_run_settings *settings,
                                 struct dcpk_error *err)
{
    struct stat there;
    char *text = NULL;
    size_t n;

    if (stat(path, &there) != 0)
        return dcpk_fail_errno(err, errno, "'%s'", path);
    if (S_ISDIR(there.st_mode)) {
        if (dcpk_args_from_checkpoint(path, verbosity, from, err) == DCPK_OK &&
            dcpk_cli_keep_folder_private(path, err) == DCPK_OK)
            *settings =
                (struct dcpk_run_settings){DCPK_FORM_CHECKPOINT, dcpk_value_attrs(from->args)};
        return err->status;
    }
    from->arena = dcpk_arena_new();
    if (dcpk_cli_read_file(path, MAX_BYTES, &text, &n, err) == DCPK_OK)
        (void)settings_parse(path, text, n, from, settings, err);
    dcpk_free(text);
    return err->status;
}

dcpk_status dcpk_compare_args(const char *const paths[2], const struct dcpk_verbosity *verbosity,
                              const struct dcpk_compare_options *options,
                              struct dcpk_compare_report *report, struct dcpk_error *err)
{
    struct dcpk_args_from from[2] = {{0}, {0}};
    struct dcpk_run_settings side[2];

    if (settings_read(paths[0], verbosity, &from[0], &side[0], err) == DCPK_OK &&
        settings_read(paths[1], verbosity, &from[1], &side[1], err) == DCPK_OK)
        (void)dcpk_compare_settings(side, options, report, err);
    dcpk_args_from_release(&from[0]);
    dcpk_args_from_release(&from[1]);
    return err->status;
}
