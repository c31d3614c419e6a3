"""A real HTTP server that speaks the wire format of chat completions and answers by a script."""

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(*spans, usage=(100, 20), finish="stop"):
    """A proper answer that names these stretches."""
    content = json.dumps({"spans": [{"text": span, "reason": f"no {span}"} for span in spans]}, ensure_ascii=False)
    return says(content, usage, finish)


def says(content, usage=(100, 20), finish="stop"):
    """An answer with this content, whatever it is."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "judge",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}],
    }
    if usage is not None:
        read, written = usage
        body["usage"] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return 200, body


def refuses(status, message="no", **more):
    """An error as such servers send it."""
    return status, {"error": {"message": message, "type": "error", "param": None, "code": None} | more}


@dataclass
class Script:
    """What the server does: ``reply(request)`` returns (status, body), sleeps or anything else."""

    reply: object
    requests: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: int = 0
    most_running: int = 0

    def material(self, index=-1):
        """The user message of a request."""
        return self.requests[index]["messages"][1]["content"]


@contextlib.contextmanager
def judge_server(reply):
    """Run a server; ``reply`` is a function of the request, or a list of replies in order (the last repeats)."""
    if isinstance(reply, list):
        replies = list(reply)

        def in_order(request):
            return replies.pop(0) if len(replies) > 1 else replies[0]

        script = Script(in_order)
    else:
        script = Script(reply)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with script.lock:
                script.requests.append(request | {"path": self.path})
                script.headers.append({name.lower(): value for name, value in self.headers.items()})
                script.running += 1
                script.most_running = max(script.most_running, script.running)
                found = script.reply(request)
            if callable(found):
                found = found()
            with script.lock:
                script.running -= 1
            status, body = found
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            with contextlib.suppress(ConnectionError):  # a client that timed out has gone
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if isinstance(body, str) else "application/json")
                self.send_header("Content-Length", str(len(raw)))
                if status in (429, 500, 503):
                    self.send_header("retry-after-ms", "10")
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def slow(seconds, reply):
    """A reply that comes late."""

    def wait():
        time.sleep(seconds)
        return reply

    return wait
