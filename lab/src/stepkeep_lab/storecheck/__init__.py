"""The real stores put to the test: compared with the model, met by rivals, and given bugs that must show."""
