"""A scrape as values: what a process shows, read by the parser of the Prometheus client library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples = {
            (one.name, tuple(sorted(one.labels.items()))): one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one sample; 0 if it is not shown."""
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}

    def labels(self, name: str, label: str) -> set[str]:
        """Every value of a label of one metric."""
        return {value for found, labels in self.samples if found == name for key, value in labels if key == label}
