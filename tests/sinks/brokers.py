"""Real Redis and NATS servers on the loopback, started for a test and ended by their process id."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.system_programs import need_program

START_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """One server with a data directory, which survives a kill."""

    def __init__(self, argv: list[str], port: int, log: Path) -> None:
        self._argv, self.port, self._log = argv, port, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise AssertionError(f"the server did not start: {self._log.read_text()[-500:]}")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def redis_server(folder: Path, password: str) -> Broker:
    port = free_port()
    written = f"--bind 127.0.0.1 --port {port} --dir {folder} --appendonly yes --appendfsync always --save".split()
    argv = [need_program("redis-server"), *written, "", "--requirepass", password]
    return Broker(argv, port, folder / "redis.log")


def nats_server(folder: Path, password: str) -> Broker:
    port = free_port()
    argv = [need_program("nats-server"), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    return Broker([*argv, "--user", "stepkeep", "--pass", password], port, folder / "nats.log")
