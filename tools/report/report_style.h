// SPDX-License-Identifier: MIT
// The style sheet of the report; its colours come from report_figure.c, since pictures share them.
#ifndef TIDEPOOL_TOOL_REPORT_STYLE_H
#define TIDEPOOL_TOOL_REPORT_STYLE_H

extern const char report_style[];

#endif
