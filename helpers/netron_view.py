"""Netron inside a notebook: the installed package's own page, served by this process, to this machine only.

    model = view("mnist_cnn.onnx")
    model                            # as a cell's last line: the graph, to click through
    model.close()                    # the server stops, a drawing takes the frame's place

As shipped, Netron's page asks a third-party host for the visitor's country, shows a consent dialog, sends telemetry,
and 180 days after its release shows only a request to update. So the page is changed while it is served (never on
disk): no release date, the version that switches telemetry off, a cookie that says the question has been answered. A
Content-Security-Policy keeps whatever is left from connecting anywhere else.
"""

import html
import http.server
import re
import shutil
import socketserver
import threading
import urllib.parse
from pathlib import Path

import netron
from IPython.display import display

from . import graph_picture, plots
from .onnx_export import files

PAGES = Path(netron.__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; form-action 'none'; base-uri 'none'"
)
# A frame may be refused its cookies by the browser, so the page gets one that is always there.
SETTLED = b'Object.defineProperty(document, "cookie", { get: () => "consent=settled", set: () => {} });\n'

_open = set()


def view(path, height=480):
    """Serve Netron with the model at `path` (.onnx or .mnn) and return its `NetronView`; height in CSS pixels.

    Raises FileNotFoundError, ValueError for a file that is no such model, RuntimeError when the installed Netron is
    not the one whose page this module knows how to change.
    """
    return NetronView(path, height)


def close_all():
    """Close every view that is still open; return how many there were."""
    views = list(_open)
    for each in views:
        each.close()
    return len(views)


class NetronView:
    """A model in Netron; displays itself as a frame that falls back to a drawing where the server can't be reached.

    url: where it is served (loopback, a free port); None once closed. graph: the `graph_picture.Graph` that is drawn.
    """

    def __init__(self, path, height):
        self.path, self.height = Path(path), height
        self.graph = graph_picture.read_graph(self.path)
        alt = f"{graph_picture.describe(self.graph)} Shown by Netron in a running notebook."
        self._picture, self._metadata = plots.picture_bundle(graph_picture.draw(self.graph), alt)
        self._displays = []
        # A class of its own: the model belongs to the handler's class, and two servers must not share it.
        handler = type("Handler", (_Handler,), {"index": _index(self.path.name), "model": _model_files(self.path)})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.1], daemon=True)
        self._thread.start()
        _open.add(self)

    def __repr__(self):
        return f"NetronView('{self.path.name}', {'open' if self.url else 'closed'})"

    def _ipython_display_(self):
        data = dict(self._picture)
        if self.url:
            # <object>, unlike <iframe>, shows what is inside it when its page can't be loaded: after the kernel's
            # end, on a hub that forwards no further port, in exported HTML.
            alt = html.escape(data["text/plain"])
            data["text/html"] = (
                f'<object type="text/html" class="netron" data="{self.url}" aria-label="{alt}" '
                f'style="display:block;box-sizing:border-box;width:100%;height:{self.height}px;'
                f'border:1px solid #767676;background:#fff">'
                f'<img alt="{alt}" src="data:image/png;base64,{data["image/png"]}"></object>'
            )
        handle = display(data, metadata=self._metadata, raw=True, display_id=True)
        if handle:  # None outside IPython
            self._displays.append(handle)

    def close(self):
        """Stop the server and put the drawing where the frame was. Closing twice does no harm."""
        if not self.url:
            return
        self.url = None
        _open.discard(self)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for handle in self._displays:
            handle.update(self._picture, metadata=self._metadata, raw=True)


def _model_files(path):
    """{name relative to the model's folder: path} of what the page may ask for: the model, its external weights."""
    found = files(path) if path.suffix == ".onnx" else [path]
    return {file.relative_to(path.parent).as_posix(): file for file in found}


def _index(name):
    """Netron's index page, as bytes, for the model called `name`."""
    page = (PAGES / "index.html").read_text("utf-8")
    quoted = html.escape(name)
    head = f"""<meta name="type" content="Python">
<meta name="version" content="0.0.0">
<meta name="file" content="data/{html.escape(urllib.parse.quote(name))}">
<meta name="name" content="{quoted}">
<meta name="identifier" content="{quoted}">"""
    for pattern, replacement in (
        (r'<meta name="version" content="[^"]*">', head),
        (r'<meta name="date" content="[^"]*">', '<meta name="date" content="">'),
        (r'(?=<script type="text/javascript" src="index.js">)', '<script src="settled.js"></script>\n'),
    ):
        page, count = re.subn(pattern, lambda _, text=replacement: text, page)
        if count != 1:
            raise RuntimeError(
                f"Netron {netron.__version__} has another page than this course knows ({pattern!r} found {count} "
                "times). Install the version that requirements.txt names."
            )
    return page.encode("utf-8")


class _Server(socketserver.ThreadingTCPServer):
    """Not http.server's own, which first asks the system for this machine's full name: a request to a name server."""

    daemon_threads = True
    request_queue_size = 32  # the page asks for its scripts all at once

    def handle_error(self, request, client_address):
        """Say nothing: a browser that leaves half-way is no error, and a traceback would end in the learner's cell."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Three kinds of files: the changed index page, the model under data/, and Netron's own pages."""

    index, model = b"", {}
    # Not the system's table, which on Windows may call a script plain text; the browser would refuse to run it.
    extensions_map = {".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".png": "image/png",
                      ".ico": "image/x-icon", "": "application/octet-stream"}  # fmt: skip

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=str(PAGES))

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path in ("/", "/index.html"):
            self._answer(self.index, "text/html; charset=utf-8")
        elif path == "/settled.js":
            self._answer(SETTLED, "text/javascript")
        elif path.startswith("/data/"):
            self._send_model(path.removeprefix("/data/"))
        elif Path(path).suffix in (".js", ".css", ".json", ".png", ".ico"):
            super().do_GET()
        else:
            self.send_error(404)

    def _answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_model(self, name):
        try:
            file = open(self.model[name], "rb")  # noqa: SIM115
        except (KeyError, OSError):
            self.send_error(404)
            return
        with file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(self.model[name].stat().st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)

    def end_headers(self):
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")  # another model may be served on this port tomorrow
        super().end_headers()

    def log_message(self, *arguments):
        """Say nothing: what a server prints would end in the learner's cell."""
