"""Another web site on this machine, which wants something of the daemon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>another site</title><body></body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def other_site() -> Iterator[int]:
    """Serve an empty page on a port of its own until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ATTEMPTS = """
async (daemon) => {
  const api = `${daemon}/api/v1`;
  const json = { "Content-Type": "application/json" };
  const page = { ...json, "X-Amplifier-Page": "1" };
  const body = JSON.stringify({ name: "stolen", scope: "admin" });
  const settled = (work) => Promise.race([work, new Promise((done) => setTimeout(done, 20_000, "nothing"))]);

  const fetched = (path, options) => fetch(path, { credentials: "include", ...options })
    .then((answer) => (answer.type === "opaque" ? "opaque" : `read ${answer.status}`), () => "refused");

  const element = (tag, name, value) => new Promise((done) => {
    const made = document.createElement(tag);
    made.onload = () => done("loaded");
    made.onerror = () => done("refused");
    made[name] = value;
    if (tag === "link") made.rel = "stylesheet";
    document.body.append(made);
  });

  const stream = (path, options) => new Promise((done) => {
    const source = new EventSource(path, options);
    source.onopen = () => { source.close(); done("open"); };
    source.onerror = () => { source.close(); done("refused"); };
  });

  const socket = (path) => new Promise((done) => {
    const made = new WebSocket(path.replace("http", "ws"));
    made.onopen = () => done("open");
    made.onerror = () => done("refused");
  });

  const framed = () => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = `${daemon}/app/`;
    frame.name = "framed";
    frame.onload = () => {
      try { done(frame.contentWindow.document.title ? "read" : "empty"); } catch { done("refused"); }
    };
    document.body.append(frame);
  });

  const opened = () => {
    try {
      const tab = window.open(`${daemon}/app/`);
      return tab && tab.document.cookie !== undefined && tab.location.href !== "about:blank" ? "read" : "empty";
    } catch { return "refused"; }
  };

  const attempts = {
    "read": () => fetched(`${api}/auth/me`),
    "read without asking": () => fetched(`${api}/sessions`, { mode: "no-cors" }),
    "read with the header": () => fetched(`${api}/sessions`, { headers: page }),
    "create": () => fetched(`${api}/tokens`, { method: "POST", headers: json, body }),
    "create with the header": () => fetched(`${api}/tokens`, { method: "POST", headers: page, body }),
    "create without asking": () => fetched(`${api}/tokens`, { method: "POST", mode: "no-cors", body }),
    "create as a form": () => fetched(`${api}/tokens`, { method: "POST", body: new URLSearchParams("name=stolen") }),
    "delete": () => fetched(`${api}/tokens/default`, { method: "DELETE" }),
    "log in": () => fetched(`${daemon}/auth/login`, { method: "POST", headers: json, body: '{"token": "x"}' }),
    "log out": () => fetched(`${daemon}/auth/logout`, { method: "POST", mode: "no-cors" }),
    "beacon": () => (navigator.sendBeacon(`${daemon}/auth/logout`, ""), "sent"),
    "script": () => element("script", "src", `${api}/sessions`),
    "image": () => element("img", "src", `${api}/auth/me`),
    "style": () => element("link", "href", `${api}/auth/me`),
    "file of the page": () => element("img", "src", `${daemon}/app/icon.svg`),
    "stream": () => stream(`${api}/events`),
    "stream with the cookie": () => stream(`${api}/events`, { withCredentials: true }),
    "socket": () => socket(`${api}/events`),
    "frame": framed,
    "window": opened,
  };
  const found = {};
  for (const [name, attempt] of Object.entries(attempts)) found[name] = await settled(attempt());
  return found;
}
"""

SEND_A_FORM = """
([daemon, type]) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "POST", action: `${daemon}/api/v1/tokens`, enctype: type });
  const field = document.createElement("input");
  Object.assign(field, { name: '{"name": "stolen", "scope": "admin", "x": "', value: '"}' });
  form.append(field);
  document.body.append(form);
  form.submit();
}
"""
