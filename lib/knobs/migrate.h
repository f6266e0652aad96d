/* SPDX-License-Identifier: Apache-2.0 */
/* migrate.h - the settings of a run changed for Megatron-FSDP, or back for DDP, by the rules of
 * knobs. */
#ifndef DCPK_LIB_KNOBS_MIGRATE_H
#define DCPK_LIB_KNOBS_MIGRATE_H

#include "lib/base/setting.h"
#include "lib/knobs/knobs.h"
#include "lib/place/grid.h"

/* A setting that becomes another one. Texts live in the arena of the settings. */
struct dcpk_change {
    const struct dcpk_option *row; /* NULL: no knob has the name */
    const char *name, *section;    /* section: where it is added; NULL: none */
    size_t number;                 /* of its settings (dcpk_setting.number); DCPK_NO_NUMBER: by
                                      name */
    const char *from, *to;         /* NULL: not set */
    const char *suffix;            /* `to` is `from` and this: a folder; else NULL */
    const char *reason, *source;
    bool is_environment; /* a variable of the environment */
};

/* Flags of torchrun. */
#define DCPK_LAUNCHER_FLAGS                                                                        \
    "nproc_per_node nnodes node_rank master_addr master_port standalone log_dir tee"

#define DCPK_MAX_CHANGES             128
#define DCPK_MIGRATE_SUFFIX(to_fsdp) ((to_fsdp) ? "-fsdp_dtensor" : "-torch_dist")
struct dcpk_migration {
    bool to_fsdp;                 /* else to DDP, with a distributed optimizer where it has one */
    bool has_sections;            /* a configuration's settings are in sections */
    bool is_flat;                 /* with sections: they are parts of names, "ddp.a" */
    bool keeps_folders;           /* load and save stay */
    const struct dcpk_grid *mesh; /* NULL: as the settings have it */
    int64_t n_ranks;              /* 0: not known */
    struct dcpk_settings *from;   /* numbers are set */

    struct dcpk_train_knobs knobs; /* as changed */
    struct dcpk_train_environment environment;
    struct dcpk_change changes[DCPK_MAX_CHANGES];
    size_t n_changes;
    struct dcpk_train_notices notes;
    struct dcpk_grid grid; /* as changed */
};

/*
 * Plan the changes; the members from `knobs` on are results. Errors: DCPK_EUNSUPPORTED for a
 * setting that Megatron refuses and nothing replaces; DCPK_EUSAGE for a mesh that it cannot build;
 * DCPK_EMISMATCH for sizes that do not divide; DCPK_ENOMEM.
 */
dcpk_status dcpk_migrate(struct dcpk_migration *m, struct dcpk_error *err);

/* True if a setting is one that the change changes. */
bool dcpk_change_is_of(const struct dcpk_change *change, const struct dcpk_setting *setting);

/*
 * List the flags in a text: a shell script, or flags alone. Values have the
 * variables that the text sets. Errors: DCPK_ENOMEM; DCPK_ERANGE.
 */
dcpk_status dcpk_flags_list(const char *text, size_t n_bytes, struct dcpk_settings *list,
                            struct dcpk_error *err);

/* The default that Megatron's parser has for a knob, as text; never NULL for a switch. NULL: it has
 * none, computes it of other args, or releases differ. What decides a model has its default in
 * lib/model/arg_table.h. */
const char *dcpk_flag_default(const struct dcpk_option *row);

/* Append the flag that gives a knob a value, with the value, as Megatron spells it; nothing where
 * that is the default, or value is NULL. */
void dcpk_flag_put(const struct dcpk_option *row, const char *value, struct dcpk_bytes *out);

/* The edits that changes make in such a text, in the arena of the settings. Errors: DCPK_ENOMEM. */
dcpk_status dcpk_flags_edit(const struct dcpk_migration *m, const char *text,
                            struct dcpk_text_edit **edits, size_t *n, struct dcpk_error *err);
/* The same in a configuration, YAML or JSON. */
dcpk_status dcpk_config_edit(const struct dcpk_migration *m, struct dcpk_text_edit **edits,
                             size_t *n, struct dcpk_error *err);

#endif
