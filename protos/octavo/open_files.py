"""How many files, and so connections, a process may have open."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_MOST = 1 << 20  # what a limit of a billion, or none, is taken for
_OWN = 256  # what a process opens besides its clients: libraries, engines, keys, certificates


def raise_open_files(num_clients: int) -> None:
    """Takes as many open files as this process may have, as Go's runtime does.

    The usual soft limit of 1,024 is for programs that use select(2). A connection beyond the limit
    is closed without a word as soon as it is accepted; so a limit that `num_clients` at once would
    exceed is in the log. 0 is no number of them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # setrlimit(2): the system allows less than the hard limit
            most = soft
    if most < num_clients + _OWN:
        log.warning(
            "%d files may be open (ulimit -n): of %d requests at once (--max-requests-in-flight) "
            "connections beyond that are closed without an answer",
            most,
            num_clients,
        )
