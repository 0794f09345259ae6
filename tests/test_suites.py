"""`make test` runs a test of both stores on both, and a slow one on PostgreSQL alone, which `make proof` completes."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def ran(pytester: pytest.Pytester, *options: str) -> set[str]:
    passed, skipped, failed = pytester.inline_run(*options).listoutcomes()
    assert not skipped
    assert not failed
    return {report.nodeid.partition("::")[2] for report in passed}


def test_a_slow_test_of_both_stores_runs_on_one_of_them(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest
        from tests.suites import halve

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            halve(items, {"test_stores.py::test_slow", "test_stores.py::test_slow_of_one"})
    """)
    pytester.makeini("[pytest]\nmarkers = proof: long")
    pytester.makepyfile(
        test_stores="""
            import pytest

            both = pytest.mark.parametrize("store", ["sqlite", "postgres"])

            @both
            def test_quick(store):
                pass

            @both
            def test_slow(store):
                pass

            @pytest.mark.parametrize("store", ["sqlite"])
            def test_slow_of_one(store):
                pass
        """
    )
    quick = {"test_quick[sqlite]", "test_quick[postgres]"}
    assert ran(pytester, "-m", "not proof") == quick | {"test_slow[postgres]", "test_slow_of_one[sqlite]"}
    assert ran(pytester, "-m", "proof") == {"test_slow[sqlite]"}
    assert ran(pytester, "-m", "not proof", "test_stores.py::test_slow[sqlite]") == {"test_slow[sqlite]"}
