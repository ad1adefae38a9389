"""Why did pip fail? Its log, read for the learner."""

import re

DAMAGED = "a download arrived damaged"

# In this order: what stands first explains what comes after it. Each row: words in the log, what they mean, the remedy.
REASONS = (
    (
        r"No space left on device|Errno 28\b|Errno 122\b|Disk quota exceeded|not enough space on the disk",
        "the disk is full",
        "free some space (TMPDIR can point pip's temporary files to another disk)",
    ),
    (
        r"ensurepip is not\s+available|No module named '?(ensurepip|venv)\b",
        "this Python lacks the module that makes virtual environments",
        "install it (Debian and Ubuntu: sudo apt install python3-venv)",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError|SSLError",
        "the package index could not be trusted, because its certificate was not accepted",
        "give pip your network's certificate (PIP_CERT=/path/to/bundle.pem)",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "the pinned versions exclude one another",
        "restore requirements.txt (git checkout -- requirements.txt)",
    ),
    (
        r"DO NOT MATCH THE HASHES|IncompleteRead|Connection broken|incomplete-download|BadZipFile|invalid wheel"
        r"|Wheel .* is invalid",
        DAMAGED,
        "use a steadier connection",
    ),
    (
        r"NewConnectionError|ConnectTimeoutError|Failed to establish a new connection|Max retries exceeded"
        r"|Read timed out|ReadTimeoutError|name resolution|getaddrinfo failed|nodename nor servname"
        r"|Network is unreachable|No route to host|ProxyError|Connection refused|Connection reset|RemoteDisconnected"
        r"|Connection aborted",
        "the package index can't be reached",
        "connect to the network (behind a proxy set HTTPS_PROXY, with a mirror PIP_INDEX_URL)",
    ),
    (
        # pip says no more than this when it was told not to try again (PIP_RETRIES=0).
        r"requirement (?P<what>\S+) .*\(from versions: none\)",
        "the package index can't be reached, or does not know {what}",
        "connect to the network (behind a proxy set HTTPS_PROXY, with a mirror PIP_INDEX_URL)",
    ),
    (
        r"No matching distribution found for (?P<what>\S+)",
        "the package index has no {what} for this Python and system",
        "use 64-bit Python 3.11, 3.12 or 3.13 on Linux, macOS (Apple silicon) or Windows",
    ),
    (
        r"Permission denied|Errno 13\b|WinError 5\b|WinError 32\b|Access is denied|Read-only file system",
        "a file can't be written or is in use",
        "close the programs that use .venv and make sure that the project's folder is yours to write",
    ),
)


def reason(log, returncode):
    """(what happened, what to do) for a failed pip or venv.

    log: everything it printed; returncode: its exit code, negative when a signal ended it.
    """
    for pattern, what, remedy in REASONS:
        match = re.search(pattern, log)
        if match:
            return what.format(**match.groupdict()), remedy
    if returncode < 0:
        return f"pip was killed by signal {-returncode}", "make sure that at least 2 GB of memory are free"
    errors = [line for line in log.splitlines() if line.startswith("ERROR")] or [f"exit code {returncode}"]
    return f"pip failed: {errors[-1]}", "read the log"
