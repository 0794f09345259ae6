"""Prepares standard streams and logs of the program, so that what others wrote cannot steer a terminal."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from stepkeep.cli.printer import warn
from stepkeep.edges.safe_text import exception_text, inert_line, type_name
from stepkeep.edges.secret_values import KNOWN
from stepkeep.kernel.errors import InvalidInput


def prepare_streams() -> None:
    """Make the standard streams usable whatever the parent process has left of them."""
    _open_closed_streams()
    _tolerate_narrow_encodings()
    install_last_resort()
    sys.unraisablehook = lambda found: _log_error(found.exc_value, f"ignored in {type(found.object).__name__}")
    threading.excepthook = lambda found: _log_error(
        found.exc_value, f"in thread {found.thread.name if found.thread is not None else '?'}"
    )
    warnings.showwarning = _show_warning


def discard_output() -> None:
    """Discard buffered output, so that the interpreter ends without an error."""
    with suppress(OSError, ValueError, AttributeError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


def _open_closed_streams() -> None:
    """Give 0, 1 and 2 to the null device where they are closed; else the next file that is opened would be one of them.

    That file could be the database, and what is printed would go into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _tolerate_narrow_encodings() -> None:
    """A terminal that cannot show a character shows a question mark, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _log_error(error: BaseException | None, where: str) -> None:
    if error is None:
        return
    warn(f"an error {where}:")
    for line in traceback_lines(error):
        warn(line)


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    warn(f"{filename}:{lineno}: {category.__name__}: {message}")


UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class _Unused:
    """Stands for a class that the help of this program never uses."""

    def __init__(self, *given: Any, **named: Any) -> None:
        raise TypeError("help is written as plain text")


def prepare_help() -> None:
    """Import typer's help with empty modules in place of those that it does not need: rich's Markdown and Traceback
    bring two parsers, and commands write plain text."""
    absent = [name for name in UNUSED if name not in sys.modules]
    for name in absent:
        module = ModuleType(name)
        setattr(module, UNUSED[name], _Unused)
        sys.modules[name] = module
    try:
        import typer.rich_utils  # noqa: F401 - imported here, so that typer finds it
    finally:
        for name in absent:
            del sys.modules[name]


INDENT = "    "
LONGEST_TRACEBACK = 200
"""Lines of a traceback that are shown: half of them from its beginning, half from its end."""


class InertFormatter(logging.Formatter):
    """Formats any record without raising."""

    def format(self, record: logging.LogRecord) -> str:
        about = " ".join(f"{name} {value}" for name, value in _about(record).items() if name not in IN_MESSAGE)
        record.message = _message(record) + (f" [{about}]" if about else "")
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        return KNOWN.hide("\n".join([inert_line(self.formatMessage(record)), *_trace(record)]))


def _trace(record: logging.LogRecord) -> Iterator[str]:
    """The traceback and the stack of a record, indented."""
    if record.exc_info and record.exc_info[1] is not None:
        yield from traceback_lines(record.exc_info[1])
    if record.stack_info:
        yield from (f"{INDENT}{inert_line(line)}" for line in str(record.stack_info).split("\n"))


class JsonFormatter(InertFormatter):
    """One JSON object per record: time, level, logger, message, `FIELDS`, request and traceback, as far as known."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        said: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": inert_line(_message(record)),
            **_about(record),
        }
        trace = list(_trace(record))
        if trace:
            said["traceback"] = "\n".join(trace)
        return KNOWN.hide(msgspec.json.encode(said).decode())


FORMATS = {
    "text": InertFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"),
    "json": JsonFormatter(),
}
FIELDS = {
    "run_id": "run",
    "step": "step",
    "attempt": "attempt",
    "method": "method",
    "route": "route",
    "status": "status",
    "duration_ms": "duration_ms",
    "tenant": "tenant",
    "actor": "actor",
}
"""Attributes of a record, and their names in a line."""

IN_MESSAGE = frozenset({"method", "route", "status", "duration_ms"})
"""Fields that the text of a line has already."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
LEVELS = ("debug", "info", "warning", "error")


def install_log(level: str, form: str = "text") -> None:
    """Log to standard error from this level on, unless the program that embeds the command line logs already."""
    if level not in LEVELS:
        raise InvalidInput(f"--log-level takes one of {', '.join(LEVELS)}, not {inert_line(level, 40)!r}.")
    if form not in FORMATS:
        raise InvalidInput(f"--log-format takes {' or '.join(FORMATS)}, not {inert_line(form, 40)!r}.")
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form])
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        # A remote worker asks several times a second.
        logging.getLogger("httpx2").setLevel(logging.WARNING)


def _about(record: logging.LogRecord) -> dict[str, object]:
    """Which attempt a record is about, where it says so."""
    found = {told: getattr(record, name, None) for name, told in FIELDS.items()}
    audit = sys.modules.get("stepkeep.operations.people.audit")  # loaded wherever there are requests
    asked = None if audit is None else audit.REQUEST.get()
    if asked is not None:
        found["request"] = asked.request_id
    return {
        told: inert_line(value, 200) if isinstance(value, str) else value
        for told, value in found.items()
        if type(value) in (str, int, float)
    }


def install_last_resort() -> None:
    """Escape what the logging module prints where no handler is installed: warnings and errors."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(InertFormatter("%(message)s"))


def traceback_lines(error: BaseException) -> Iterator[str]:
    """An exception's traceback, line by line, escaped; where it cannot be formatted, its type and message."""
    try:
        lines = "".join(traceback.format_exception(error)).rstrip().split("\n")
    except BaseException:  # noqa: BLE001 - user code: `__str__`, `__cause__` and `__notes__` may do anything
        lines = [exception_text(error)]
    if len(lines) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        lines = [*lines[:half], f"… ({len(lines) - 2 * half:,} more lines)", *lines[-half:]]
    # Indented, because the message of an exception may have lines that look like ours.
    yield from (f"{INDENT}{inert_line(line)}" for line in lines)


def _message(record: logging.LogRecord) -> str:
    try:
        # A plain str: `__str__` may return a subclass with methods of its own.
        return str.__add__("", record.getMessage())
    except BaseException as problem:  # noqa: BLE001 - arguments of a record are user code
        wording = record.msg if type(record.msg) is str else ""
        return f"(a message that cannot be formatted: {type_name(problem)}) {wording}"


def install_tracing(service: str) -> None:
    """Send spans to the collector that the environment names. `OTEL_SERVICE_NAME` replaces the name of the service."""
    named = [name for name in ENDPOINTS if os.environ.get(name)]
    if not named or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        warn(f"{named[0]} is set, but no spans are sent: pip install 'stepkeep[otel]'")
        return
    about = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
