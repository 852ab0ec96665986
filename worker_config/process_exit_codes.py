"""Codes with which a process of embedq ends, as in sysexits.h; 0 and 1 mean what they always mean."""

CONFIGURATION_EXIT_CODE = 78
"""EX_CONFIG: restarting cannot help, a person has to change something."""
OVERDUE_EXIT_CODE = 70
"""EX_SOFTWARE: a worker did not stop in time and ended itself."""
