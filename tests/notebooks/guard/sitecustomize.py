"""Refuse and write down every attempt of a Python process to reach another machine.

Python imports `sitecustomize` at its start, before anything else, when this folder is on PYTHONPATH; child processes
inherit that. COURSE_GUARD_LOG names the file that the attempts are appended to, one JSON object a line:
{"host": …, "event": …, "process": …}. The `helpers` package that a process imported is written there too, as
{"helpers": its file}, so that a test can tell whose it was.
"""

import errno
import importlib.machinery
import importlib.util
import json
import os
import sys

LOG = os.environ.get("COURSE_GUARD_LOG")
HERE = os.path.dirname(os.path.abspath(__file__))
HELPERS = os.path.join("helpers", "__init__.py")
OWN_NAME = (os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")).lower()
# Position of the address or host name among the event's arguments.
ADDRESSED = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
RESOLVED = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0}


def write(**line):
    """Append one line; a single write in append mode, so that processes do not mix their lines."""
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def is_local(host):
    """True for what never leaves the machine: loopback, the wildcard address, no host, the machine's own name."""
    if isinstance(host, (bytes, bytearray)):
        host = bytes(host).decode("ascii", "replace")
    if host is None or host == "":
        return True
    host = host.lower().rstrip(".").split("%")[0]
    if host in ("localhost", "::1", "::", "0.0.0.0", "ip6-localhost") or host.endswith(".localhost"):
        return True
    if (v4 := host.removeprefix("::ffff:")).startswith("127."):
        return v4.replace(".", "").isdigit()  # not 127.example.org
    return host == OWN_NAME


def refuse(host, event):
    host = host.decode("ascii", "replace") if isinstance(host, (bytes, bytearray)) else str(host)
    write(host=host, event=event, process=" ".join(getattr(sys, "orig_argv", sys.argv))[:300])
    message = f"the network is cut in this test; {event} to {host} was refused"
    if event in RESOLVED:
        import _socket  # loaded already: it raised the event

        raise _socket.gaierror(_socket.EAI_NONAME, message)
    raise OSError(errno.ENETUNREACH, message)


def hook(event, arguments):
    if event in RESOLVED:
        host = arguments[RESOLVED[event]]
        if not is_local(host):
            refuse(host, event)
    elif event in ADDRESSED:
        # (socket, address); only internet addresses are tuples that start with a text. AF_UNIX has a path alone,
        # AF_NETLINK numbers; sendto and sendmsg on a connected socket have none.
        address = arguments[ADDRESSED[event]]
        host = address[0] if isinstance(address, tuple) and address else None
        if isinstance(host, (str, bytes, bytearray)) and not is_local(host):
            refuse(host, event)
    elif event == "exec" and getattr(arguments[0], "co_filename", "").endswith(HELPERS):
        write(helpers=arguments[0].co_filename)


def chain():
    """Run the sitecustomize that this one hides, if there is one (conda and Debian have some)."""
    elsewhere = [place for place in sys.path if os.path.abspath(place or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if LOG:
    sys.addaudithook(hook)
chain()
