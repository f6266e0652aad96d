/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_completion.c - dcpkit completion SHELL: prints the script that completes dcpkit's words. */
#include <string.h>

#include "formats/formats.h"
#include "lib/base/order.h"
#include "tools/cmd.h"

#define NAME "completion"

/* Each script has both marks, in this order: the names of all commands, of all formats. */
#define COMMANDS "@commands@"
#define FORMATS  "@formats@"

static const struct {
    const char *shell, *script;
} shells[] = {
    {"bash",
     "_dcpkit() {\n"
     "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=\n"
     "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
     "        words='" COMMANDS "help --help --version'\n"
     "    elif [ \"$before\" = --to ] || [ \"$before\" = --from ]; then\n"
     "        words='" FORMATS "'\n"
     "    elif [ \"${word#-}\" != \"$word\" ]; then\n"
     "        words=$(\"${COMP_WORDS[0]}\" \"${COMP_WORDS[1]}\" --help=words 2>/dev/null)\n"
     "    fi\n"
     "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
     "}\n"
     "complete -o default -F _dcpkit dcpkit\n"},
    {"zsh", "#compdef dcpkit\n"
            "_dcpkit() {\n"
            "    if ((CURRENT == 2)); then\n"
            "        compadd -- " COMMANDS "help --help --version\n"
            "    elif [[ $words[CURRENT-1] == (--to|--from) ]]; then\n"
            "        compadd -- " FORMATS "\n"
            "    elif [[ $PREFIX == -* ]]; then\n"
            "        compadd -- ${(f)\"$($words[1] $words[2] --help=words 2>/dev/null)\"}\n"
            "    else\n"
            "        _files\n"
            "    fi\n"
            "}\n"
            "compdef _dcpkit dcpkit\n"},
    {"fish",
     "complete -c dcpkit -n __fish_use_subcommand -a '" COMMANDS "help'\n"
     "complete -c dcpkit -n '__fish_prev_arg_in --to --from' -x -a '" FORMATS "'\n"
     "complete -c dcpkit -n 'not __fish_use_subcommand; and string match -q -- \"-*\" (commandline "
     "-ct)' -a '(dcpkit (commandline -opc)[2] --help=words 2>/dev/null)'\n"},
};

static void put_names(const char *mark)
{
    if (strcmp(mark, COMMANDS) == 0)
        for (size_t i = 0; dcpk_command_name(i) != NULL; i++)
            dcpk_cli_printf(stdout, "%s ", dcpk_command_name(i));
    else
        for (size_t i = 0; dcpk_formats[i] != NULL; i++)
            dcpk_cli_printf(stdout, "%s ", dcpk_formats[i]->name);
}

/* Prints lines as they are: in text that is printed a newline would be escaped. */
static void put_lines(const char *text, const char *end)
{
    while (text < end) {
        const size_t n = strcspn(text, "\n");
        const bool is_whole = text + n < end;

        dcpk_cli_put_part(stdout, text, is_whole ? n : (size_t)(end - text));
        if (is_whole)
            dcpk_cli_printf(stdout, "\n");
        text += n + 1;
    }
}

static void put_script(const char *script)
{
    static const char *const marks[] = {COMMANDS, FORMATS};

    for (size_t i = 0; i < DCPK_COUNT(marks); i++) {
        const char *mark = strstr(script, marks[i]);

        put_lines(script, mark);
        put_names(marks[i]);
        script = mark + strlen(marks[i]);
    }
    put_lines(script, script + strlen(script));
}

static int completion_main(void *values, const struct dcpk_cli_args *args, struct dcpk_error *err)
{
    (void)values;
    for (size_t i = 0; i < DCPK_COUNT(shells); i++) {
        if (strcmp(args->words[0], shells[i].shell) != 0)
            continue;
        put_script(shells[i].script);
        (void)dcpk_cli_flush(err);
        return DCPK_EXIT_OK;
    }
    return dcpk_cli_usage(NAME, "'%s' is not bash, zsh or fish", args->words[0]);
}

static const struct dcpk_option none[] = {DCPK_OPT_END};
const struct dcpk_cli dcpk_cmd_completion = {
    .name = NAME,
    .usage = "bash|zsh|fish",
    .summary = "Print the script that completes commands, options and formats in a shell.",
    .options = none,
    .example = "dcpkit completion bash >dcpkit.bash",
    .n_args = {1, 1},
    .paths = DCPK_CLI_NO_PATHS,
    .run = completion_main,
};
