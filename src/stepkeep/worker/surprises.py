"""What user code raised without meaning to, told with its traceback: a run keeps one line of it, which names no place.

Only for errors that nothing explains. A refused connection, an HTTP status, `fail` and `retry_in` say enough by
themselves. Whoever calls handlers calls this, on the handler's side, where the traceback still is.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType

from stepkeep.errors import ExpressionError
from stepkeep.kernel.outcomes import Failed, Outcome
from stepkeep.kernel.states import Category
from stepkeep.worker.answers import StepError
from stepkeep.worker.classify import BindingError
from stepkeep.worker.payloads import Unstorable

log = logging.getLogger("stepkeep.handler")

_EXPLAINED = (StepError, BindingError, Unstorable, ExpressionError)
_OURS = f"{Path(__file__).parent.parent}/"


def tell(problem: BaseException, outcome: Outcome, whose: str, otherwise: Category = Category.UNKNOWN) -> None:
    """Log an exception that became this outcome, unless the outcome explains it. `whose` names the step or handler."""
    if isinstance(problem, _EXPLAINED) or not isinstance(outcome, Failed) or outcome.category is not otherwise:
        return
    trace = users_part(problem.__traceback__)
    log.warning("%s raised %s", whose, type(problem).__name__, exc_info=(type(problem), problem, trace))


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from where user code begins; the whole of it when it never does."""
    theirs = trace
    while theirs is not None and theirs.tb_frame.f_code.co_filename.startswith(_OURS):
        theirs = theirs.tb_next
    return theirs or trace
