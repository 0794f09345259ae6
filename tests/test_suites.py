"""`make test` runs a test of both stores on one of them, and `make proof` on the other."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def ran(pytester: pytest.Pytester, *options: str) -> set[str]:
    passed, skipped, failed = pytester.inline_run(*options).listoutcomes()
    assert not skipped
    assert not failed
    return {report.nodeid for report in passed}


def test_a_test_of_both_stores_runs_on_one_of_them(pytester: pytest.Pytester) -> None:
    """Each store gets some of the tests, and the long form has what the short one leaves out."""
    pytester.makeconftest("""
        import pytest
        from tests.suites import halve

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            halve(items)
    """)
    pytester.makeini("[pytest]\nmarkers = proof: long")
    pytester.makepyfile(
        test_stores="""
            import pytest

            @pytest.mark.parametrize("store", ["sqlite", "postgres"])
            @pytest.mark.parametrize("number", range(20))
            def test_of_both(store, number):
                pass

            @pytest.mark.parametrize("store", ["sqlite"])
            def test_of_one(store):
                pass
        """
    )
    short, long = (ran(pytester, "-m", which) for which in ("not proof", "proof"))
    assert len(short | long) == 41
    assert not short & long
    assert "test_stores.py::test_of_one[sqlite]" in short
    assert {int(name.partition("[")[2].partition("-")[0]) for name in long} == set(range(20))
    for names in (short, long):
        assert {name.rpartition("-")[2] for name in names if "both" in name} == {"sqlite]", "postgres]"}
    asked = max(long)
    assert ran(pytester, "-m", "not proof", asked) == {asked}
