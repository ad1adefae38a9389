"""Netron's page as the course serves it. What a browser makes of it is tested in tests/browser."""

import http.client
import re
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import netron
import onnx
import pytest

from helpers import netron_view
from helpers.netron_view import close_all, view


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


@pytest.fixture
def displayed(monkeypatch):
    """What IPython was asked to display, and to update: lists of (bundle, options)."""

    class Handle:
        shown, updated = [], []

        def update(self, bundle, **options):
            self.updated.append((bundle, options))

    Handle.shown, Handle.updated = [], []
    monkeypatch.setattr(
        netron_view, "display", lambda bundle, **options: Handle.shown.append((bundle, options)) or Handle()
    )
    return Handle


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read(), answer.headers


def meta(page, name):
    return re.findall(rf'<meta name="{name}" content="([^"]*)">', page)


def test_page_has_no_release_date_no_version_that_sends_telemetry_and_an_answer_to_the_consent_question(tiny):
    page = fetch(view(tiny[0]).url)[0].decode()
    assert meta(page, "date") == [""] and meta(page, "version") == ["0.0.0"]
    assert meta(page, "file") == ["data/tiny.onnx"] and meta(page, "identifier") == ["tiny.onnx"]
    assert page.index("settled.js") < page.index('"index.js"')
    assert b"consent=" in fetch(view(tiny[0]).url + "settled.js")[0]


def test_netrons_own_files_stay_as_they_are(tiny):
    before = (netron_view.PAGES / "index.html").read_bytes()
    url = view(tiny[0]).url
    fetch(url)
    assert (netron_view.PAGES / "index.html").read_bytes() == before and b'content="0.0.0"' not in before
    assert fetch(url + "view.js")[0] == (netron_view.PAGES / "view.js").read_bytes()


def test_everything_is_served_with_a_policy_that_allows_this_server_only(tiny):
    url = view(tiny[0]).url
    for place in ("", "index.js", "data/tiny.onnx"):
        policy = fetch(url + place)[1]["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "connect-src 'self';" in policy and "http" not in policy


def test_scripts_have_a_type_that_browsers_run(tiny):
    url = view(tiny[0]).url
    assert fetch(url + "index.js")[1]["Content-Type"] == "text/javascript"
    assert fetch(url + "settled.js")[1]["Content-Type"] == "text/javascript"


def test_two_views_show_two_models(tiny, tiny_mnn):
    first, second = view(tiny[0]), view(tiny_mnn)
    assert fetch(first.url + "data/tiny.onnx")[0] == tiny[0].read_bytes()
    assert fetch(second.url + "data/tiny.mnn")[0] == tiny_mnn.read_bytes()
    assert meta(fetch(first.url)[0].decode(), "file") == ["data/tiny.onnx"]
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(first.url + "data/tiny.mnn")


def test_the_same_model_can_be_opened_twice_and_again_after_closing(tiny):
    first, second = view(tiny[0]), view(tiny[0])
    assert first.url != second.url
    first.close()
    assert fetch(second.url)[0]
    second.close()
    assert fetch(view(tiny[0]).url)[0]


def test_a_closed_view_serves_nothing_and_leaves_no_thread(tiny):
    before = threading.active_count()
    one = view(tiny[0])
    port = int(one.url.split(":")[2].strip("/"))
    assert repr(one) == "NetronView('tiny.onnx', open)"
    one.close()
    one.close()
    assert (one.url, repr(one)) == (None, "NetronView('tiny.onnx', closed)")
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_close_all_closes_what_is_open_and_counts_it(tiny):
    views = [view(tiny[0]) for _ in range(3)]
    views[0].close()
    assert close_all() == 2 and close_all() == 0
    assert all(each.url is None for each in views)


def test_server_listens_on_loopback_only(tiny):
    assert view(tiny[0])._server.socket.getsockname()[0] == "127.0.0.1"


def test_no_file_but_the_model_and_netrons_own_is_served(tiny):
    (tiny[0].parent / "secret.txt").write_text("not for the page")
    port = int(view(tiny[0]).url.split(":")[2].strip("/"))
    for path in ("/data/secret.txt", "/data/../secret.txt", "/data/%2e%2e/secret.txt", "/../server.py", "/server.py",
                 "//etc/passwd", "/data/", "/%2e%2e/netron/server.py"):  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", path)  # unlike urllib, sends the path as it is
        assert connection.getresponse().status == 404, path
        connection.close()


def test_external_weights_are_served_with_their_model(tiny, tmp_path):
    path = tmp_path / "split.onnx"
    onnx.save_model(onnx.load(tiny[0]), path, save_as_external_data=True, location="split.bin", size_threshold=0)
    assert fetch(view(path).url + "data/split.bin")[0] == (tmp_path / "split.bin").read_bytes()


def test_a_name_with_spaces_quotes_and_accents_arrives(tiny, tmp_path):
    path = tmp_path / 'möd"el <1> #2.onnx'
    path.write_bytes(tiny[0].read_bytes())
    url = view(path).url
    page = fetch(url)[0].decode()
    assert meta(page, "identifier") == ["möd&quot;el &lt;1&gt; #2.onnx"]
    assert fetch(url + meta(page, "file")[0])[0] == path.read_bytes()


def test_a_browser_that_leaves_half_way_says_nothing_in_the_notebook(tiny, capfd):
    url = view(tiny[0]).url
    port = int(url.split(":")[2].strip("/"))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset, not an orderly end
            browser.sendall(b"GET /mnn-schema.js HTTP/1.1\r\n\r\n")
    assert fetch(url)[0]
    assert capfd.readouterr() == ("", "")


def test_display_is_a_frame_that_falls_back_to_a_picture_with_alternative_text(tiny, displayed):
    one = view(tiny[0], height=300)
    one._ipython_display_()
    ((bundle, options),) = displayed.shown
    frame = bundle["text/html"]
    assert re.match(rf'<object type="text/html" class="netron" data="{one.url}"', frame) and "height:300px" in frame
    assert f'src="data:image/png;base64,{bundle["image/png"]}"' in frame
    alt = bundle["text/plain"]
    assert alt.startswith("Graph of tiny.onnx: 2 operators from x to y: 1 Conv, 1 Relu.")
    assert options["metadata"]["image/png"]["alt"] == alt and f'<img alt="{alt}"' in frame


def test_closing_puts_the_picture_where_the_frame_was(tiny, displayed):
    one = view(tiny[0])
    one._ipython_display_()
    one._ipython_display_()
    one.close()
    assert len(displayed.updated) == 2
    for bundle, options in displayed.updated:
        assert set(bundle) == {"image/png", "text/plain"} and options["metadata"]["image/png"]["alt"]
    one._ipython_display_()  # shown again: the picture alone
    assert "text/html" not in displayed.shown[-1][0]


def test_missing_and_foreign_files_are_refused_and_start_no_server(tmp_path):
    before = threading.active_count()
    with pytest.raises(FileNotFoundError, match="none.mnn does not exist"):
        view(tmp_path / "none.mnn")
    (tmp_path / "a.txt").write_text("no model")
    with pytest.raises(ValueError, match="Only .onnx and .mnn"):
        view(tmp_path / "a.txt")
    assert threading.active_count() == before


def test_a_netron_with_another_page_is_refused_rather_than_shown_with_its_traps(tiny, tmp_path, monkeypatch):
    page = (Path(netron.__file__).parent / "index.html").read_text("utf-8")
    (tmp_path / "index.html").write_text(page.replace('name="date"', 'name="released"'), "utf-8")
    monkeypatch.setattr(netron_view, "PAGES", tmp_path)
    with pytest.raises(RuntimeError, match="another page than this course knows"):
        view(tiny[0])
