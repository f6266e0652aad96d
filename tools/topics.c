/* SPDX-License-Identifier: Apache-2.0 */
/* topics.c - guides as text and as man pages. */
#include "tools/topics.h"

#include <string.h>

#include "lib/base/text.h"
#include "tools/cmd.h"
#include "tools/help.h"
#include "tools/version.h"
#include "tools/wrap.h"

#define HEADING "# "
#define COMMAND "    "

const struct dcpk_topic *dcpk_topic_find(const char *name)
{
    for (const struct dcpk_topic *topic = dcpk_topics; topic->name != NULL; topic++)
        if (strcmp(topic->name, name) == 0)
            return topic;
    return NULL;
}

int dcpk_topic_print(const struct dcpk_topic *topic)
{
    for (const char *const *line = topic->lines; *line != NULL; line++) {
        const bool is_command = dcpk_starts_with(*line, COMMAND);
        const size_t skipped = dcpk_starts_with(*line, HEADING) ? strlen(HEADING) : 0;

        if (line > topic->lines && !(is_command && dcpk_starts_with(line[-1], COMMAND)) &&
            !dcpk_starts_with(line[-1], HEADING))
            dcpk_cli_printf(stdout, "\n");
        if (is_command)
            dcpk_cli_put_text(stdout, *line);
        else
            dcpk_cli_put_wrapped(stdout, *line + skipped, strlen(*line + skipped), 0, 0);
        dcpk_cli_printf(stdout, "\n");
    }
    return dcpk_cli_end("help");
}

int dcpk_topic_print_man(const struct dcpk_topic *topic)
{
    dcpk_cli_printf(stdout,
                    ".TH \"DCPKIT\\-%s\" 7 \"\" \"dcpkit " DCPK_VERSION
                    "\"\n.SH NAME\ndcpkit\\-%s \\- ",
                    topic->name, topic->name);
    dcpk_cli_put_troff(topic->lines[0]);
    dcpk_cli_printf(stdout, "\n");
    for (const char *const *line = topic->lines + 1; *line != NULL; line++) {
        const char *text = *line;

        if (dcpk_starts_with(text, HEADING)) {
            dcpk_cli_printf(stdout, ".SH ");
            text += strlen(HEADING);
        } else if (dcpk_starts_with(text, COMMAND)) {
            dcpk_cli_printf(stdout, ".PP\n.nf\n");
        } else {
            dcpk_cli_printf(stdout, ".PP\n");
        }
        dcpk_cli_put_troff(text);
        dcpk_cli_printf(stdout, "\n");
        if (text[0] == ' ')
            dcpk_cli_printf(stdout, ".fi\n");
    }
    dcpk_cli_printf(stdout, ".SH SEE ALSO\n.BR dcpkit (1)\n");
    return dcpk_cli_end("help");
}
