/* SPDX-License-Identifier: Apache-2.0 */
/* test_meddled.c - the last rename of a conversion fails; another hand changes what it has left, or
 * what it was asked for; --resume goes on. */
/*
 * What is published is at all times what an undisturbed run writes, and no more, and what links
 * lead to stays as it was. Where nothing was changed, all that was written counts; where options
 * ask for other bytes, none of it, and it stays for those that began it.
 */
#include "tests/fault/strike.h"

#define MOE     DCPK_SAMPLES "/torch_dist_c_moe_ep2pp2"
#define PARTIAL "out/run/iter_0000004.dcpkit-partial"

static const struct scene zarr = {
    .label = "to zarr",
    .sample = MOE,
    .args = {"convert", "-j2", "--to", "zarr", "in", "out/run"},
    .units = RUN,
    .resumes = true,
};
static const struct scene dcp = {
    .label = "to fsdp_dtensor",
    .sample = MOE,
    .args = {"convert", "-j2", "--to", "fsdp_dtensor", "in", "out/run"},
    .units = RUN,
    .resumes = true,
};

/* The last of the partial folder's arrays by name, and its first file with elements. */
static const char *find_array(void)
{
    static char found[1024];
    DIR *folder = opendir(scratch(PARTIAL));
    const struct dirent *entry;

    CHECK(folder != NULL, PARTIAL);
    found[0] = '\0';
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, found) > 0 &&
            strchr(entry->d_name, '.') != NULL && strcmp(entry->d_name, "common.pt") != 0 &&
            strcmp(entry->d_name, "metadata.json") != 0)
            snprintf(found, sizeof found, "%s", entry->d_name);
    closedir(folder);
    CHECK(found[0] != '\0', PARTIAL);
    return found;
}

static const char *find_file(void)
{
    static char path[2048];
    char array[1100];
    DIR *folder;
    const struct dirent *entry;

    snprintf(array, sizeof array, PARTIAL "/%s", find_array());
    folder = opendir(scratch(array));
    CHECK(folder != NULL, array);
    path[0] = '\0';
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && path[0] == '\0')
            snprintf(path, sizeof path, "%s/%s", array, entry->d_name);
    closedir(folder);
    CHECK(path[0] != '\0', array);
    return path;
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, path);
}

/* ---- what another hand does ---- */

static void do_nothing(void)
{
}

static void put_strays(void)
{
    char path[2048];

    put_file(scratch(PARTIAL "/stray"), "theirs");
    CHECK(mkdir(scratch(PARTIAL "/array"), 0777) == 0, "mkdir");
    put_file(scratch(PARTIAL "/array/.zarray"), "theirs");
    put_file(scratch(PARTIAL "/.metadata.dcpkit-tmp"), "theirs");
    CHECK(symlink(scratch("victim"), scratch(PARTIAL "/link")) == 0, "symlink");
    snprintf(path, sizeof path, PARTIAL "/%s/9.9.9", find_array());
    put_file(scratch(path), "theirs");
}

static void link_folder(void)
{
    char path[2048];

    snprintf(path, sizeof path, PARTIAL "/%s", find_array());
    tree_delete(scratch(path));
    CHECK(symlink(scratch("victim"), scratch(path)) == 0, "symlink");
}

static void link_file(void)
{
    const char *path = find_file();

    CHECK(unlink(scratch(path)) == 0 && symlink(scratch("victim/f"), scratch(path)) == 0, path);
}

/* The file itself gets a second name, which whoever made it may write to later. */
static void link_file_hard(void)
{
    CHECK(link(scratch(find_file()), scratch("second")) == 0, "link");
}

static void flip_byte(void)
{
    const char *path = find_file();
    FILE *file = fopen(scratch(path), "r+");
    int byte;

    CHECK(file != NULL && (byte = fgetc(file)) != EOF && fseek(file, 0, SEEK_SET) == 0 &&
              fputc(byte ^ 1, file) != EOF && fclose(file) == 0,
          path);
}

static void cut_file(void)
{
    CHECK(truncate(scratch(find_file()), 1) == 0, "truncate");
}

static void delete_file(void)
{
    CHECK(unlink(scratch(find_file())) == 0, "unlink");
}

static const struct {
    const char *label;
    void (*meddle)(void);
    const char *note; /* "": none */
} meddlings[] = {
    {"nothing", do_nothing, ""},
    {"strays", put_strays, ""},
    {"a link in place of a folder", link_folder, ""},
    {"a link in place of a file", link_file, ""},
    {"a file with two names", link_file_hard, ""},
    {"a byte", flip_byte, "an earlier run have changed since"},
    {"a shorter file", cut_file, ""},
    {"no file", delete_file, ""},
};

/* ---- the rounds ---- */

/* Everything is written, and cannot be given its name. */
static void fail_at_the_end(const struct scene *scene, const char *label)
{
    struct strike strike;
    char journal[1024];

    scene_make_place(scene);
    strike = strike_run(scene->args, "eio@renameat2", 1);
    CHECK_EQ_INT(strike.fault.n_struck, 1, label);
    CHECK_EQ_INT(strike.result.exit_code, 4, strike.result.said);
    strike_check_message(strike.result.said, "finished parts are kept", label);
    snprintf(journal, sizeof journal, "%s.dcpkit-partial/.dcpkit-journal", scene->units[0]);
    CHECK(!scratch_has(scene->units[0]) && scratch_has(journal), label);
}

static struct result resume(const struct scene *scene)
{
    struct scene again = *scene;

    again.args[scene_count_args(&again)] = "--resume";
    return scene_run(DCPK_PROGRAM, again.args, NULL);
}

static void check_done(const struct scene *scene, const struct expected *e,
                       const struct result *result, const char *label)
{
    CHECK_EQ_INT(result->exit_code, 0, result->said);
    scene_check_new(scene, e->after, label);
    CHECK(tree_of(scratch("in")) == e->input, label);
    CHECK(scene_leftovers(scene, "") == 0, label);
}

static void see_undisturbed(const struct scene *scene, struct expected *e)
{
    scene_make_input(scene);
    scene_begin(scene, e);
    CHECK_EQ_INT(scene_run(DCPK_PROGRAM, scene->args, NULL).exit_code, 0, scene->label);
    scene_see_units(scene, e->after);
}

/* How much the result says was there already. */
static void resumed_text(const struct result *result, char text[64])
{
    const char *found = strstr(result->printed, "resumed ");

    text[0] = '\0';
    if (found != NULL)
        snprintf(text, 64, "%.*s", (int)strcspn(found, "\n"), found);
}

static void meddled(void **state)
{
    struct expected e;
    tree_print victim;
    char all[64] = "";

    (void)state;
    see_undisturbed(&zarr, &e);
    CHECK(mkdir(scratch("victim"), 0777) == 0, "victim");
    put_file(scratch("victim/f"), "precious");
    put_file(scratch("victim/.zarray"), "precious");
    victim = tree_of(scratch("victim"));
    for (size_t i = 0; i < sizeof meddlings / sizeof *meddlings; i++) {
        const char *label = meddlings[i].label;
        struct result result;
        char resumed[64];

        fail_at_the_end(&zarr, label);
        meddlings[i].meddle();
        result = resume(&zarr);
        CHECK(tree_of(scratch("victim")) == victim, label);
        CHECK(meddlings[i].note[0] == '\0' || strstr(result.said, meddlings[i].note) != NULL ||
                  strstr(result.printed, meddlings[i].note) != NULL,
              label);
        resumed_text(&result, resumed);
        CHECK(resumed[0] != '\0', label);
        if (i == 0)
            snprintf(all, sizeof all, "%s", resumed);
        if (meddlings[i].meddle == put_strays)
            CHECK_EQ_STR(resumed, all, label);
        check_done(&zarr, &e, &result, label);
    }
}

/* All that was written counts: what is left is the rename, and the small files again. */
static void rename_alone(void **state)
{
    struct expected e;
    struct result result;

    (void)state;
    see_undisturbed(&dcp, &e);
    fail_at_the_end(&dcp, "fails");
    result = resume(&dcp);
    CHECK(strstr(result.printed, "written by an earlier run") != NULL, result.printed);
    check_done(&dcp, &e, &result, "goes on");
}

/* Killed between the last rename and the end: the journal in the output goes with --resume. */
static void journal_in_the_output(void **state)
{
    struct expected e;
    struct result result;

    (void)state;
    see_undisturbed(&dcp, &e);
    put_file(scratch("out/run/iter_0000004/.dcpkit-journal"), "done");
    CHECK(unlink(scratch("out/run/" TRACKER)) == 0, TRACKER);
    result = resume(&dcp);
    CHECK(strstr(result.printed, "already complete") != NULL, result.printed);
    check_done(&dcp, &e, &result, "complete");
}

/* ---- other options ---- */

#define BUCKETS DCPK_SAMPLES "/torch_dist_c_dp_reshardable_tp2dp2"
#define DENSE   DCPK_SAMPLES "/torch_dist_c_dense_tp2pp2"
#define RELEASE                                                                                    \
    {                                                                                              \
        "out/run/release", "out/run/" TRACKER                                                      \
    }
#define MERGE "merge", "-j2", "--weights", "0.37,0.7"

/* Each asks for other bytes with the option behind it; the plan of what is written is the same. */
static const struct {
    struct scene scene;
    const char *other;
} choices[] = {
    {{.label = "sums of stored weights",
      .sample = BUCKETS,
      .args = {MERGE, "in", "in", "out/run"},
      .units = RELEASE},
     "--weights-only"},
    {{.label = "sums without masters",
      .sample = DENSE,
      .args = {MERGE, "in", "in", "out/run"},
      .units = RELEASE},
     "--drop=^optimizer[.]state[.]param[.]"},
};

static void other_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const struct scene *scene = &choices[i].scene;
        struct scene other = *scene;
        struct expected e;
        struct result result;
        tree_print kept;

        see_undisturbed(scene, &e);
        fail_at_the_end(scene, scene->label);
        kept = tree_of(scratch("out"));
        other.args[scene_count_args(&other)] = choices[i].other;
        result = resume(&other);
        CHECK_EQ_INT(result.exit_code, 2, result.printed);
        strike_check_message(result.said, "--force", scene->label);
        CHECK(tree_of(scratch("out")) == kept, scene->label);
        result = resume(scene);
        CHECK(strstr(result.printed, "written by an earlier run") != NULL, result.printed);
        check_done(scene, &e, &result, scene->label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(meddled, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(rename_alone, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(journal_in_the_output, strike_setup, strike_teardown),
        cmocka_unit_test_setup_teardown(other_options, strike_setup, strike_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
