/* The help texts of `egressctl audit`. */
#pragma once

extern const char audit_help[];
extern const char audit_help_tail[];
extern const char audit_help_query[];
extern const char audit_help_verify[];
