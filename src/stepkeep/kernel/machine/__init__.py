"""The four state machines as data, the rows and the journal, and the values that go in and out of a decision."""
