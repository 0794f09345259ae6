"""Handlers are plain functions with a name in a registry; loading them never shows a traceback."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepkeep.definition.native.reader import check_text
from stepkeep.definition.python.handlers import HandlerSpec, Registry, Retry, agent, default_registry, load_app, step
from stepkeep.definition.python.registry import read_signature
from stepkeep.kernel.definition import Backoff, Effect
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, Category


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_bare_decorator_registers_a_function_under_its_own_name() -> None:
    @step
    def handler_registered_bare(n: int) -> int:
        return n + 1

    spec = default_registry.get("handler_registered_bare")
    assert spec is not None
    assert spec.function is handler_registered_bare
    assert handler_registered_bare(1) == 2


def test_a_decorator_may_give_another_name_and_defaults(registry: Registry) -> None:
    @step("accounts.deactivate", registry=registry)
    def deactivate(account: str) -> None: ...

    @step(
        "accounts.create",
        retry=Retry(max_attempts=5, on=["transient"]),
        timeout="30s",
        undo=deactivate,
        effect="irreversible",
        capabilities=["crm"],
        registry=registry,
    )
    async def create(ctx: Any, email: str) -> dict[str, str]:
        """Open an account.

        With more to say.
        """
        return {"email": email}

    spec = registry.get("accounts.create")
    assert spec is not None
    assert spec.retry is not None
    assert (spec.retry.max_attempts, spec.retry.on) == (5, (Category.TRANSIENT,))
    assert spec.timeout == 30_000_000
    assert spec.undo == "accounts.deactivate"
    assert spec.effect is Effect.IRREVERSIBLE
    assert spec.capabilities == ("crm",)
    assert spec.runs_in == "async"
    assert spec.description == "Open an account."


def test_an_undo_that_was_not_decorated_is_registered_under_its_own_name(registry: Registry) -> None:
    def take_back() -> None: ...

    @step(undo=take_back, registry=registry)
    def give() -> None: ...

    assert registry.names == ("give", "take_back")


def test_agents_have_names_of_their_own(registry: Registry) -> None:
    @step("data-pipeline", registry=registry)
    def plain() -> None: ...

    @agent("data-pipeline", registry=registry)
    async def pipeline(ctx: Any, action: str, inputs: dict[str, Any]) -> None: ...

    assert registry.agents == ("data-pipeline",)
    spec = registry.agent("data-pipeline")
    assert spec is not None
    assert spec.function is pipeline


def test_a_second_function_cannot_take_a_name(registry: Registry) -> None:
    @step("mail.send", registry=registry)
    def one() -> None: ...

    with pytest.raises(InvalidInput, match=r"handler mail\.send is already .*one; .*other cannot be it too"):

        @step("mail.send", registry=registry)
        def other() -> None: ...

    spec = registry.get("mail.send")
    assert spec is not None
    assert spec.function is one


def test_handlers_made_by_one_factory_are_not_the_same_function(registry: Registry) -> None:
    def make(n: int) -> None:
        @step("made", registry=registry)
        def made() -> int:
            return n

    make(1)
    with pytest.raises(InvalidInput, match="already"):
        make(2)


def test_the_same_module_may_be_loaded_twice(registry: Registry) -> None:
    source = compile("def send(): ...", "mail.py", "exec")
    for _ in range(2):
        names: dict[str, Any] = {}
        exec(source, names)
        step("mail.send", registry=registry)(names["send"])
    assert registry.names == ("mail.send",)


def test_a_name_that_was_nearly_right_is_found(registry: Registry) -> None:
    registry.register(HandlerSpec(name="accounts.create", function=print))
    assert registry.nearest("account.create") == "accounts.create"
    assert registry.nearest("Accounts.Create") == "accounts.create"
    assert registry.nearest("nothing like it") is None


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 200, "ü"])
def test_a_name_that_definitions_could_not_write_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a handler"):
        registry.register(HandlerSpec(name=name, function=print))


def test_a_lambda_needs_a_name(registry: Registry) -> None:
    with pytest.raises(InvalidInput, match="no name of its own"):
        step(registry=registry)(lambda: None)


def test_mode_must_suit_the_function(registry: Registry) -> None:
    def plain() -> None: ...

    async def asynchronous() -> None: ...

    assert HandlerSpec(name="p", function=plain).runs_in == "thread"
    with pytest.raises(InvalidInput, match="needs an `async def`"):
        registry.register(HandlerSpec(name="p", function=plain, mode="async"))
    with pytest.raises(InvalidInput, match="cannot run as"):
        registry.register(HandlerSpec(name="a", function=asynchronous, mode="process"))


class TestRetry:
    def test_defaults_are_the_kernels(self) -> None:
        retry = Retry().to_kernel()
        assert retry.max_attempts == 3
        assert retry.backoff is Backoff.EXPONENTIAL
        assert (retry.initial, retry.max) == (1_000_000, 30_000_000)
        assert set(retry.on) == RETRIED_BY_DEFAULT

    def test_durations_may_be_timedeltas_and_the_cap_may_be_absent(self) -> None:
        retry = Retry(initial=timedelta(milliseconds=250), max=None).to_kernel()
        assert (retry.initial, retry.max) == (250_000, None)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"max_attempts": 0}, "from 1 to 10"),
            ({"max_attempts": 10_001}, "from 1 to 10000"),
            ({"max_elapsed": "0s"}, "max_elapsed is out of bounds"),
            ({"max_attempts": True}, "whole number"),
            ({"backoff": "sometimes"}, "constant, linear or exponential"),
            ({"initial": 5}, "no unit"),
            ({"initial": "soon"}, "not a duration"),
            ({"max": "30d"}, "out of bounds"),
            ({"factor": 0.5}, "factor"),
            ({"jitter": 2}, "jitter"),
            ({"on": ["cosmic"]}, "no error category"),
            ({"on": ["validation"]}, "never retried"),
        ],
    )
    def test_what_is_out_of_bounds_is_refused_where_it_is_written(self, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidInput, match=said):
            Retry(**wrong)


class TestArguments:
    """Inputs reach a function by its signature."""

    def test_fields_without_a_parameter_are_left_out(self) -> None:
        def create(ctx: object, email: str, plan: str = "free") -> None: ...

        taken = read_signature(create)
        assert taken.arguments("CTX", {"email": "a@b.c", "region": "eu"}) == (("CTX",), {"email": "a@b.c"})
        assert taken.missing({}) == ["email"]
        assert taken.unknown({"email": 1, "region": 2}) == ["region"]

    def test_a_function_without_context_gets_none(self) -> None:
        def add(a: int, b: int) -> int:
            return a + b

        assert read_signature(add).arguments("CTX", {"a": 1, "b": 2}) == ((), {"a": 1, "b": 2})

    def test_a_function_that_takes_anything_gets_everything(self) -> None:
        def keep(**inputs: object) -> None: ...

        assert read_signature(keep).arguments(None, {"x": 1}) == ((), {"x": 1})

    def test_a_value_that_is_no_object_goes_to_the_one_parameter(self) -> None:
        def total(ctx: object, numbers: list[int]) -> int:
            return sum(numbers)

        assert read_signature(total).arguments("CTX", [1, 2]) == (("CTX", [1, 2]), {})


class TestLoadApp:
    @pytest.fixture(autouse=True)
    def _clean_imports(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "modules", dict(sys.modules))
        monkeypatch.chdir(tmp_path)

    def test_a_file_is_imported_with_its_neighbours(self, tmp_path: Path) -> None:
        (tmp_path / "neighbour_of_app.py").write_text("word = 'here'\n")
        (tmp_path / "some_app.py").write_text("from neighbour_of_app import word\n")
        assert load_app(str(tmp_path / "some_app.py")).word == "here"

    def test_a_module_in_the_current_directory_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "local_app.py").write_text("word = 'local'\n")
        assert load_app("local_app").word == "local"

    def test_a_file_named_like_a_known_module_is_kept_apart(self, tmp_path: Path) -> None:
        (tmp_path / "json.py").write_text("word = 'mine'\n")
        module = load_app("./json.py")
        assert module.word == "mine"
        assert module is not sys.modules["json"]
        assert load_app("./json.py") is module

    def test_loading_twice_imports_once(self, tmp_path: Path) -> None:
        (tmp_path / "once_app.py").write_text("from stepkeep.definition.python.handlers import step\n")
        assert load_app("once_app.py") is load_app("once_app.py")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("x = 1\ny = missing\n", r"NameError: name 'missing' is not defined \(bad_app\.py, line 2\)"),
            ("def f(:\n", r"SyntaxError: invalid syntax \(bad_app\.py, line 1\)"),
            (
                "import no_such_thing_at_all\n",
                r"ModuleNotFoundError: .*no_such_thing_at_all.* \(bad_app\.py, line 1\)",
            ),
            ("raise SystemExit(3)\n", r"ended the program \(SystemExit 3\) \(bad_app\.py, line 1\)"),
            (
                "from stepkeep.definition.python.handlers import Retry\n\nRetry(max_attempts=0)\n",
                r"max_attempts must be .* \(bad_app\.py, line 3\)",
            ),
        ],
    )
    def test_an_error_in_user_code_is_told_in_one_line(self, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "bad_app.py").write_text(text)
        with pytest.raises(InvalidInput, match=said) as caught:
            load_app("./bad_app.py")
        assert "\n" not in str(caught.value)
        assert caught.value.__suppress_context__

    def test_what_is_not_there_is_said_to_be_missing(self) -> None:
        with pytest.raises(InvalidInput, match=r"there is no file nowhere\.py"):
            load_app("nowhere.py")
        with pytest.raises(InvalidInput, match=r"there is no module no\.such\.module"):
            load_app("no.such.module")


def test_a_parameter_that_the_declared_input_does_not_have_is_a_problem() -> None:
    registry = Registry()

    @step("stock.reserve", registry=registry)
    def reserve(order_id: str, items: int = 1) -> None: ...

    text = "{workflow: w, timeout: 1h, input: [%s], steps: [{name: a, uses: stock.reserve, timeout: 1m}]}"
    report = check_text(text % "order", "w.yaml", registry)
    assert [one.message for one in report.problems] == [
        "Handler `stock.reserve` needs `order_id`, and the declared input has no such field."
    ]
    assert check_text(text % "order_id", "w.yaml", registry).problems == ()
