"""A server that answers the /classify schema with a known delay and known mistakes: the truth of the load tests.

Runs as its own process (``python scripted_server.py --port N ...``) and imports nothing of ours.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time

CLASSIFY = "/classify"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--slow-first", type=int, default=0, help="the first N answers take 10 times as long")
    parser.add_argument("--fail-every", type=int, default=0, help="each Nth answer is a 500")
    parser.add_argument("--refuse-every", type=int, default=0, help="each Nth answer is a 429")
    parser.add_argument("--wrong-every", type=int, default=0, help="each Nth answer is a 200 without results")
    parser.add_argument("--slots", type=int, default=0, help="answers at a time; the others wait")
    parser.add_argument("--tail-every", type=int, default=0, help="each Nth answer takes --tail-ms instead")
    parser.add_argument("--tail-ms", type=float, default=0)
    parser.add_argument("--other-label-every", type=int, default=0, help="each Nth answer has label b")
    parser.add_argument("--freeze-after-s", type=float, default=0, help="counted from the first text")
    parser.add_argument("--freeze-for-s", type=float, default=0)
    parser.add_argument("--ready-after-s", type=float, default=0)
    parser.add_argument("--tell-time", action="store_true", help="x-total-ms is the true time, else 2.5")
    parser.add_argument("--die", default="", help="say this and exit with code 3")
    parser.add_argument("--die-after", type=int, default=0, help="exit with code 3 at answer N")
    parser.add_argument("--ignore-sigterm", action="store_true")
    return parser.parse_args()


class Server:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.started = time.monotonic()
        self.answers = 0
        self.thaw = 0.0
        self.slots = asyncio.Semaphore(options.slots or 1_000_000)

    async def answer(self, path: str, body: bytes) -> tuple[int, dict, dict]:
        options = self.options
        if path == "/readyz":
            ready = time.monotonic() - self.started >= options.ready_after_s
            return (200 if ready else 503), {}, {}
        if path != CLASSIFY:
            return 404, {}, {}
        self.answers += 1
        number = self.answers
        if options.die_after and number >= options.die_after:
            print("out of memory, dying", flush=True)
            os._exit(3)
        text = json.loads(body)["inputs"]
        began = time.monotonic()
        if number == 1:
            self.thaw = began + options.freeze_after_s + options.freeze_for_s
        tail = options.tail_every and number % options.tail_every == 0
        delay_ms = options.tail_ms if tail else options.delay_ms * (10 if number <= options.slow_first else 1)
        async with self.slots:
            await asyncio.sleep(delay_ms / 1000)
        if options.freeze_for_s and self.thaw - options.freeze_for_s <= time.monotonic() < self.thaw:
            await asyncio.sleep(self.thaw - time.monotonic())
        if options.fail_every and number % options.fail_every == 0:
            return 500, {"error": {"type": "EngineFailure"}}, {}
        if options.refuse_every and number % options.refuse_every == 0:
            return 429, {"error": {"type": "Overloaded"}}, {}
        tokens = len(text.split()) + 2
        other = options.other_label_every and number % options.other_label_every == 0
        first, second = "ba" if other else "ab"
        scores = [{"label": first, "score": 0.75}, {"label": second, "score": 0.25}]
        result = {"label": first, "score": 0.75, "scores": scores, "truncated": False, "tokens": tokens}
        results = [] if options.wrong_every and number % options.wrong_every == 0 else [result]
        stages = {"x-tokenize-ms": "0.25", "x-queue-ms": "0.5", "x-engine-ms": "1.5"}
        stages["x-total-ms"] = str(1000 * (time.monotonic() - began)) if options.tell_time else "2.5"
        return 200, {"results": results, "usage": {"texts": 1, "tokens": tokens}}, stages

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                status, content, headers = await self.answer(head.split(" ")[1], body)
                data = json.dumps(content).encode()
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}", "content-type: application/json"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def serve(options: argparse.Namespace) -> None:
    if options.die:
        print(options.die, file=sys.stderr, flush=True)
        sys.exit(3)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if options.ignore_sigterm else stop.set)
    server = await asyncio.start_server(Server(options).connection, "127.0.0.1", options.port)
    print("listening", flush=True)
    async with server:
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(arguments()))
