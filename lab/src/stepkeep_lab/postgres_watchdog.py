"""Stops a PostgreSQL server whose owner died, and removes its files.

``PostgresServer`` starts this file as a program of its own and keeps a pipe to it open. It must not import
anything outside the standard library: it runs isolated, so that it is up before the server is.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

GOODBYE = b"stopped"

PATIENCE_SECONDS = 10.0
POLL_SECONDS = 0.05


def main(directory: Path, data_directory: Path) -> None:
    """Wait until the owner says goodbye or is gone; in the second case, clean up after it."""
    # The owner never writes anything but its goodbye, so the end of the stream without one means it died.
    if sys.stdin.buffer.read() == GOODBYE:
        return
    stop_orphan(data_directory)
    remove_directory(directory)


def stop_orphan(data_directory: Path) -> None:
    """Take the server down: politely first, then without ceremony."""
    for stop_signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        # Read anew each time: the number in the file is the only proof that the process is still this server.
        pid = postmaster_pid(data_directory)
        if pid is None or not send(pid, stop_signal):
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and send(pid, 0):
            time.sleep(POLL_SECONDS)


def postmaster_pid(data_directory: Path) -> int | None:
    """The server's process id, if the data directory names one and that process really is its server."""
    try:
        pid = int((data_directory / "postmaster.pid").read_text().partition("\n")[0])
    except (OSError, ValueError):
        return None
    working_directory = Path(f"/proc/{pid}/cwd")
    if Path("/proc/self").exists():
        # A killed server leaves its file behind, and the system may have given its number to someone else.
        try:
            if working_directory.resolve(strict=True) != data_directory.resolve():
                return None
        except OSError:
            return None
    return pid


def send(pid: int, number: int) -> bool:
    """Send a signal; false when there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def remove_directory(directory: Path) -> None:
    """Remove the server's files, again and again while an unfinished initdb still writes some."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
