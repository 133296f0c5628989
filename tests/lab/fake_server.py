"""A program that speaks llama-server's protocol, or fails to in one of the ways that peers have."""

import sys
from pathlib import Path

_SOURCE = """#!{python}
import http.server, json, sys, time

behaviour = {behaviour!r}
port = int(sys.argv[sys.argv.index("--port") + 1])
print("llama_server: starting", file=sys.stderr, flush=True)
if behaviour == "ends":
    print("error: invalid argument: --spec-type", file=sys.stderr)
    print("bye", file=sys.stderr)
    sys.exit(1)
if behaviour == "hangs":
    time.sleep(60)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(503 if behaviour == "loads" else 200)
        self.end_headers()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if behaviour == "refuses":
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b'{{"error": "the prompt is too long"}}')
            return
        self.send_response(200)
        self.end_headers()
        for token in range(request["n_predict"]):
            if behaviour == "breaks off" and token == 2:
                return
            self.say({{"content": "x", "tokens": [token], "stop": False}})
        figures = {{"prompt_ms": 250.0, "draft_n": 10, "draft_n_accepted": 7}}
        ended = request["n_predict"] + (behaviour == "eog")
        self.say({{"tokens": [], "stop": True, "tokens_predicted": ended, "timings": figures,
                  "request": request, "argv": sys.argv}})

    def say(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\\n\\n")
        self.wfile.flush()


http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def fake_server(directory: Path, behaviour: str = "answers") -> Path:
    path = directory / "llama-server"
    path.write_text(_SOURCE.format(python=sys.executable, behaviour=behaviour))
    path.chmod(0o755)
    return path
