"""A small server that speaks vLLM's endpoints and can be told to misbehave. Standard library only: it also runs as a program.

As a program it takes vLLM's own arguments, of which it reads --model and --port. STAND_IN_FAULTS names its faults:
"wrong after reload", "dies after N", "never answers", "ends at once", "leaves a session".
"""

import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

VOCABULARY = 32
EOS = 2


class Uniform:
    """A policy whose every token has the probability 1 / VOCABULARY; ``error`` is added to what it says of them, in nats."""

    def __init__(self, error=0.0):
        self.error = error

    def __call__(self, body):
        source = random.Random(body["seed"])
        ids = []
        while len(ids) < body["max_tokens"] and (not ids or ids[-1] not in body["stop_token_ids"]):
            ids.append(source.randrange(3, VOCABULARY))
        reason = "stop" if ids[-1] in body["stop_token_ids"] else "length"
        return ids, [-math.log(VOCABULARY) + self.error] * len(ids), reason


class StandIn:
    """A server on a port of 127.0.0.1, in threads of this process, over ``load(folder)``: body -> (ids, logprobs, reason).

    Faults, all off: ``dies_after`` completions (the next one is cut off in the middle), ``mangle`` (changes an answer),
    ``hangs`` (an event to wait for), ``status`` (of completions), ``takes_weights`` and ``forgets_prefixes`` (False: says
    yes and does not), ``says_reset``.
    """

    def __init__(self, folder, load, port=0, context=64):
        self.load, self.policy, self.context = load, load(folder), context
        self.version = "default"
        self.calls, self.bodies, self.prefixes = [], [], {}
        self.dies_after = self.mangle = self.hangs = self.status = None
        self.takes_weights = self.forgets_prefixes = self.says_reset = True
        self.seconds_per_answer = 0.0
        self.at_once = self.most_at_once = 0
        self.is_dead = self.is_asleep = False
        self._lock = threading.Lock()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                stand_in.handle(self, None)

            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                stand_in.handle(self, json.loads(self.rfile.read(length) or b"{}"))

            def log_message(self, *_):
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # a client that went away is no news
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        if not self.is_dead:
            self.is_dead = True
            self._server.shutdown()
            self._server.server_close()

    def handle(self, handler, body):
        path = urlsplit(handler.path).path
        with self._lock:
            self.calls.append(path)
        if self.is_dead:
            handler.close_connection = True
            return
        found = getattr(self, "do" + path.replace("/", "_"), None)
        status, answer = (404, {"detail": "Not Found"}) if found is None else found(body)
        self.send(handler, status, answer)

    def send(self, handler, status, answer):
        payload = json.dumps(answer).encode()
        if self.is_dead:  # between the question and the answer
            payload, length = payload[: len(payload) // 2], len(payload)
            handler.close_connection = True
        else:
            length = len(payload)
        handler.send_response(status)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write(payload)

    def do_health(self, _):
        return 200, {}

    def do_v1_models(self, _):
        return 200, {"data": [{"id": "policy", "max_model_len": self.context}]}

    def do_weight_info(self, _):
        return 200, {"weight_version": self.version}

    def do_update_weight_version(self, body):
        self.version = body["new_version"]
        return 200, {"success": True}

    def do_reset_prefix_cache(self, _):
        if self.forgets_prefixes:
            self.prefixes.clear()
        return 200, {"success": self.says_reset}

    def do_collective_rpc(self, body):
        self.calls[-1] += f"#{body['method']}"
        if self.takes_weights:
            self.policy = self.load(body["kwargs"]["weights_path"])
        return 200, {"results": [None]}

    def do_is_sleeping(self, _):
        return 200, {"is_sleeping": self.is_asleep}

    def do_sleep(self, _):
        self.is_asleep = True
        return 200, {}

    def do_wake_up(self, _):
        self.is_asleep = False
        return 200, {}

    def do_v1_completions(self, body):
        with self._lock:
            self.bodies.append(body)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            number = len(self.bodies)
        try:
            if self.dies_after is not None and number > self.dies_after:
                self.close()
            if self.hangs is not None:
                self.hangs.wait(20)
            time.sleep(self.seconds_per_answer)
            if self.is_asleep:
                return 500, {"error": {"message": "asleep"}}
            if self.status is not None:
                return self.status, {"error": {"message": f"status {self.status} was asked for"}}
            # A prefix cache that is keyed by the prompt alone: what is in it answers with the weights of its time.
            policy = self.prefixes.setdefault(tuple(body["prompt"]), self.policy)
            return 200, self.answer(number, *policy(body))
        finally:
            with self._lock:
                self.at_once -= 1

    def answer(self, number, ids, logprobs, reason):
        tokens = [f"token_id:{token}" for token in ids]
        choice = {
            "index": 0,
            "text": "",
            "token_ids": list(ids),
            "finish_reason": reason,
            "stop_reason": None,
            "logprobs": {
                "tokens": tokens,
                "token_logprobs": list(logprobs),
                "top_logprobs": [{token: value} for token, value in zip(tokens, logprobs, strict=True)],
            },
        }
        answer = {"choices": [choice]}
        if self.mangle is not None:
            self.mangle(number, answer)
        return answer


def main():
    arguments = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    faults = os.environ.get("STAND_IN_FAULTS", "")
    print("arguments", json.dumps(sys.argv[1:]), flush=True)
    print("environment", json.dumps({name: os.environ.get(name) for name in ("VLLM_SERVER_DEV_MODE", "PYTHONPATH")}))
    if "leaves a session" in faults:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
        print("grandchild", child.pid, flush=True)
    if "ends at once" in faults:
        sys.exit(3)
    if "never answers" in faults:
        time.sleep(300)
    starts = 0

    def load(folder):
        nonlocal starts
        starts += 1
        return Uniform(error=1.0 if starts > 1 and "wrong after reload" in faults else 0.0)

    server = StandIn(arguments["--model"], load, int(arguments["--port"]))
    if "dies after" in faults:
        last = int(faults.partition("dies after ")[2].split()[0])

        def exit_instead(number, answer):
            if number > last:
                os._exit(9)

        server.mangle = exit_instead
    threading.Event().wait()


if __name__ == "__main__":
    main()
